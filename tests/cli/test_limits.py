"""`holdfast limits`: what holds jobs back, and changing it while workers run."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from holdfast import Limit, Rate
from holdfast.cli.exit_codes import Exit
from holdfast.core.flow import Flow
from tests.cli.conftest import Run
from tests.cli.scene import Scene
from tests.support.limited_scene import ASK, MAIL, ORDERS, LimitedScene, flow


@pytest.fixture
def limited(scene: Scene) -> LimitedScene:
    """A database with a worker that declares limits."""
    made = LimitedScene(scene)
    made.declare(MAIL, ORDERS)
    return made


def listed(run: Run, *words: str) -> list[dict[str, object]]:
    result = run("limits", "list", *words, "-o", "json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


def test_the_fullest_keys_come_first(run: Run, limited: LimitedScene) -> None:
    limited.start(MAIL, "7", 1)
    limited.start(MAIL, "42", 5)
    limited.claim(MAIL)
    total, smtp, first, second = listed(run, "mail.send")
    assert (total["scope"], total["running"], total["allowed"]) == ("total", 3, 50)
    assert (smtp["type"], smtp["running"], smtp["allowed"]) == ("@smtp", 3, 9)
    assert (first["key"], first["running"], first["allowed"], first["waiting"]) == ("42", 2, 2, 3)
    assert (first["started"], first["rate"], first["full"]) == (2, "100/1m", True)
    assert (second["key"], second["running"], second["full"]) == ("7", 1, False)
    assert [each["key"] for each in listed(run, "--full")] == ["42"]
    table = run("limits", "list", "mail.send").stdout
    assert "2 of 2" in table
    assert "2 of 100/1m" in table


def test_without_a_worker_that_declares_limits_there_are_none(run: Run, scene: Scene) -> None:
    scene.worker("plain")
    assert "no live worker declares limits" in run("limits", "list").stderr
    refused = run("limits", "set", "plain", "--limit", "3")
    assert refused.exit_code == Exit.NOT_FOUND
    assert "no live worker declares limits for 'plain'" in refused.stderr


def test_a_key_gets_a_limit_of_its_own_and_loses_it_again(run: Run, limited: LimitedScene) -> None:
    limited.start(MAIL, "42", 5)
    limited.claim(MAIL)
    words = ("limits", "set", "mail.send", "--key", "42")
    assert run(*words, "--limit", "4", "--reason", "they pay more").exit_code == 0
    (own,) = [each for each in listed(run, "mail.send") if each["key"] == "42"]
    assert (own["allowed"], own["set"], own["full"]) == (4, True, False)
    assert len(limited.claim(MAIL)) == 2
    assert run(*words, "--limit", "default").exit_code == 0
    (own,) = [each for each in listed(run, "mail.send") if each["key"] == "42"]
    assert (own["allowed"], own["set"]) == (2, False)
    assert limited.scene.deeds() == [
        ("limit.set", "limit mail.send 42", "they pay more"),
        ("limit.set", "limit mail.send 42", None),
    ]


def test_all_keys_a_whole_type_and_a_shared_name_are_set(run: Run, limited: LimitedScene) -> None:
    for words in (
        ("mail.send", "--each", "--rate", "10/1s"),
        ("mail.send", "--total", "--limit", "7"),
        ("@smtp", "--limit", "5"),
    ):
        assert run("limits", "set", *words).exit_code == 0, words
    limited.start(MAIL, "42")
    total, smtp, key = listed(run, "mail.send")
    assert (total["allowed"], smtp["allowed"], key["rate"]) == (7, 5, "10/1s")
    targets = [deed[1] for deed in limited.scene.deeds()]
    assert targets == ["limit each key of mail.send", "limit mail.send", "limit @smtp"]


def test_a_key_waits_for_a_while_and_says_why(run: Run, limited: LimitedScene) -> None:
    (id,) = limited.start(MAIL, "42")
    words = ("limits", "rest", "mail.send", "--key", "42")
    assert run(*words, "10m", "--reason", "their server asked for it").exit_code == 0
    assert limited.claim(MAIL) == []
    (own,) = listed(run, "--full")
    assert (own["key"], own["reason"]) == ("42", "their server asked for it")
    shown = json.loads(run("jobs", "show", id, "-o", "json").stdout)
    assert shown["why"].startswith("tenant_id 42 is paused for ")
    assert shown["why"].endswith("their server asked for it")
    assert run(*words, "0s").exit_code == 0
    assert [each.id for each in limited.claim(MAIL)] == [id]


def test_a_pause_that_a_handler_asked_for_is_seen_everywhere(
    run: Run, limited: LimitedScene
) -> None:
    limited.start(MAIL, "42", 3)
    job, _ = limited.claim(MAIL)
    busy = {"gate": job.gate, "delay_ms": 5_400_000, "rest": True, "error": "Busy: 429"}
    limited.scene.finish(job, "snooze", **busy)
    (own,) = listed(run, "--full")
    assert (own["key"], own["reason"], own["full"]) == ("42", "Busy: 429", True)
    status = json.loads(run("status", "-o", "json").stdout)
    assert status["paused_keys"] == ["mail.send 42"]
    screen = run("status").stdout
    assert "mail.send 42 is paused" in screen
    assert "paused    mail.send 42 for 1 h: Busy: 429" in screen
    assert finding(run, "full_keys")["measured"] == "no key has been full for long, 1 key paused"


def test_a_pause_of_a_type_that_only_shares_a_rate_is_seen_too(run: Run, scene: Scene) -> None:
    limited = LimitedScene(scene)
    limited.declare(ASK)
    limited.start(ASK, "", 2)
    (job,) = limited.claim(ASK)[:1]
    busy = {"gate": job.gate, "delay_ms": 5_400_000, "rest": True, "error": "Busy: 429"}
    scene.finish(job, "snooze", **busy)
    name, own = listed(run)
    assert (name["type"], name["full"]) == ("@provider", False)
    assert (own["type"], own["key"], own["reason"]) == ("llm.ask", "", "Busy: 429")
    assert "(no key)" in run("limits", "list").stdout
    assert json.loads(run("status", "-o", "json").stdout)["paused_keys"] == ["llm.ask"]
    shown = json.loads(run("jobs", "show", job.id, "-o", "json").stdout)
    assert shown["why"].startswith("llm.ask is paused for ")


def test_a_shared_name_that_was_never_used_says_that_it_is_paused(run: Run, scene: Scene) -> None:
    limited = LimitedScene(scene)
    limited.declare(ASK)
    (id,) = limited.start(ASK, "")
    assert run("limits", "rest", "@provider", "10m", "--reason", "maintenance").exit_code == 0
    shown = json.loads(run("jobs", "show", id, "-o", "json").stdout)
    assert shown["why"].startswith("provider is paused for ")
    assert json.loads(run("status", "-o", "json").stdout)["paused_keys"] == ["@provider"]


def test_a_pause_that_is_over_is_not_listed(run: Run, limited: LimitedScene) -> None:
    words = ("limits", "rest", "order.apply", "--key", "7")
    assert run(*words, "10m").exit_code == 0
    assert [each["key"] for each in listed(run, "order.apply")] == ["7"]
    assert run(*words, "0s").exit_code == 0
    assert listed(run, "order.apply") == []
    assert "no key is in use" in run("limits", "list", "order.apply").stderr


def finding(run: Run, check: str) -> dict[str, str]:
    """What the doctor says about one thing."""
    found = json.loads(run("doctor", "-o", "json").stdout)
    (one,) = [each for each in found if each["check"] == check]
    return dict(one)


def test_the_doctor_finds_a_key_that_is_full_for_long(run: Run, limited: LimitedScene) -> None:
    limited.start(MAIL, "42", 3, ago_s=1_200)
    limited.claim(MAIL)
    found = finding(run, "full_keys")
    assert (found["verdict"], found["measured"]) == (
        "warning",
        "1 key full; mail.send 42 for 20 min",
    )
    assert "holdfast limits set mail.send --key 42 --limit N" in found["fix"]


def test_the_doctor_finds_a_key_that_is_paused_for_long(run: Run, limited: LimitedScene) -> None:
    limited.start(MAIL, "42", 3, ago_s=1_200)
    words = ("limits", "rest", "mail.send", "--key", "42", "90m", "--reason", "their wish")
    assert run(*words).exit_code == 0
    found = finding(run, "full_keys")
    assert found["verdict"] == "warning"
    assert found["measured"] == "1 key paused; mail.send 42 for 1 h more: their wish"
    assert found["fix"] == "holdfast limits rest mail.send --key 42 0s"


def test_the_doctor_finds_an_ordered_key_behind_a_dead_letter(
    run: Run, limited: LimitedScene
) -> None:
    first, _ = limited.start(ORDERS, "7", 2)
    (running,) = limited.claim(ORDERS)
    limited.scene.finish(running, "fail", error="ValueError: no", fingerprint="x")
    found = finding(run, "ordered_keys")
    assert found["verdict"] == "warning"
    assert found["measured"].startswith("1 key; order.apply 7 for ")
    assert f"holdfast dead redrive {first}" in found["fix"]


def test_the_doctor_finds_live_workers_that_disagree(run: Run, limited: LimitedScene) -> None:
    assert finding(run, "limits")["verdict"] == "ok"
    limited.declare(flow("order.apply", limits=[Limit(3, by="order_id")]), worker="w-8")
    found = finding(run, "limits")
    assert found["verdict"] == "warning"
    assert found["measured"] == "order.apply: 3 per order_id or in order per order_id"


def test_a_job_says_which_limit_it_waits_for(run: Run, limited: LimitedScene) -> None:
    ids = limited.start(MAIL, "42", 5)
    limited.claim(MAIL)
    shown = json.loads(run("jobs", "show", ids[-1], "-o", "json").stdout)
    assert shown["why"] == "Waiting for tenant_id 42: 2 of 2 running; 2 ahead of it"
    assert (shown["waits_for"], shown["next_permit_at"]) == (ids[:2], None)
    screen = run("jobs", "show", ids[-1]).stdout
    assert ids[0] in screen
    assert ids[1] in screen


RATED = flow("sms.send", rates=[Rate(2, "1h", by="tenant_id")])
QUOTA = flow("llm.ask", rates=[Rate(2, "1h")])
SHARED = flow("llm.embed", rates=[Rate(2, "1h", name="provider")])


@pytest.mark.parametrize(
    ("rated", "key", "name"),
    [(RATED, "42", "tenant_id 42"), (QUOTA, "", "llm.ask"), (SHARED, "", "provider")],
    ids=["of a key", "of a type", "of a name"],
)
def test_a_job_says_when_its_rate_lets_the_next_one_start(
    run: Run, scene: Scene, rated: Flow, key: str, name: str
) -> None:
    limited = LimitedScene(scene)
    limited.declare(rated)
    *_, last = limited.start(rated, key, 3)
    assert len(limited.claim(rated)) == 2
    shown = json.loads(run("jobs", "show", last, "-o", "json").stdout)
    assert shown["why"].startswith(
        f"Waiting for {name}: at most 2/1h, the next can start in 59 min"
    )
    wait = datetime.fromisoformat(shown["next_permit_at"]) - datetime.now(UTC)
    assert 3_500 < wait.total_seconds() <= 3_600
    assert "next permit" in run("jobs", "show", last).stdout


def test_a_job_of_a_resting_key_says_when_the_next_may_start(
    run: Run, limited: LimitedScene
) -> None:
    *_, last = limited.start(MAIL, "42", 3)
    (job, _) = limited.claim(MAIL)
    busy = {"gate": job.gate, "delay_ms": 5_400_000, "rest": True, "error": "Busy: 429"}
    limited.scene.finish(job, "snooze", **busy)
    shown = json.loads(run("jobs", "show", last, "-o", "json").stdout)
    assert shown["why"] == "tenant_id 42 is paused for 1 h: Busy: 429"
    wait = datetime.fromisoformat(shown["next_permit_at"]) - datetime.now(UTC)
    assert 5_300 < wait.total_seconds() <= 5_400


def test_an_ordered_job_says_what_it_waits_for(run: Run, limited: LimitedScene) -> None:
    first, second, _ = limited.start(ORDERS, "7", 3)
    (running,) = limited.claim(ORDERS)
    why = json.loads(run("jobs", "show", second, "-o", "json").stdout)["why"]
    assert why == f"Waiting for the previous job in order_id 7 ({first}), which is running"
    limited.scene.finish(running, "fail", error="ValueError: no", fingerprint="x")
    assert limited.claim(ORDERS) == []
    why = json.loads(run("jobs", "show", second, "-o", "json").stdout)["why"]
    expected = f"({first}), which failed: redrive or drop it"
    assert why == f"Waiting for the previous job in order_id 7 {expected}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("set", "mail.send", "--limit", "3"), "say which: each or total"),
        (("set", "mail.send", "--key", "1", "--each", "--limit", "3"), "were both given"),
        (("set", "mail.send", "--key", "1"), "nothing to set"),
        (("set", "mail.send", "--key", "1", "--limit", "0"), "is not between 1 and"),
        (("set", "mail.send", "--key", "1", "--rate", "100"), "is not a rate"),
        (("set", "order.apply", "--total", "--limit", "3"), "has no total limit for"),
        (("set", "@smpt", "--limit", "3"), "did you mean @smtp?"),
        (("set", "mail.sned", "--limit", "3"), "did you mean mail.send?"),
        (("rest", "mail.send", "10m"), "name the key"),
    ],
)
def test_what_would_have_no_effect_is_refused(
    run: Run, limited: LimitedScene, words: tuple[str, ...], message: str
) -> None:
    result = run("limits", *words)
    assert result.exit_code in (Exit.USAGE, Exit.NOT_FOUND)
    assert message in result.stderr
    assert limited.scene.deeds() == []
    dry = run("limits", *words, "--dry-run")
    assert (dry.exit_code, dry.stderr) == (result.exit_code, result.stderr)


def test_a_dry_run_changes_nothing(run: Run, limited: LimitedScene) -> None:
    of_key = ("mail.send", "--key", "1", "--dry-run", "-o", "id")
    for words in (("set", *of_key, "--limit", "3"), ("rest", *of_key, "1m")):
        result = run("limits", *words)
        assert (result.exit_code, result.stdout) == (0, "mail.send\n")
    assert limited.scene.deeds() == []


def test_types_tell_their_limits(run: Run, limited: LimitedScene) -> None:
    rows = {each["type"]: each for each in json.loads(run("types", "list", "-o", "json").stdout)}
    assert rows["mail.send"]["limits"] == (
        "2 per tenant_id · 100/1m per tenant_id · 50 in total · 9 for smtp"
    )
    assert rows["order.apply"]["limits"] == "in order per order_id"
    assert rows["mail.send"]["full_keys"] == 0


def test_types_count_the_keys_that_are_full(run: Run, limited: LimitedScene) -> None:
    limited.start(MAIL, "7", 1)
    limited.start(MAIL, "8", 3)
    limited.start(MAIL, "9", 3)
    limited.claim(MAIL)
    rows = {each["type"]: each for each in json.loads(run("types", "list", "-o", "json").stdout)}
    assert (rows["mail.send"]["full_keys"], rows["order.apply"]["full_keys"]) == (2, 0)
    table = run("types", "list").stdout
    assert "KEYS FULL" in table.upper()
    assert "full keys" in run("types", "show", "mail.send").stdout

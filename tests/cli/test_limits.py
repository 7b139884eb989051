"""`holdfast limits`: what holds jobs back, and changing it while workers run."""

from __future__ import annotations

import json

import pytest

from holdfast.cli.exit_codes import Exit
from tests.cli.conftest import Run
from tests.cli.scene import Scene
from tests.support.limited_scene import MAIL, ORDERS, LimitedScene


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


def test_a_job_says_which_limit_it_waits_for(run: Run, limited: LimitedScene) -> None:
    ids = limited.start(MAIL, "42", 5)
    limited.claim(MAIL)
    shown = json.loads(run("jobs", "show", ids[-1], "-o", "json").stdout)
    assert shown["why"] == "Waits for tenant_id 42: 2 of 2 running; 2 before it"


def test_an_ordered_job_says_what_it_waits_for(run: Run, limited: LimitedScene) -> None:
    first, second, _ = limited.start(ORDERS, "7", 3)
    (running,) = limited.claim(ORDERS)
    why = json.loads(run("jobs", "show", second, "-o", "json").stdout)["why"]
    assert why == f"Waits for the job before it in order_id 7 ({first}), which is running"
    limited.scene.finish(running, "fail", error="ValueError: no", fingerprint="x")
    assert limited.claim(ORDERS) == []
    why = json.loads(run("jobs", "show", second, "-o", "json").stdout)["why"]
    expected = f"({first}), which failed: redrive or drop it"
    assert why == f"Waits for the job before it in order_id 7 {expected}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("set", "mail.send", "--limit", "3"), "say which: --each or --total"),
        (("set", "mail.send", "--key", "1", "--each", "--limit", "3"), "cannot be combined"),
        (("set", "mail.send", "--key", "1"), "nothing to set"),
        (("set", "mail.send", "--key", "1", "--limit", "0"), "is not between 1 and"),
        (("set", "mail.send", "--key", "1", "--rate", "100"), "is not a rate"),
        (("set", "order.apply", "--total", "--limit", "3"), "has no limit for all of its jobs"),
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


def test_a_dry_run_changes_nothing(run: Run, limited: LimitedScene) -> None:
    assert (
        run("limits", "set", "mail.send", "--key", "1", "--limit", "3", "--dry-run").exit_code == 0
    )
    assert run("limits", "rest", "mail.send", "--key", "1", "1m", "--dry-run").exit_code == 0
    assert limited.scene.deeds() == []


def test_types_tell_their_limits(run: Run, limited: LimitedScene) -> None:
    rows = {each["type"]: each for each in json.loads(run("types", "list", "-o", "json").stdout)}
    assert rows["mail.send"]["limits"] == (
        "2 per tenant_id · 100/1m per tenant_id · 50 in all · 9 for smtp"
    )
    assert rows["order.apply"]["limits"] == "in order per order_id"

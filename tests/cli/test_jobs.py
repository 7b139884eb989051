"""Jobs are listed, shown, started and moved, on both stores."""

import json
import re
from os.path import commonprefix
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast.core.ids import short_id
from holdfast.storage.id_generator import new_id
from tests.cli.conftest import Run
from tests.cli.scene import Scene

SECRET = "hunter2-hunter2"


def listed(run: Run, *arguments: str) -> list[str]:
    result = run("jobs", "list", "-o", "id", *arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout.split()


def shown(run: Run, id: str, *arguments: str) -> dict[str, Any]:
    result = run("jobs", "show", id, "-o", "json", *arguments)
    assert result.exit_code == 0, result.stderr
    record: dict[str, Any] = json.loads(result.stdout)
    return record


def test_a_list_has_the_newest_first_and_can_be_narrowed(run: Run, scene: Scene) -> None:
    mail, push, dead = scene.start("mail.send"), scene.start("push.send"), scene.failed(type="pdf")
    assert listed(run) == [dead, push, mail]
    assert listed(run, "type:mail.*") == [mail]
    assert listed(run, "state:failed") == [dead]
    assert listed(run, "state:failed", "type:mail.*") == []
    assert listed(run, 'error:"boom"', "age<1h", "attempt>=1") == [dead]


def test_a_list_shows_the_last_error_of_what_is_tried_again(run: Run, scene: Scene) -> None:
    again = scene.ended("retry", delay_ms=60_000, error="ConnectionError: the shop is closed")
    scene.start()
    rows = json.loads(run("jobs", "list", "-o", "json").stdout)
    assert {each["id"]: each["last_error"] for each in rows}[again] == (
        "ConnectionError: the shop is closed"
    )
    assert "the shop is closed" in run("jobs", "list").stdout


def test_a_long_list_is_continued_by_its_cursor(run: Run, scene: Scene) -> None:
    ids = [scene.start() for _ in range(5)]
    first = run("jobs", "list", "--limit", "3", "-o", "id")
    cursor = first.stderr.split("--after ")[1].strip()
    rest = listed(run, "--limit", "3", "--after", cursor)
    assert [*first.stdout.split(), *rest] == ids[::-1]
    other = run("jobs", "list", "type:mail.*", "--after", cursor)
    assert other.exit_code == Exit.USAGE
    assert "error[HF071]" in other.stderr


def test_a_list_shows_no_payload(run: Run, scene: Scene) -> None:
    scene.start(input='{"note":"for my eyes only"}')
    for output in ("table", "json", "ndjson", "id"):
        assert "for my eyes only" not in run("jobs", "list", "-o", output).output


def test_a_state_that_was_searched_as_text_is_pointed_out(run: Run, scene: Scene) -> None:
    scene.failed()
    assert "for jobs in this state, write state:failed" in run("jobs", "list", "failed").stderr
    assert "write state" not in run("jobs", "list", "state:failed").stderr


def test_an_empty_list_says_so_on_stderr(run: Run, scene: Scene) -> None:
    result = run("jobs", "list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no jobs found\n")


def test_a_unique_beginning_or_end_of_an_id_is_enough(run: Run, scene: Scene) -> None:
    first, second = scene.start("mail.send"), scene.start("mail.send")
    for part in (second[:-1], second[-12:], f"…{second[-12:]}", f"...{second[-12:].upper()}"):
        assert shown(run, part)["id"] == second
    assert run("chains", "show", f"…{first[-12:]}").exit_code == 0
    assert run("jobs", "cancel", first[-12:], "-o", "id").stdout.split() == [first]


def test_the_short_form_of_an_id_is_enough_for_every_command(run: Run, scene: Scene) -> None:
    dead, done = scene.failed(), scene.ended("complete", "mail.count", output="7")
    later = scene.start("mail.send", at=4_000_000_000_000_000)
    scene.start("mail.send")
    assert shown(run, short_id(later))["id"] == later
    assert dead in run("dead", "show", short_id(dead)).stdout
    assert run("chains", "wait", short_id(done)).stdout == "7\n"
    for noun, verb, id in (
        ("jobs", "run-now", later),
        ("jobs", "cancel", later),
        ("dead", "redrive", dead),
        ("chains", "cancel", dead),
        ("chains", "delete", done),
    ):
        result = run(noun, verb, short_id(id), "--yes", "-o", "id")
        assert (result.exit_code, result.stdout.split()) == (0, [id]), result.stderr


def test_a_part_that_several_ids_have_is_refused_with_them(run: Run, scene: Scene) -> None:
    ids = [scene.start("mail.send"), scene.start("mail.send")]
    part = commonprefix(ids)[:8]  # of the clock, whose eighth digit may change in between
    refused = run("jobs", "cancel", part)
    assert refused.exit_code == Exit.USAGE
    assert f"error[HF072]: several job ids begin or end with {part}" in refused.stderr
    assert all(id in refused.stderr for id in ids)
    assert listed(run, "state:cancelled") == []


def test_a_part_that_no_id_has_is_not_found(run: Run, scene: Scene) -> None:
    scene.start("mail.send")
    for noun, code in (("jobs", "HF061"), ("chains", "HF060")):
        missing = run(noun, "show", "…ffffffffff")
        assert missing.exit_code == Exit.NOT_FOUND
        assert f"error[{code}]" in missing.stderr


def test_instants_are_rfc_3339_in_utc(run: Run, scene: Scene) -> None:
    created = shown(run, scene.start())["created_at"]
    assert len(created) == len("2026-01-31T12:00:00.000000Z")
    assert created.endswith("Z")


def test_show_says_why_a_job_does_not_run(run: Run, scene: Scene) -> None:
    pending = scene.start("mail.send")
    blocked = scene.start("mail.send", blockers=(pending,))
    assert shown(run, pending)["why"] == "No live worker handles mail.send"
    assert shown(run, blocked)["why"] == "Waiting for 1 of 1 chain"
    scene.worker("mail.send")
    assert "picked up at the next poll" in shown(run, pending)["why"]
    run("types", "pause", "mail.send")
    assert shown(run, pending)["why"].startswith("Paused by ")
    running = scene.running("push.send")
    assert shown(run, running.id)["why"].startswith("Leased by w-7, expires in 5")


def test_show_tells_a_jobs_story(run: Run, scene: Scene) -> None:
    id = scene.failed("ValueError: boom\n  File 'mail.py', line 3")
    result = run("jobs", "show", id)
    assert result.stdout.startswith("mail.send · failed\nFailed ")
    for part in (id, "attempt   1", '"to": "ana"', "File 'mail.py', line 3", "w-7"):
        assert part in result.stdout
    record = shown(run, id)
    assert [each["kind"] for each in record["attempts"]] == ["fail"]


def test_payloads_are_redacted_unless_they_are_wanted_raw(run: Run, scene: Scene) -> None:
    id = scene.start(input=f'{{"password":"{SECRET}","id":9007199254740993}}')
    assert SECRET not in run("jobs", "show", id).output
    assert shown(run, id)["input"]["id"] == 9007199254740993
    assert shown(run, id, "--raw")["input"]["password"] == SECRET


def test_a_job_that_does_not_exist_is_not_found(run: Run, scene: Scene) -> None:
    result = run("jobs", "show", new_id())
    assert result.exit_code == Exit.NOT_FOUND
    assert result.stderr.startswith("error[HF061]: there is no job ")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("jobs", "start", "x", "--at", "2030-01-31"), "is not a time like 2030-01-31T09:00:00Z"),
        (("jobs", "start", "x", "--at", "noon"), "is not a time like"),
        (("jobs", "start", "x", "@absent.json"), "cannot read absent.json: No such file"),
        (("jobs", "start"), "neither TYPE nor --like was given"),
        (("jobs", "start", "x", "--new-type", "--set", "to"), "'to' is not an edit"),
        (("jobs", "start", "x", "[1]", "--new-type", "--set", "1=2"), "has no field for '1=2'"),
        (("jobs", "show", "17"), "error[HF072]: '17' is not an id"),
        (("jobs", "show", "123"), "its first or last 6 digits or more, as in …7c00a1b2"),
        (("jobs", "list", "stat:failed"), "did you mean state?"),
        (("jobs", "list", "state:faild"), "did you mean failed?"),
        (("jobs", "list", "age>soon"), "is not a duration"),
        (("jobs", "list", "--limit", "0"), "0 is not in the range"),
        (("jobs", "retry", "bogus"), "'bogus' is not a term"),
        (("jobs", "retry"), "missing argument 'ID... | FILTER...'"),
        (("jobs", "show", "0193a6f0-7c00-7000-8000-000000000000", "-o", "xml"), "'xml' is not"),
    ],
)
def test_wrong_input_is_refused_with_the_way_out(
    run: Run, scene: Scene, words: tuple[str, ...], complaint: str
) -> None:
    result = run(*words)
    assert result.exit_code == Exit.USAGE
    assert result.stdout == ""
    assert complaint in result.stderr
    assert "help: " in result.stderr


def test_a_failed_job_is_retried_by_id_without_asking(run: Run, scene: Scene) -> None:
    id = scene.failed()
    result = run("jobs", "retry", id, "--reason", "mended", "-o", "id")
    assert (result.exit_code, result.stdout) == (0, f"{id}\n")
    assert scene.state(id) == "pending"
    assert scene.deeds() == [("job.retry", f"job {id}", "mended")]


def test_a_filter_needs_a_yes_and_shows_count_and_sample_first(run: Run, scene: Scene) -> None:
    ids = {scene.failed() for _ in range(3)}
    alive = scene.start()
    asked = run("jobs", "retry", "type:mail.*")
    assert asked.exit_code == Exit.REFUSED
    assert asked.stdout == ""
    assert "about to retry 3 jobs, for example:" in asked.stderr
    assert "error[HF093]" in asked.stderr
    assert {scene.state(id) for id in ids} == {"failed"}
    done = run("jobs", "retry", "type:mail.*", "--yes", "-o", "json")
    assert done.exit_code == 0
    assert {each["id"] for each in json.loads(done.stdout)} == ids
    assert {scene.state(id) for id in ids} == {"pending"}
    assert alive not in done.output


@pytest.mark.parametrize("verb", ["retry", "cancel", "run-now"])
def test_a_dry_run_shows_and_changes_nothing(run: Run, scene: Scene, verb: str) -> None:
    dead, alive = scene.failed(), scene.start()
    result = run("jobs", verb, "type:mail.*", "--dry-run", "-o", "id")
    assert result.exit_code == 0
    assert result.stdout == f"{dead if verb == 'retry' else alive}\n"
    assert (scene.state(dead), scene.state(alive)) == ("failed", "pending")
    assert scene.deeds() == []


def test_cancelling_ends_jobs_whoever_holds_them(run: Run, scene: Scene) -> None:
    running = scene.running()
    blocked = scene.start(blockers=(running.id,))
    result = run("jobs", "cancel", running.id, "--reason", "sent by hand")
    assert result.exit_code == 0
    assert scene.lease_status(running).lease == "ended"
    assert shown(run, running.id)["error"] == "Cancelled: sent by hand"
    assert scene.state(blocked) == "failed"


def test_a_delayed_job_is_made_due(run: Run, scene: Scene) -> None:
    assert run("jobs", "start", "mail.send", "--new-type", "--after", "1h").exit_code == 0
    assert scene.claim() == []
    (id,) = listed(run)
    assert run("jobs", "run-now", id).exit_code == 0
    assert [each.id for each in scene.claim()] == [id]


def test_a_start_says_when_it_expires(run: Run, scene: Scene) -> None:
    assert run("jobs", "start", "mail.send", "--new-type", "--expires", "1h").exit_code == 0
    (id,) = listed(run)
    assert shown(run, id)["expires_at"] is not None
    assert "it expires in 59 min" in run("jobs", "show", id).stdout
    for words in (("--expires", "soon"), ("--after", "2h", "--expires", "1h")):
        refused = run("jobs", "start", "mail.send", "--new-type", *words)
        assert refused.exit_code == Exit.USAGE
    assert listed(run) == [id]


def test_a_move_that_no_id_allows_is_refused(run: Run, scene: Scene) -> None:
    alive = scene.start()
    result = run("jobs", "retry", alive)
    assert result.exit_code == Exit.REFUSED
    assert f"job {alive} is pending" in result.stderr
    assert run("jobs", "retry", new_id()).exit_code == Exit.NOT_FOUND


def test_a_move_that_only_some_allow_is_done_partly(run: Run, scene: Scene) -> None:
    dead, alive, absent = scene.failed(), scene.start(), new_id()
    result = run("jobs", "retry", dead, alive, absent, "-o", "id")
    assert result.exit_code == Exit.PARTLY
    assert result.stdout == f"{dead}\n"
    assert f"job {alive} was skipped" in result.stderr
    assert f"there is no job {absent}" in result.stderr


def test_ids_and_a_filter_are_not_mixed(run: Run, scene: Scene) -> None:
    result = run("jobs", "retry", scene.failed(), "type:mail.*")
    assert result.exit_code == Exit.USAGE
    assert "cannot be mixed" in result.stderr


def test_a_limit_bounds_what_a_filter_changes(run: Run, scene: Scene) -> None:
    for _ in range(3):
        scene.failed()
    result = run("jobs", "retry", "type:mail.*", "--limit", "2", "--yes", "-o", "id")
    assert len(result.stdout.split()) == 2
    assert "more than 2 match" in result.stderr
    assert len(listed(run, "state:failed")) == 1


def test_start_reads_its_input_from_anywhere(run: Run, scene: Scene, tmp_path: Path) -> None:
    scene.worker("mail.send")
    (tmp_path / "mail.json").write_text('{"from": "a file"}')
    for words, typed in (
        (('{"from": "here"}',), None),
        ((f"@{tmp_path / 'mail.json'}",), None),
        (("-",), '{"from": "stdin"}'),
        ((), None),
    ):
        assert run("jobs", "start", "mail.send", *words, input=typed).exit_code == 0
    inputs = [shown(run, id)["input"] for id in listed(run)]
    assert inputs == [None, {"from": "stdin"}, {"from": "a file"}, {"from": "here"}]


def test_start_takes_the_options_of_a_start(run: Run, scene: Scene) -> None:
    options = ("--new-type", "--key", "k", "--priority", "1", "--max-attempts", "3")
    at = ("--at", "2031-01-31T12:00:00+00:00")
    result = run("jobs", "start", "mail.send", *options, *at, "-o", "json", "--reason", "by hand")
    started = json.loads(result.stdout)
    record = shown(run, started["id"])
    assert (record["key"], record["priority"], record["max_attempts"]) == ("k", 1, 3)
    assert record["planned_at"] == "2031-01-31T12:00:00.000000Z"
    assert scene.deeds() == [("chain.start", f"chain {started['id']}", "by hand")]
    again = run("jobs", "start", "mail.send", "--key", "k", "-o", "json")
    assert json.loads(again.stdout) == started | {"deduplicated": True}


def test_a_debounced_start_replaces_the_input_of_the_one_that_waits(run: Run, scene: Scene) -> None:
    scene.worker("reindex")
    words = ("jobs", "start", "reindex")
    quiet = ("--key", "doc:7", "--debounce", "30s", "--latest", "5m")
    started = json.loads(run(*words, "1", *quiet, "-o", "json").stdout)
    again = run(*words, "2", *quiet, "-o", "json")
    assert json.loads(again.stdout) == started | {"deduplicated": True}
    assert "replaced the input of the chain that has the key doc:7" in again.stderr
    assert len(scene.deeds()) == 2
    found = shown(run, started["id"])
    assert found["input"] == 2
    assert found["why"].endswith("unless requested again, no later than in 4 min")
    refused = run(*words, "3", "--debounce", "30s")
    assert refused.exit_code == Exit.USAGE
    assert "error[HF073]" in refused.stderr


def test_a_dry_start_leaves_nothing(run: Run, scene: Scene) -> None:
    result = run("jobs", "start", "mail.send", "--new-type", "--dry-run")
    assert result.exit_code == 0
    assert "nothing was" in result.stderr
    assert listed(run) == []


def test_a_mistyped_type_is_not_started(run: Run, scene: Scene) -> None:
    scene.worker("mail.send")
    result = run("jobs", "start", "mail.sned")
    assert result.exit_code == Exit.NOT_FOUND
    assert "error[HF020]" in result.stderr
    assert "did you mean mail.send?" in result.stderr


def test_an_input_that_is_no_json_is_refused(run: Run, scene: Scene) -> None:
    result = run("jobs", "start", "mail.send", "{to: ana}", "--new-type")
    assert result.exit_code == Exit.USAGE
    assert "the input is not JSON" in result.stderr


@pytest.mark.parametrize(
    ("environ", "words", "state"),
    [
        (None, (), "pending"),
        ("1", (), "failed"),
        ("1", ("--poison-limit", "2"), "pending"),
        (None, ("--poison-limit", "1"), "failed"),
    ],
)
def test_reap_heeds_the_poison_limit_of_the_settings(
    run: Run,
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    environ: str | None,
    words: tuple[str, ...],
    state: str,
) -> None:
    if environ is not None:
        monkeypatch.setenv("HOLDFAST_POISON_LIMIT", environ)
    stale = scene.running(lease_ms=1)
    # Only a death in which a job ran alone can show its guilt.
    assert scene.database.run(scene.store.leases.isolate(stale.token))
    assert run("reap", *words).exit_code == 0
    assert scene.state(stale.id) == state


def test_reap_takes_back_what_dead_workers_held(run: Run, scene: Scene) -> None:
    stale = scene.running(lease_ms=1)
    held = scene.running("push.send")
    result = run("reap", "-o", "json")
    assert [each["id"] for each in json.loads(result.stdout)] == [stale.id]
    assert "recovered 1 job" in result.stderr
    assert (scene.state(stale.id), scene.state(held.id)) == ("pending", "running")


def test_a_job_is_run_again_with_edited_input(run: Run, scene: Scene) -> None:
    input = '{"to":"ana","card":{"pin":"1234"},"items":[{"count":1}]}'
    id = scene.start("mail.send", input=input, priority=2, key="mail:7")
    edits = ("--set", "to=bob", "--set", "items.0.count=3", "--set", "card.kind=null")
    result = run("jobs", "start", "--like", id[-8:], *edits, "-o", "id", "--reason", "again")
    assert result.exit_code == Exit.OK
    new = result.stdout.strip()
    (job,) = scene.database.read(scene.store.jobs.get([new]))
    assert (job.type, job.priority, job.key) == ("mail.send", 2, None)
    assert json.loads(job.input) == {
        "to": "bob",
        "card": {"pin": "1234", "kind": None},
        "items": [{"count": 3}],
    }
    assert scene.deeds() == [("chain.start", f"chain {new}", "again")]


def test_a_job_is_run_again_in_the_version_of_its_input(run: Run, scene: Scene) -> None:
    id = scene.start("mail.send", version=3)
    result = run("jobs", "start", "--like", id, "-o", "id")
    (job,) = scene.database.read(scene.store.jobs.get([result.stdout.strip()]))
    assert job.version == 3
    other = run("jobs", "start", "mail.other", "--new-type", "--like", id, "-o", "id")
    (job,) = scene.database.read(scene.store.jobs.get([other.stdout.strip()]))
    assert (job.type, job.version) == ("mail.other", 1)


def test_a_filter_that_only_mentions_a_state_matches_what_the_command_can_change(
    run: Run, scene: Scene
) -> None:
    scene.start("pdf", key="state:7")
    failed = scene.ended("fail", error="state: lost", fingerprint="lost")
    done = run("jobs", "retry", 'error:"state: lost"', "--yes", "-o", "id")
    assert (done.exit_code, done.stdout.split()) == (Exit.OK, [failed])
    none = run("jobs", "retry", "key:state:7", "--yes")
    assert (none.exit_code, "nothing matched" in none.stderr) == (Exit.OK, True)


@pytest.mark.parametrize("noun", ["jobs", "chains"])
def test_a_list_that_stopped_searching_does_not_look_empty(
    run: Run, scene: Scene, monkeypatch: pytest.MonkeyPatch, noun: str
) -> None:
    scene.start("rare")
    for _ in range(9):
        scene.start("common")
    monkeypatch.setattr("holdfast.client.pagination.LOOK", 4)
    found = run(noun, "list", "type:rare")
    assert f"none among the newest 4 {noun}\n" in found.stderr
    assert f"no {noun} found" not in found.stderr
    (cursor,) = re.findall(
        rf"searched the newest 4 {noun}; continue with --after (\S+)", found.stderr
    )
    found = run(noun, "list", "type:rare", "--after", cursor)
    assert f"none among the next 4 {noun}\n" in found.stderr
    (cursor,) = re.findall(r"--after (\S+)", found.stderr)
    assert "rare" in run(noun, "list", "type:rare", "--after", cursor).stdout

"""Dead letters are grouped, shown, redriven at a rate and dropped, on both stores."""

import json

import pytest

from holdfast.cli import changes
from holdfast.cli.exit_codes import Exit
from holdfast.commands.jobs import cancel_jobs
from holdfast.commands.redrives import continue_redrive
from holdfast.core.duration import milliseconds
from holdfast.storage.operation import at
from tests.cli.conftest import Run
from tests.cli.scene import Scene

SECOND = 1_000_000


def test_groups_are_counted_by_type_and_kind_of_error(run: Run, scene: Scene) -> None:
    for error in ("Timeout: 1", "Timeout: 2", "ValueError: no"):
        scene.failed(error)
    groups = json.loads(run("dead", "list", "-o", "json").stdout)
    assert [(each["count"], each["error"]) for each in groups] == [
        (2, "Timeout: 2"),
        (1, "ValueError: no"),
    ]
    table = run("dead", "list").stdout.splitlines()
    assert table[0].split() == ["COUNT", "TYPE", "FINGERPRINT", "OLDEST", "NEWEST", "ERROR"]


def test_the_filter_of_a_group_finds_its_letters(run: Run, scene: Scene) -> None:
    ids = {scene.failed("Timeout: 1"), scene.failed("Timeout: 2")}
    scene.failed("ValueError: no")
    (largest, _) = run("dead", "list", "-o", "id").stdout.splitlines()
    found = run("dead", "list", *largest.split(), "-o", "id").stdout.split()
    assert set(found) == ids


def test_letters_are_listed_page_by_page_and_groups_at_once(run: Run, scene: Scene) -> None:
    ids = [scene.failed() for _ in range(3)]
    first = run("dead", "list", "type:mail.*", "--limit", "2", "-o", "id")
    cursor = first.stderr.split("--after ")[1].strip()
    rest = run("dead", "list", "type:mail.*", "--limit", "2", "-o", "id", "--after", cursor)
    assert {*first.stdout.split(), *rest.stdout.split()} == set(ids)
    refused = run("dead", "list", "--after", cursor)
    assert refused.exit_code == Exit.USAGE
    assert "--after goes with a filter" in refused.stderr


def test_no_dead_letters_is_said_on_stderr(run: Run, scene: Scene) -> None:
    result = run("dead", "list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no dead letters\n")


def test_show_tells_the_error_in_full(run: Run, scene: Scene) -> None:
    id = scene.failed("Timeout: 1\n  File 'mail.py', line 3")
    assert "File 'mail.py', line 3" in run("dead", "show", id).stdout


def test_redriving_spreads_letters_at_the_rate(run: Run, scene: Scene) -> None:
    ids = [scene.failed() for _ in range(3)]
    result = run("dead", "redrive", "type:mail.*", "--rate", "2/m", "--yes", "-o", "id")
    assert result.exit_code == 0
    assert set(result.stdout.split()) == set(ids)
    assert "to be re-queued at 2/m: 3 jobs" in result.stderr
    assert [deed[:2] for deed in scene.deeds()] == [("dead.redrive", "3 jobs")]
    assert "redrive at 2/m under way: 3 left" in run("dead", "list").stderr
    assert "redriven at 2/m: 3 left" in run("jobs", "show", ids[0]).stdout
    (redrive,) = scene.database.read(scene.store.redrives.under_way())
    gap = milliseconds("30s") * 1000
    began = now = scene.database.read(scene.store.schema.clock())
    for _ in range(3):
        step = scene.database.run(at(continue_redrive(scene.store, redrive.id, ["mail.send"]), now))
        assert step is not None
        assert len(step.change.answer) == 1
        now = step.next_at
        again = at(continue_redrive(scene.store, redrive.id, ["mail.send"]), now)
        held_up = scene.database.run(again)
        assert held_up is None or held_up.is_held_up, "one waits for its start"
        scene.database.run(cancel_jobs(scene.store, step.change.answer))
    assert now - began == 3 * gap
    assert scene.database.read(scene.store.redrives.under_way()) == []


def test_redriving_is_called_that_and_shows_what_it_took_once(run: Run, scene: Scene) -> None:
    id = scene.failed()
    done = scene.ended("complete")
    tried = run("dead", "redrive", "type:mail.*", "--dry-run")
    assert tried.stderr == "would redrive 1 job; nothing was changed\n"
    assert "about to redrive 1 job:" in run("dead", "redrive", "type:mail.*").stderr
    assert "cannot redrive a job that is completed" in run("dead", "redrive", done).stderr
    redriven = run("dead", "redrive", "type:mail.*", "--yes")
    assert redriven.output.count(id) == 1


def test_an_action_in_several_batches_is_one_entry_of_the_audit(
    run: Run, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "BATCH", 2)
    ids = {scene.failed() for _ in range(5)}
    words = ("--yes", "--reason", "the provider is back")
    assert run("dead", "redrive", "type:mail.*", *words).exit_code == 0
    assert len(scene.deeds()) == 3
    (entry,) = json.loads(run("audit", "list", "-o", "json").stdout)
    assert (entry["target"], entry["reason"]) == ("5 jobs", "the provider is back")
    assert entry["before"] == {"states": {"failed": 5}}
    assert (entry["after"]["count"], set(entry["after"]["ids"])) == (5, ids)
    assert entry["after"]["filter"] == "state:failed type:mail.*"
    assert "5 jobs matching state:failed type:mail.*" in run("audit", "list").stdout
    for id in (next(iter(ids)), scene.start()):
        found = json.loads(run("audit", "list", "--target", f"job {id}", "-o", "json").stdout)
        assert [each["action"] for each in found] == (["dead.redrive"] if id in ids else [])


def test_a_rate_holds_over_more_letters_than_fit_into_one_batch(
    run: Run, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "BATCH", 2)
    ids = [scene.failed() for _ in range(5)]
    assert run("dead", "redrive", "type:mail.*", "--rate", "1/m", "--yes").exit_code == 0
    assert [scene.state(each) for each in ids] == ["failed"] * 5
    (redrive,) = scene.database.read(scene.store.redrives.under_way())
    assert (redrive.spacing_us, redrive.left) == (milliseconds("1m") * 1000, 5)


@pytest.mark.parametrize("rate", ["fast", "0/s", "-1/s", "5/week", "nan/s"])
def test_a_rate_that_is_none_is_refused(run: Run, scene: Scene, rate: str) -> None:
    id = scene.failed()
    result = run("dead", "redrive", id, "--rate", rate)
    assert result.exit_code == Exit.USAGE
    assert "is not a rate like 50/s" in result.stderr
    assert scene.state(id) == "failed"


def test_dropping_removes_letters_for_good(run: Run, scene: Scene) -> None:
    old, alive = scene.failed(), scene.start()
    asked = run("dead", "drop", "type:mail.*")
    assert asked.exit_code == Exit.REFUSED
    result = run("dead", "drop", "type:mail.*", "--yes", "--reason", "old", "-o", "id")
    assert (result.exit_code, result.stdout) == (0, f"{old}\n")
    assert run("jobs", "list", "-o", "id").stdout == f"{alive}\n"
    assert scene.deeds() == [("dead.drop", f"chain {old}", "old")]


def test_letters_that_others_wait_for_are_not_dropped(run: Run, scene: Scene) -> None:
    awaited = scene.running()
    scene.start("b", blockers=(awaited.id,), input='"kept waiting"')
    dead, free = scene.running("c"), scene.failed()
    scene.finish(dead, "fail", error="x")
    result = run("dead", "drop", dead.id, free, awaited.id, "-o", "id")
    assert result.exit_code == Exit.PARTLY
    assert set(result.stdout.split()) == {dead.id, free}
    assert scene.state(awaited.id) == "running"


def test_what_is_not_dead_cannot_be_dropped(run: Run, scene: Scene) -> None:
    result = run("dead", "drop", scene.start())
    assert result.exit_code == Exit.REFUSED
    assert "only failed jobs" in result.stderr


def test_a_job_that_did_not_fail_is_not_shown_as_a_dead_letter(run: Run, scene: Scene) -> None:
    id = scene.ended("complete")
    result = run("dead", "show", id)
    assert (result.exit_code, result.stdout) == (Exit.REFUSED, "")
    assert f"job {id} is completed, not a dead letter" in result.stderr
    assert f"holdfast jobs show {id}" in result.stderr

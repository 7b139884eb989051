"""Ticks, cycles, the doctor, adoption and the audit log from the shell."""

import json
import signal
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast.notify.base import Hint
from holdfast.notify.factory import open_notifier
from holdfast.storage.id_generator import new_id
from tests.cli.conftest import Run
from tests.cli.processes import Command
from tests.cli.scene import WORKER, Scene
from tests.support.until import PATIENCE_S

APPLICATION = """
from pathlib import Path
from holdfast import Holdfast, Job

app = Holdfast()

@app.job("hello")
async def hello(job: Job[dict]) -> str:
    return "hello"

@app.job("slow")
def slow(job: Job[dict]) -> None:
    print("slow begins", flush=True)
    while not Path("go").exists() and not job.wait_for_abort(0.01):
        pass

@app.cycle("cleanup", cron="17 3 * * *", tz="America/Santiago")
async def cleanup(run):
    return 3

sides = Holdfast()

@sides.cycle("long", every="1s", timeout="5m")
def long(run):
    print("long begins\\n", end="", flush=True)
    run.wait_for_abort(300)

@sides.cycle("longer", every="1s", timeout="5m")
async def longer(run):
    import asyncio
    print("longer begins\\n", end="", flush=True)
    await asyncio.sleep(300)

@sides.cycle("quick", every="1s")
def quick(run):
    print("quick\\n", end="", flush=True)

broken = Holdfast()

@broken.cycle("broken", every="1s")
async def fails(run):
    raise RuntimeError("no such luck")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "office.py").write_text(APPLICATION)
    return tmp_path


def tick(*words: str) -> tuple[int, dict[str, Any]]:
    with Command("tick", *words, "-o", "json") as command:
        out, err = command.process.communicate(timeout=PATIENCE_S)
    assert out, err
    return command.process.wait(), json.loads(out)


def test_a_tick_runs_everything_once_and_ends(folder: Path, scene: Scene) -> None:
    id = scene.start("hello", input="{}")
    code, summary = tick("office:app")
    assert code == 0
    assert list(summary["runnerResults"]) == ["reaper", "outbox", "cleanup", "retention"]
    assert summary["totalProcessed"] == 1
    assert scene.state(id) == "completed"


def test_a_signal_lets_a_tick_end_in_order(folder: Path, scene: Scene) -> None:
    id = scene.start("slow", input="{}")
    with Command("tick", "office:app", "-o", "json", "--log-level", "info") as command:
        assert command.line() == "slow begins\n"
        command.process.send_signal(signal.SIGTERM)
        command.wait_for_word("worker_stopping")
        (folder / "go").touch()
        command.process.communicate(timeout=PATIENCE_S)
        assert command.process.returncode == 0
    assert scene.state(id) == "completed"


def test_a_tick_runs_only_what_was_named_after_the_reaper(folder: Path, scene: Scene) -> None:
    id = scene.start("hello", input="{}")
    _, summary = tick("office:app", "--runners", "retention")
    assert list(summary["runnerResults"]) == ["reaper", "retention"]
    assert scene.state(id) == "pending"


def test_cycles_are_listed_in_words_run_paused_and_resumed(
    folder: Path, scene: Scene, run: Run
) -> None:
    assert run("cycles", "list").stderr.startswith("no cycles found")
    tick("office:app")
    (cycle,) = json.loads(run("cycles", "list", "-o", "json").stdout)
    assert cycle["words"] == "at 03:17 every day, America/Santiago"
    assert len(run("cycles", "next", "cleanup", "-o", "id").stdout.split()) == 5
    assert run("cycles", "pause", "cleanup", "--reason", "mending").exit_code == 0
    assert "paused" in run("cycles", "list").stdout
    assert run("cycles", "run-now", "cleanup").exit_code == 0
    _, summary = tick("office:app")
    assert summary["runnerResults"]["cleanup"]["processed"] == 3
    assert run("cycles", "resume", "cleanup").exit_code == 0
    (cycle,) = json.loads(run("cycles", "list", "-o", "json").stdout)
    assert (cycle["paused"], cycle["runs"][0]["outcome"]) == (False, "completed")
    assert [each[0] for each in scene.deeds()] == ["cycle.pause", "cycle.run_now", "cycle.resume"]


def test_a_cycle_can_be_asked_to_run_before_the_first_tick(
    folder: Path, scene: Scene, run: Run
) -> None:
    unknown = run("cycles", "run-now", "cleanup")
    assert unknown.exit_code == 3
    assert "first tick" in unknown.stderr
    with Command("cycles", "run-now", "cleanup", "--app", "office:app") as command:
        assert command.process.wait(PATIENCE_S) == 0
    _, summary = tick("office:app")
    assert summary["runnerResults"]["cleanup"]["processed"] == 3


def test_a_ticks_own_counters_are_kept_with_its_run(folder: Path, scene: Scene, run: Run) -> None:
    scene.start("hello", input="{}")
    scene.abandoned("other")
    assert tick("office:app")[0] == 0
    (ran,) = json.loads(run("cycles", "runs", "tick", "-o", "json").stdout)
    counters = ran["counters"]["counters"]
    assert [counters[name] for name in ("ticks", "processed", "recovered")] == [1, 1, 1]


def test_the_runs_of_cycles_and_ticks_are_listed(folder: Path, scene: Scene, run: Run) -> None:
    assert run("cycles", "runs").stderr == "no runs found\n"
    tick("office:app")
    run("cycles", "run-now", "cleanup")
    tick("office:app")
    (cleaned,) = json.loads(run("cycles", "runs", "cleanup", "-o", "json").stdout)
    assert (cleaned["outcome"], cleaned["counters"]["processed"]) == ("completed", 3)
    assert cleaned["duration_ms"] >= 0
    (listed,) = json.loads(run("cycles", "list", "-o", "json").stdout)
    assert listed["runs"] == [cleaned]
    everything = json.loads(run("cycles", "runs", "-o", "json").stdout)
    assert [each["name"] for each in everything] == ["cleanup", "tick", "tick"]
    assert len(json.loads(run("cycles", "runs", "--limit", "1", "-o", "json").stdout)) == 1
    assert "processed=3" in run("cycles", "runs", "cleanup").stdout
    unknown = run("cycles", "runs", "clean")
    assert unknown.exit_code == Exit.NOT_FOUND
    assert "did you mean cleanup?" in unknown.stderr


def test_no_cycle_of_a_worker_waits_for_another(folder: Path, scene: Scene) -> None:
    with Command("worker", "office:sides", env={"WORKER_SHUTDOWN_TIMEOUT_MS": "0"}) as command:
        begun: set[str] = set()
        while not {"long begins\n", "longer begins\n"} <= begun:
            begun.add(command.line())
        for _ in range(4):
            assert command.line() == "quick\n"
        command.process.send_signal(signal.SIGTERM)
        command.process.communicate(timeout=60)
        assert command.process.returncode == 0
    (run,) = scene.database.read(scene.store.runs.page(10, 60_000, "longer"))
    assert (run.outcome, run.error) == ("aborted", "aborted: shutdown")


def test_an_unknown_cycle_is_answered_with_the_nearest(
    folder: Path, scene: Scene, run: Run
) -> None:
    tick("office:app")
    for verb in ("run-now", "pause", "resume", "next"):
        result = run("cycles", verb, "clean")
        assert result.exit_code == Exit.NOT_FOUND
        assert "did you mean cleanup?" in result.stderr


def test_a_dry_run_asks_for_no_cycle(folder: Path, scene: Scene, run: Run) -> None:
    tick("office:app")
    result = run("cycles", "pause", "cleanup", "--dry-run", "-o", "id")
    assert (result.exit_code, result.stdout) == (0, "cleanup\n")
    assert scene.deeds() == []


def test_the_doctor_finds_nothing_wrong_with_a_quiet_database(run: Run, scene: Scene) -> None:
    result = run("doctor", "-o", "json")
    assert result.exit_code == 0, result.output
    assert {each["verdict"] for each in json.loads(result.stdout)} <= {"ok", "warning"}


def test_the_doctor_finds_what_dead_workers_hold_and_fixes_it(run: Run, scene: Scene) -> None:
    id = scene.abandoned()
    result = run("doctor", "-o", "json")
    assert result.exit_code == Exit.CHECK_NOT_MET
    findings = {each["check"]: each for each in json.loads(result.stdout)}
    assert findings["expired_leases"]["verdict"] == "problem"
    assert findings["expired_leases"]["fix"]
    assert "recovered 1 job from" in run("doctor", "--fix").stderr
    assert scene.state(id) == "pending"


@pytest.mark.parametrize("words", [("reap",), ("doctor", "--fix")])
def test_workers_that_fell_silent_together_get_time_to_come_back(
    run: Run, scene: Scene, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("OUTBOX_REAPER_INTERVAL_MS", "50")
    scene.worker("mail.send", ago_s=600)
    id = scene.abandoned()
    said = run(*words).stderr
    assert "workers may be about to come back; giving them 0.05 s" in said
    assert scene.state(id) == "pending"


def test_the_doctor_knows_the_leases_that_workers_have_by_their_code(
    run: Run, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.worker("mail.send", leases='{"mail.send": 4000}')
    findings = {each["check"]: each for each in json.loads(run("doctor", "-o", "json").stdout)}
    assert "smallest lease 4000 ms (of mail.send)" in findings["timing"]["measured"]
    monkeypatch.setenv("OUTBOX_LEASE_HEARTBEAT_MS", "5000")
    findings = {each["check"]: each for each in json.loads(run("doctor", "-o", "json").stdout)}
    assert findings["timing"]["verdict"] == "problem"


def test_the_doctor_names_a_lease_set_at_run_time_that_workers_started_since_do_not_fit(
    run: Run, scene: Scene
) -> None:
    timings = '{"shutdown_ms": 2000, "reaper_interval_ms": 1000}'
    scene.worker("mail.send", timings=timings)
    assert run("types", "set", "mail.send", "--lease", "3s").exit_code == 0
    findings = {each["check"]: each for each in json.loads(run("doctor", "-o", "json").stdout)}
    assert findings["overrides"]["verdict"] == "ok"
    scene.worker("mail.send")
    findings = {each["check"]: each for each in json.loads(run("doctor", "-o", "json").stdout)}
    assert findings["overrides"]["verdict"] == "problem"
    assert "holdfast types set mail.send --lease default" in findings["overrides"]["fix"]


@pytest.mark.parametrize("words", [("reap",), ("doctor", "--fix")])
@pytest.mark.parametrize("url", ["postgres_url"], indirect=True)
def test_workers_are_told_of_what_was_taken_back(
    run: Run, scene: Scene, url: str, words: tuple[str, ...]
) -> None:
    scene.abandoned("mail.send")
    arrived: SimpleQueue[Hint] = SimpleQueue()
    notifier = open_notifier(database_url=url)
    listener = notifier.listen(arrived.put)
    try:
        assert listener.wait_until_alive(30)
        run(*words)
        wanted = {("look", "mail.send"), ("lost", WORKER)}
        while wanted:
            hint = arrived.get(timeout=PATIENCE_S)
            wanted.discard((hint.kind, hint.type if hint.kind == "look" else str(hint.worker)))
    finally:
        listener.close()
        notifier.close()


def test_the_doctor_needs_a_database(run: Run, absent_sqlite_url: str) -> None:
    result = run("doctor", "--url", absent_sqlite_url)
    assert result.exit_code == Exit.DATABASE
    assert "does not exist" in result.stderr


def test_a_copied_database_is_worked_off_only_when_it_was_adopted(
    folder: Path, scene: Scene, run: Run
) -> None:
    assert "is not a copy" in run("adopt").stderr
    _rename(scene)
    with Command("tick", "office:app") as command:
        _, err = command.process.communicate(timeout=PATIENCE_S)
    assert command.process.returncode == Exit.REFUSED
    assert "error[HF045]" in err
    assert run("adopt").exit_code == Exit.REFUSED
    (planned,) = json.loads(run("adopt", "--dry-run", "-o", "json").stdout)
    assert planned.keys() == {"name", "copy_of", "reason"}
    adopted = run("adopt", "--yes", "--reason", "restored", "-o", "json")
    assert json.loads(adopted.stdout) == [planned]
    assert json.loads(run("adopt", "-o", "json").stdout) == []
    assert scene.deeds() == [("database.adopt", "database", "restored")]
    assert tick("office:app")[0] == 0


def _rename(scene: Scene) -> None:
    statement = "update holdfast_identity set database_name = 'another'"
    if scene.store.dialect == "postgresql":
        statement = "update holdfast.identity set database_name = 'another'"
    scene.database.run(scene.store.schema.identify(new_id()))
    with scene.database.transaction() as transaction:
        transaction.connection.execute(statement)


def test_the_audit_log_tells_who_did_what_and_why(run: Run, scene: Scene) -> None:
    id = scene.start()
    run("jobs", "cancel", id, "--reason", "not needed")
    run("types", "pause", "mail.send")
    rows = json.loads(run("audit", "list", "-o", "json").stdout)
    assert [each["action"] for each in rows] == ["type.pause", "job.cancel"]
    (cancelled,) = json.loads(run("audit", "list", "--action", "job.cancel", "-o", "json").stdout)
    assert (cancelled["target"], cancelled["reason"]) == (f"job {id}", "not needed")
    assert cancelled["before"] == {"state": "pending"}
    assert "not needed" in run("audit", "list", "--target", f"job {id}").stdout


def test_a_failing_runner_is_told_by_the_exit_code(folder: Path, scene: Scene) -> None:
    tick("office:broken")
    asked = Command("cycles", "run-now", "broken")
    asked.process.communicate(timeout=PATIENCE_S)
    code, summary = tick("office:broken")
    assert code == Exit.FAILED
    assert summary["runnerResults"]["broken"]["failed"] is True

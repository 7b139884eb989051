"""Processes that were told to end, or whose budget is spent, and handlers that do not care."""

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.exit_codes import Exit
from tests.cli.processes import Command
from tests.cli.scene import Scene
from tests.support.until import SLOWNESS

APPLICATION = """
import os
import time
from holdfast import Holdfast, Job, Retry

app = Holdfast()

@app.job("slow")
def slow(job: Job[dict]) -> None:
    time.sleep(2)

@app.job("deaf", retry=Retry(max_attempts=2))
def deaf(job: Job[dict]) -> None:
    print("deaf begins", flush=True)
    time.sleep(300)

@app.job("blocking", retry=Retry(max_attempts=2))
async def blocking(job: Job[dict]) -> None:
    print("blocking begins", flush=True)
    time.sleep(300)

cycles = Holdfast()

@cycles.cycle("thread", every=os.environ.get("EVERY", "1h"))
def thread(run):
    print("thread begins", flush=True)
    time.sleep(300)

loops = Holdfast()

@loops.cycle("loop", every=os.environ.get("EVERY", "1h"))
async def loop(run):
    print("loop begins", flush=True)
    time.sleep(300)
"""

LONG_S = 100
"""Far more than a process may take to begin, and far less than its handlers would."""
END_S = 15
"""What a busy machine needs to end a process, after all that the handlers were given."""
# A handler has to begin within its budget, on a busy machine too.
OVERALL_S, CAP_S = 2.0 * SLOWNESS, 0.5
RUNNER_MS = str(int(200 * SLOWNESS))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deafness.py").write_text(APPLICATION)
    return tmp_path


def tick(spec: str, **env: str) -> tuple[int, str, dict[str, Any]]:
    with Command("tick", f"deafness:{spec}", "-o", "json", env=env) as command:
        out, err = command.process.communicate(timeout=LONG_S)
    return command.process.returncode, err, json.loads(out)


def cut_tick(spec: str, **env: str) -> tuple[int, str, dict[str, Any]]:
    """Run a tick whose handler does not end: it ends with its overall budget."""
    env |= {"WORKER_TICK_OVERALL_MAX_MS": str(int(OVERALL_S * 1000))}
    with Command("tick", f"deafness:{spec}", "-o", "json", env=env) as command:
        out, err = end_of(command, OVERALL_S)
    return command.process.returncode, err, json.loads(out or "{}")


def end_of(
    command: Command, within_s: float, sent: signal.Signals | None = None
) -> tuple[str, str]:
    """Wait for the end of a command whose handler has begun, and hold it to its limit."""
    assert command.line().endswith("begins\n")
    began = time.monotonic()
    if sent is not None:
        command.process.send_signal(sent)
    said: tuple[str, str] = command.process.communicate(timeout=LONG_S)
    assert time.monotonic() - began < within_s + END_S
    return said


def show(id: str) -> str:
    """What the command says about a job."""
    with Command("jobs", "show", id) as command:
        out, _ = command.process.communicate(timeout=LONG_S)
    return str(out)


def asked_for(spec: str, cycle: str) -> None:
    """Have a cycle registered and run by the next tick."""
    assert tick(spec)[0] == 0
    with Command("cycles", "run-now", cycle) as command:
        command.process.communicate(timeout=LONG_S)
    assert command.process.returncode == 0


def last_run(scene: Scene, cycle: str) -> tuple[str, str | None]:
    runs = scene.database.read(scene.store.runs.page(10, 60_000, cycle))
    return runs[0].outcome, runs[0].error


def test_a_tick_lets_a_job_run_that_takes_longer_than_its_runner_may(
    folder: Path, scene: Scene
) -> None:
    id = scene.start("slow", input="{}")
    code, _, summary = tick("app", WORKER_TICK_RUNNER_MAX_MS=RUNNER_MS)
    assert code == 0
    assert summary["runnerResults"]["outbox"]["processed"] == 1
    assert scene.state(id) == "completed"


def test_a_job_that_outlives_every_tick_is_charged_for_each_and_ends(
    folder: Path, scene: Scene
) -> None:
    id = scene.start("deaf", input="{}", max_attempts=1)
    code, err, summary = cut_tick("app", WORKER_TICK_RUNNER_MAX_MS=RUNNER_MS)
    assert code == Exit.FAILED
    assert f"abandoned deaf (job {id}, " in err
    assert summary["runnerResults"]["outbox"]["failed"]
    (attempt,) = scene.database.read(scene.store.attempts.of(id))
    assert attempt.kind == "fail"
    assert "exceeded the tick's time budget" in str(attempt.error)
    assert scene.state(id) == "failed"
    assert re.search(r"Failed .* on the first attempt.*exceeded the tick's time budget", show(id))


def test_a_job_that_outlived_a_tick_waits_for_the_next_and_says_why(
    folder: Path, scene: Scene
) -> None:
    id = scene.start("deaf", input="{}")
    code, _, _ = cut_tick("app")
    assert code == Exit.FAILED
    assert scene.state(id) == "pending"
    assert re.search(r"the last attempt failed.*exceeded the tick's time budget", show(id))


def test_a_tick_does_not_wait_for_a_cycle_that_does_not_stop(folder: Path, scene: Scene) -> None:
    asked_for("cycles", "thread")
    code, err, summary = cut_tick("cycles")
    assert code == Exit.FAILED
    assert "abandoned what did not stop: thread" in err
    assert summary["runnerResults"]["thread"]["failed"]
    outcome, error = last_run(scene, "thread")
    assert outcome == "aborted"
    assert "was abandoned" in str(error)


@pytest.mark.parametrize("url", ["sqlite_url"], indirect=True)
@pytest.mark.parametrize("what", ["job", "cycle"])
def test_a_tick_ends_even_when_its_event_loop_is_blocked(
    folder: Path, scene: Scene, what: str
) -> None:
    if what == "job":
        scene.start("blocking", input="{}")
    else:
        asked_for("loops", "loop")
    code, err, _ = cut_tick("app" if what == "job" else "loops")
    assert code == Exit.FAILED
    assert f"abandoned what did not stop: {'outbox' if what == 'job' else 'loop'}" in err


@pytest.mark.parametrize(
    ("url", "spec", "named"),
    [
        ("sqlite_url", "cycles", "runner thread"),
        ("postgres_url", "cycles", "runner thread"),
        ("sqlite_url", "app", "deaf (job"),
        ("postgres_url", "app", "deaf (job"),
        # A blocked loop has nothing to do with the database.
        ("sqlite_url", "loops", "runner loop"),
    ],
    indirect=["url"],
)
def test_a_worker_that_is_told_to_end_ends_and_says_what_it_left(
    folder: Path, scene: Scene, spec: str, named: str
) -> None:
    scene.start("deaf", input="{}")
    env = {"WORKER_SHUTDOWN_TIMEOUT_MS": str(int(CAP_S * 1000)), "EVERY": "1s"}
    with Command("worker", f"deafness:{spec}", env=env) as command:
        _, err = end_of(command, CAP_S, signal.SIGTERM)
    assert command.process.returncode == Exit.FAILED
    assert f"abandoned what did not stop: {named}" in err
    if spec == "cycles":
        outcome, error = last_run(scene, "thread")
        assert (outcome, str(error).partition(";")[0]) == ("aborted", "aborted: shutdown")

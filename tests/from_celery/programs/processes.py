"""What Celery's page on workers says of their processes: which are killed, told to stop, or run a task too long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.docs.snippets import ROOT
from tests.from_celery import prefork
from tests.from_celery.programs.shop import Check, behaviours_of
from tests.notify import leash
from tests.support.until import PATIENCE_S, wait_until

PROCESSES: dict[str, Check] = {}
behaviour = behaviours_of("Workers", PROCESSES)

PROCESS_DIFFERENCES: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {}
"""What differs where processes are killed, as `DIFFERENCES` has the rest."""

C = TypeVar("C", bound=Callable[..., Any])

_COMMANDS = {
    "celery": (
        *("celery", "-A", f"{prefork.__name__}:app", "worker", "--pool", "prefork"),
        *("--concurrency", "2", "--loglevel", "WARNING"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    ),
    "holdfast_celery": (
        *("holdfast", "worker", f"{prefork.__name__}:app", "--processes", "2", "--slots", "1"),
    ),
}
"""How a worker with two processes is started on each side, one task at a time in each."""

_SOON_MS = "3000"
"""The lease of a claim: after so long at most, what a killed worker held runs again."""


class Worker:
    """A worker with its processes, which end with the test whatever way that ends."""

    def __init__(self, crew: ProcessCrew) -> None:
        own = {
            **os.environ,
            prefork.PACKAGE: crew.package,
            prefork.FOLDER: str(crew.folder),
            prefork.URL: crew.url,
            "PYTHONPATH": str(ROOT),
            "OUTBOX_LEASE_DURATION_MS": _SOON_MS,
            "HOLDFAST_POLL_MS": "100",
        }
        command = (sys.executable, "-m", *_COMMANDS[crew.package])
        with (crew.folder / "worker.log").open("a") as log:
            self._leash = subprocess.Popen(
                [sys.executable, "-I", leash.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=own,
                cwd=crew.folder,
            )
        assert self._leash.stdout is not None
        self.pid = int(self._leash.stdout.readline())

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to the process that has the others."""
        os.kill(self.pid, number)

    def wait(self) -> None:
        """Wait until all of it has ended."""
        self._leash.wait(PATIENCE_S)

    def kill(self) -> None:
        """Kill all of its processes with -9."""
        self._leash.communicate()


class ProcessCrew:
    """The tasks of a side, and a worker that runs them in processes of its own."""

    def __init__(self, package: str, folder: Path, url: str) -> None:
        self.package, self.folder, self.url = package, folder, url
        self.app = prefork.make_app(package, folder, url)
        self.notes = prefork.Notes(folder)
        self.tasks = self.app.tasks
        self.control = self.app.control
        self._receiver = prefork.note_revoked(self.module("signals"), self.notes)
        self.worker = self._start()

    def _start(self) -> Worker:
        """Start a worker, and wait until it hears what it is told: Celery's begins with tasks before."""
        worker = Worker(self)
        self.until(lambda: self.control.ping(timeout=0.3))
        return worker

    def close(self) -> None:
        """End the worker."""
        if self.package == "celery":
            # Its results take leave of their backend when they are collected, which Redis may not live to see.
            self.app.backend.remove_pending_result = lambda result: None
        self.worker.kill()
        self.module("signals").task_revoked.disconnect(self._receiver)
        self.app.close()

    def module(self, name: str) -> Any:
        """A module of the side."""
        return import_module(f"{self.package}.{name}")

    def get(self, result: Any, **options: Any) -> Any:
        """The value of what was started."""
        return result.get(timeout=PATIENCE_S, interval=0.01, **options)

    def error(self, result: Any) -> str:
        """The name of what a task ended with."""
        return type(self.get(result, propagate=False)).__name__

    def settle(self, name: str) -> None:
        """Have a worker run a task that comes after all others."""
        self.get(self.tasks["note"].delay(name))

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait for something; where it does not come, show what the worker has said."""
        return wait_until(condition, (self.folder / "worker.log").read_text)

    def begun(self, name: str, times: int = 1) -> int:
        """The process that began a task, once it has begun so many times."""
        return int(self.until(lambda: self.notes.read("begun", name)[times - 1 :])[0])

    def hold(self, name: str, task: str = "hold") -> Any:
        """A task that runs until its gate is opened."""
        result = self.tasks[task].delay(name)
        self.begun(name)
        return result

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Start another worker if the block has ended this one."""
        try:
            yield
        finally:
            self.worker.kill()
            self.worker = self._start()


def difference(says: str, *, celery: Any, here: Any) -> Callable[[C], C]:
    """Add a program that ends otherwise here, and with what on each side."""

    def add(act: C) -> C:
        PROCESS_DIFFERENCES[says] = (act, celery, here)
        return act

    return add


@behaviour("revoke with terminate ends a task that runs")
def _(crew: ProcessCrew) -> None:
    result = crew.hold("terminated")
    crew.control.revoke(result.id, terminate=True)
    with pytest.raises(crew.module("exceptions").TaskRevokedError):
        crew.get(result)
    assert result.state == "REVOKED"
    crew.notes.open("terminated")


@behaviour("task_revoked tells of a task that is terminated, with the signal, once")
def _(crew: ProcessCrew) -> None:
    result = crew.hold("told of")
    crew.control.revoke(result.id, terminate=True, signal="SIGTERM")
    crew.until(lambda: result.state == "REVOKED")
    crew.until(lambda: crew.notes.read("terminated", "told of", int(signal.SIGTERM)))
    crew.notes.open("told of")
    crew.settle("after it was told")
    assert len(crew.notes.read("terminated", "told of", int(signal.SIGTERM))) == 1


@behaviour("after a task was terminated, its worker runs others")
def _(crew: ProcessCrew) -> None:
    results = [crew.hold(each) for each in ("one", "two")]
    crew.control.revoke([each.id for each in results], terminate=True, signal="SIGKILL")
    crew.until(lambda: [each.state for each in results] == ["REVOKED"] * 2)
    crew.notes.open("one")
    crew.notes.open("two")
    crew.settle("after both")


@behaviour("a result terminates its task")
def _(crew: ProcessCrew) -> None:
    result = crew.hold("by its result")
    result.revoke(terminate=True, signal="SIGTERM")
    crew.until(lambda: result.state == "REVOKED")
    crew.notes.open("by its result")


@behaviour("terminate ends a task that runs")
def _(crew: ProcessCrew) -> None:
    result = crew.hold("by terminate")
    crew.control.terminate(result.id)
    crew.until(lambda: result.state == "REVOKED")
    crew.notes.open("by terminate")


@behaviour("a group that is terminated ends what runs of it, and what waits")
def _(crew: ProcessCrew) -> None:
    group = crew.module("canvas").group
    names = ["member 1", "member 2", "member 3"]
    result = group(crew.tasks["hold"].s(each) for each in names)()
    crew.until(lambda: sum(bool(crew.notes.read("begun", each)) for each in names) == 2)
    result.revoke(terminate=True)
    crew.until(lambda: [each.state for each in result] == ["REVOKED"] * 3)
    for each in names:
        crew.notes.open(each)


@behaviour("a task that is longer than its time_limit fails")
def _(crew: ProcessCrew) -> None:
    result = crew.hold("too long", "limited")
    assert crew.error(result) == "TimeLimitExceeded"
    assert (result.state, str(prefork.LIMIT_S)[:1] in str(result.result)) == ("FAILURE", True)
    crew.notes.open("too long")
    crew.settle("after the limit")
    assert len(crew.notes.read("begun", "too long")) == 1


@behaviour("a task that is shorter than its time_limit completes")
def _(crew: ProcessCrew) -> None:
    crew.notes.open("short")
    assert crew.get(crew.tasks["limited"].delay("short")) == "short done"


@behaviour("a late acknowledged task whose process is killed runs again")
def _(crew: ProcessCrew) -> None:
    result = crew.tasks["dies_late"].delay("late")
    first, second = crew.begun("late"), crew.begun("late", 2)
    assert first != second
    assert crew.get(result) == "late done"


@behaviour("a worker replaces a process that was killed")
def _(crew: ProcessCrew) -> None:
    crew.tasks["dies_late"].delay("replaced")
    crew.begun("replaced", 2)
    results = [crew.hold(each) for each in ("in one", "in the other")]
    assert crew.begun("in one") != crew.begun("in the other")
    crew.notes.open("in one")
    crew.notes.open("in the other")
    assert [crew.get(each) for each in results] == ["in one done", "in the other done"]


def _is_revoked_and_retries(crew: ProcessCrew, task: str) -> None:
    result = crew.hold(task, task)
    crew.control.revoke(result.id)
    crew.settle(f"after {task} was revoked")
    assert result.state != "REVOKED" or crew.package == "celery"
    crew.notes.open(task)
    crew.until(lambda: crew.notes.read("ended", task))
    crew.until(lambda: result.state == "REVOKED")
    crew.settle(f"after {task}")
    assert len(crew.notes.read("begun", task)) == 1
    assert crew.error(crew.app.AsyncResult(result.id)) == "TaskRevokedError"


@behaviour("a task that is revoked while it runs, and then retries, does not run again")
def _(crew: ProcessCrew) -> None:
    _is_revoked_and_retries(crew, "retries")


@behaviour("a task that is revoked while it runs is not retried for an error either")
def _(crew: ProcessCrew) -> None:
    _is_revoked_and_retries(crew, "retries_itself")


@behaviour("a worker that is told to stop lets its tasks end")
def _(crew: ProcessCrew) -> None:
    with crew.replaced():
        result = crew.hold("warm")
        crew.worker.tell(signal.SIGTERM)
        crew.notes.open("warm")
        crew.worker.wait()
        assert crew.get(result) == "warm done"


@behaviour("what a stopped worker did not begin is run by the next one")
def _(crew: ProcessCrew) -> None:
    with crew.replaced():
        held = [crew.hold(each) for each in ("left", "right")]
        waiting = crew.tasks["note"].delay("next")
        crew.worker.tell(signal.SIGTERM)
        crew.notes.open("left")
        crew.notes.open("right")
        crew.worker.wait()
        assert [each.state for each in held] == ["SUCCESS"] * 2
    assert crew.get(waiting) == "next"
    assert len(crew.notes.read("begun", "next")) == 1


@behaviour("a worker sends its signals in order")
def _(crew: ProcessCrew) -> None:
    with crew.replaced():
        crew.settle("before the end")
        crew.worker.tell(signal.SIGTERM)
        crew.worker.wait()
    sent = crew.notes.order("signal")
    assert set(sent) == set(prefork.SIGNALS)
    for first, second in (
        ("setup_logging", "worker_ready"),
        ("worker_init", "worker_ready"),
        ("import_modules", "worker_ready"),
        ("worker_ready", "worker_shutting_down"),
        ("worker_shutting_down", "worker_shutdown"),
    ):
        assert sent.index(first) < sent.index(second)


@behaviour("each process that runs tasks has had its own signal")
def _(crew: ProcessCrew) -> None:
    held = [crew.hold(each) for each in ("in this", "in that")]
    pids = {crew.begun(each) for each in ("in this", "in that")}
    assert pids <= set(crew.notes.read("signal", "worker_process_init"))
    for each in ("in this", "in that"):
        crew.notes.open(each)
    assert [crew.get(each) for each in held] == ["in this done", "in that done"]


@difference(
    "A task that is revoked with `terminate` is not killed: it goes on to its next `checkpoint()`.",
    celery=False,
    here=True,
)
def _(crew: ProcessCrew) -> Any:
    result = crew.hold("to its end")
    # With SIGTERM, a process of Celery's sometimes ends its task first.
    crew.control.revoke(result.id, terminate=True, signal="SIGKILL")
    crew.until(lambda: result.state == "REVOKED")
    crew.notes.open("to its end")
    crew.settle("after it")
    with suppress(AssertionError):
        wait_until(lambda: crew.notes.read("ended", "to its end"), patience_s=1)
    return bool(crew.notes.read("ended", "to its end"))


@difference(
    "A task whose process is killed runs again, also without `acks_late`.",
    celery="WorkerLostError",
    here="killed done",
)
def _(crew: ProcessCrew) -> Any:
    return _outcome(crew, crew.tasks["dies"].delay("killed"))


@difference("A time limit counts as a retry of a task that has some.", celery=1, here=2)
def _(crew: ProcessCrew) -> Any:
    result = crew.hold("limited twice", "limited_again")
    assert crew.error(result) == "TimeLimitExceeded"
    crew.notes.open("limited twice")
    return len(crew.notes.read("begun", "limited twice"))


@difference(
    "What a worker ran that was killed with all its processes runs on another one, instead of being lost.",
    celery="STARTED",
    here="SUCCESS",
)
def _(crew: ProcessCrew) -> Any:
    with crew.replaced():
        result = crew.hold("lost")
        crew.worker.kill()
        crew.notes.open("lost")
    crew.settle("after the loss")
    if crew.package != "celery":
        crew.get(result)
    return result.state


@difference(
    "`time_limit` and `soft_time_limit` are refused for a call.",
    celery="TimeLimitExceeded",
    here="CeleryUnsupported",
)
def _(crew: ProcessCrew) -> Any:
    try:
        result = crew.tasks["hold"].apply_async(("limited call",), time_limit=prefork.LIMIT_S)
    except Exception as error:
        return type(error).__name__
    return crew.error(result)


def _outcome(crew: ProcessCrew, result: Any) -> Any:
    found = crew.get(result, propagate=False)
    return type(found).__name__ if isinstance(found, Exception) else found

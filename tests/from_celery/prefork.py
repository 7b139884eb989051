"""Tasks that leave notes in a folder and wait there to be let go, for workers in processes of their own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.support.until import PATIENCE_S

PACKAGE, FOLDER, URL = "CREW_PACKAGE", "CREW_FOLDER", "CREW_URL"
"""Variables of a worker's process: whose tasks it runs, where they leave notes, and the broker or the database."""

LIMIT_S = 1.0


def make_app(package: str, folder: Path, url: str) -> Any:
    """An application of Celery's with Redis, or of ours on a database, and its tasks."""
    celery = import_module(package)
    if package == "celery":
        app = celery.Celery("crew", broker=url, backend=url, set_as_current=False)
        app.conf.broker_connection_retry_on_startup = True
    else:
        app = celery.Celery("crew", url=url)
    app.conf.task_track_started = True
    add_tasks(app, Notes(folder), {"shared": False} if package == "celery" else {})
    return app


class Notes:
    """Lines that tasks leave in a file, each with the process that wrote it, and the gates that they wait at."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "notes"

    def add(self, *words: object) -> None:
        """Leave a line."""
        with self._file.open("a") as file:
            file.write(f"{' '.join(map(str, words))} {os.getpid()}\n")

    def read(self, *words: object) -> list[int]:
        """Return the processes that left a line of these words."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        found = (line.rpartition(" ") for line in lines)
        return [int(pid) for text, _, pid in found if text == " ".join(map(str, words))]

    def order(self, kind: str) -> list[str]:
        """Return the words that follow this one, in the order in which they were first left."""
        lines = (line.split() for line in self._file.read_text().splitlines())
        return list(dict.fromkeys(words[1] for words in lines if words[0] == kind))

    def open(self, name: str) -> None:
        """Let the tasks go that wait by this name, now and later."""
        (self._folder / f"gate.{name}").touch()

    def wait(self, name: str) -> None:
        """Wait to be let go: in short sleeps, as a task that is cut off has to notice it."""
        ends_at = time.monotonic() + PATIENCE_S
        while not (self._folder / f"gate.{name}").exists():
            assert time.monotonic() < ends_at, f"nobody opened {name}"
            time.sleep(0.01)


def add_tasks(app: Any, notes: Notes, apart: dict[str, Any]) -> None:
    """Add the tasks of both sides."""

    def hold(name: str) -> str:
        notes.add("begun", name)
        notes.wait(name)
        notes.add("ended", name)
        return f"{name} done"

    def die_once(name: str) -> str:
        notes.add("begun", name)
        if len(notes.read("begun", name)) == 1:
            # As a process does that the kernel ends for want of memory.
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{name} done"

    app.task(name="hold", **apart)(hold)
    app.task(name="dies", **apart)(die_once)
    app.task(name="dies_late", acks_late=True, reject_on_worker_lost=True, **apart)(die_once)
    app.task(name="limited", time_limit=LIMIT_S, **apart)(hold)
    app.task(
        name="limited_again",
        time_limit=LIMIT_S,
        autoretry_for=(OSError,),
        max_retries=1,
        default_retry_delay=0,
        **apart,
    )(hold)

    def retry(self: Any, name: str) -> None:
        hold(name)
        raise self.retry(countdown=0)

    def fail(name: str) -> None:
        hold(name)
        raise OSError("away")

    def note(name: str) -> str:
        notes.add("begun", name)
        return name

    app.task(name="retries", bind=True, max_retries=3, **apart)(retry)
    app.task(name="retries_itself", autoretry_for=(OSError,), default_retry_delay=0, **apart)(fail)
    app.task(name="note", **apart)(note)


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(name)
    package, folder = os.environ[PACKAGE], Path(os.environ[FOLDER])
    note_signals(import_module(f"{package}.signals"), Notes(folder))
    note_revoked(import_module(f"{package}.signals"), Notes(folder))
    return make_app(package, folder, os.environ[URL])


SIGNALS = (
    *("import_modules", "setup_logging", "worker_init", "worker_ready", "worker_process_init"),
    *("worker_shutting_down", "worker_process_shutdown", "worker_shutdown"),
)


def note_revoked(signals: Any, notes: Notes) -> Callable[..., None]:
    """Leave a line for each task that was terminated, in the worker or in the process that revokes it."""

    def receive(request: Any, terminated: bool, signum: int | None, **_: Any) -> None:
        if terminated:
            notes.add("terminated", request.args[0], int(signum or 0))

    signals.task_revoked.connect(receive, weak=False)
    return receive


def note_signals(signals: Any, notes: Notes) -> None:
    """Leave a line for each signal of this worker."""
    for name in SIGNALS:

        def receive(name: str = name, **_: Any) -> None:
            notes.add("signal", name)

        getattr(signals, name).connect(receive, weak=False)

"""The subject of the bench: `holdfast worker` as people start it, in a process, at its defaults, its log in a file.

Its progress is read from outside. While a backlog drains, only the outcome of the last job is looked up by its key;
when that is there, the outcomes are counted. Times are the database's own, from the first handler's start to the last
recorded outcome, so that the start of a process does not count and everything else does.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast.settings.load import PREFIXES
from holdfast_bench.handwritten import SQL, SQLITE
from holdfast_bench.machine import cpu_seconds, family, kill_all, memory_bytes
from holdfast_bench.workload import TYPES_VARIABLE, BacklogIds

PATIENCE_S = 60
END_OF_LOG = 2000
LOOK_S = 0.02
COUNT_S = 0.05
SLOWEST_S = 600.0


def command_line(*words: str) -> list[str]:
    """Return how this installation's `holdfast` is run."""
    script = Path(sys.executable).with_name("holdfast")
    return [*([str(script)] if script.exists() else [sys.executable, "-m", "holdfast"]), *words]


def clean_environment() -> dict[str, str]:
    """Return this process's variables without any setting of ours."""
    return {name: each for name, each in os.environ.items() if not name.startswith(PREFIXES)}


@dataclass(frozen=True, slots=True)
class WorkerCommand:
    """What is started. What people leave out is left out."""

    url: str
    types: tuple[str, ...] = ("noop",)
    options: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def argv(self) -> list[str]:
        """The command line."""
        return command_line("worker", "holdfast_bench.worker_app:app", *self.options)

    @property
    def environment(self) -> dict[str, str]:
        """The variables, with those settings of ours that were asked for."""
        ours = {"HOLDFAST_URL": self.url, TYPES_VARIABLE: ",".join(self.types)}
        return clean_environment() | ours | dict(self.settings)


@dataclass(frozen=True, slots=True)
class BareWorkerCommand(WorkerCommand):
    """The worker object without the command around it."""

    @property
    def argv(self) -> list[str]:
        """The command line."""
        return [sys.executable, "-m", "holdfast_bench.worker_app"]


class RunningWorker:
    """One started command. Leaving the block stops it, and raises when it did not end well."""

    def __init__(self, command: WorkerCommand) -> None:
        """Start it in an empty folder, where no settings file can be found."""
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-bench-")
        self.log = Path(self._folder.name) / "worker.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command.argv,
                cwd=self._folder.name,
                env=command.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> RunningWorker:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            code = self.stop()
            if code and kind is None:
                raise RuntimeError(f"the worker exited with {code}:\n{self._end_of_log()}")
        finally:
            self._folder.cleanup()

    def check(self) -> None:
        """Raise when it has ended by itself."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the worker exited on its own:\n{self._end_of_log()}")

    def stop(self) -> int:
        """Ask it to stop, as a service manager does; kill it when it does not. Return its exit code."""
        pids = self.family()
        self._process.terminate()
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            kill_all(pids)
            return self._process.wait()

    def cpu_seconds(self) -> float:
        """Return the processor time it has used so far, with its children."""
        return sum(cpu_seconds(pid) for pid in self.family())

    def memory_bytes(self) -> int:
        """Return how much memory it has, with its children."""
        return memory_bytes(self.family())

    def family(self) -> list[int]:
        """Return its processes, the one that was started first."""
        return family(self._process.pid)

    def _end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-END_OF_LOG:]


@dataclass(frozen=True, slots=True)
class Span:
    """Jobs that ended, and the seconds from the first one's start to the last one's outcome."""

    jobs: int
    seconds: float

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / max(self.seconds, 1e-6)


class DrainProgress(Protocol):
    """Reads how far the jobs of a database are."""

    def close(self) -> None:
        """Close the connection."""

    def has_ended(self, id: str) -> bool:
        """Whether this job's outcome is recorded."""

    def span(self) -> Span:
        """Count what has ended since this was opened."""


class _PostgresProgress:
    def __init__(self, url: str, types: Sequence[str]) -> None:
        import psycopg

        self._connection = psycopg.connect(url, autocommit=True)
        self._types = list(types)
        (self._since,) = self._connection.execute("select clock_timestamp()").fetchall()[0]

    def close(self) -> None:
        self._connection.close()

    def has_ended(self, id: str) -> bool:
        return bool(self._connection.execute(SQL["has_ended"], [id]).rowcount)

    def span(self) -> Span:
        given = [self._since, self._types]
        ((count, seconds),) = self._connection.execute(SQL["span"], given).fetchall()
        return Span(count, seconds)


class _SqliteProgress:
    def __init__(self, url: str, types: Sequence[str]) -> None:
        self._connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        self._types = msgspec.json.encode(list(types)).decode()

    def close(self) -> None:
        self._connection.close()

    def has_ended(self, id: str) -> bool:
        return bool(self._row("sqlite_has_ended", id)[0])

    def span(self) -> Span:
        count, us = self._row("sqlite_span", self._types)
        return Span(count, us / 1e6)

    def _row(self, statement: str, parameter: str) -> tuple[Any, ...]:
        row: tuple[Any, ...] = self._connection.execute(SQLITE[statement], (parameter,)).fetchone()
        return row


def open_progress(url: str, types: Sequence[str]) -> DrainProgress:
    """Follow jobs of these types that end from now on."""
    is_sqlite = url.startswith("sqlite:")
    return _SqliteProgress(url, types) if is_sqlite else _PostgresProgress(url, types)


def wait_for(progress: DrainProgress, id: str, check: Callable[[], None]) -> None:
    """Wait for one job's outcome; `check` raises when nothing works on it any more."""
    _wait_until(lambda: progress.has_ended(id), LOOK_S, check)


def wait_for_all(progress: DrainProgress, last: str, jobs: int, check: Callable[[], None]) -> Span:
    """Wait for as many outcomes, of which `last` is one of the last; return what it took."""
    wait_for(progress, last, check)
    _wait_until(lambda: progress.span().jobs >= jobs, COUNT_S, check)
    span = progress.span()
    if span.jobs != jobs:
        raise RuntimeError(f"{span.jobs} outcomes of {jobs} jobs")
    return span


def _wait_until(happened: Callable[[], bool], pause: float, check: Callable[[], None]) -> None:
    deadline = time.monotonic() + SLOWEST_S
    while not happened():
        check()
        if time.monotonic() > deadline:
            raise RuntimeError(f"not done after {SLOWEST_S:.0f} s")
        time.sleep(pause)


@dataclass(frozen=True, slots=True)
class DrainResult:
    """What a command did with a backlog, and the processor time it cost a job, in µs.

    The worker's is counted from its first outcome on, so that its start is left out. The server's is that of its
    sessions; it is 0 where the server's processes cannot be seen.
    """

    span: Span
    worker_us: float
    server_us: float

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.span.rate


def drain(command: WorkerCommand, backlog: BacklogIds, jobs: int) -> DrainResult:
    """Let a command drain a backlog, and stop it."""
    with (
        closing(open_progress(command.url, command.types)) as progress,
        RunningWorker(command) as running,
    ):
        wait_for(progress, backlog.first, running.check)
        before, ended = running.cpu_seconds(), progress.span().jobs
        span = wait_for_all(progress, backlog.last, jobs, running.check)
        worker = (running.cpu_seconds() - before) / max(1, jobs - ended)
        return DrainResult(span, worker * 1e6, _server_seconds(command.url) / jobs * 1e6)


def _server_seconds(url: str) -> float:
    if url.startswith("sqlite:"):
        return 0.0
    from holdfast_bench.servers import session_seconds

    return sum((session_seconds(url) or {}).values())

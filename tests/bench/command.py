"""The subject of the bench: `holdfast worker` as people start it, in a process, at its defaults, its log in a file."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil

from holdfast.settings.sources import PREFIXES
from tests.bench import bare_worker
from tests.bench.handlers import TYPES_VARIABLE
from tests.bench.machine import cpu_seconds
from tests.bench.progress import Span, open_store, wait_for, wait_for_all
from tests.bench.server import session_seconds
from tests.bench.site import Filled

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60
END_OF_LOG = 2000


@dataclass(frozen=True, slots=True)
class Command:
    """What is started. What people leave out is left out."""

    url: str
    types: tuple[str, ...] = ("noop",)
    options: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def argv(self) -> list[str]:
        """The command line: the installed `holdfast` of this environment."""
        holdfast = Path(sys.executable).with_name("holdfast")
        return [str(holdfast), "worker", "tests.bench.app:app", *self.options]

    @property
    def environment(self) -> dict[str, str]:
        """This process's variables without any setting of ours, and those that were asked for."""
        kept = {name: each for name, each in os.environ.items() if not name.startswith(PREFIXES)}
        ours = {"HOLDFAST_URL": self.url, TYPES_VARIABLE: ",".join(self.types)}
        return kept | ours | dict(self.settings)


@dataclass(frozen=True, slots=True)
class BareWorker(Command):
    """The worker object without the command around it, with the claims that suited it best by hand."""

    @property
    def argv(self) -> list[str]:
        """The command line."""
        spec = msgspec.json.encode(bare_worker.Spec(self.url, self.types)).decode()
        return [sys.executable, "-m", "tests.bench.bare_worker", spec]


class Running:
    """One started command. Leaving the block ends it in order, and complains when it did not end well."""

    def __init__(self, command: Command) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-bench-")
        self.log = Path(self._folder.name) / "worker.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command.argv,
                cwd=ROOT,
                env=command.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            code = self.end()
            if code and kind is None:
                raise RuntimeError(f"the worker ended with {code}:\n{self._end_of_log()}")
        finally:
            self._folder.cleanup()

    def check(self) -> None:
        """Complain when it has ended by itself."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the worker ended by itself:\n{self._end_of_log()}")

    def end(self) -> int:
        """Ask it to end, as a service manager does; kill it when it does not. Return its exit code."""
        family = self.family()
        self._process.terminate()
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            for each in family:
                each.kill()
            return self._process.wait()

    def cpu_seconds(self) -> float:
        """Return the processor time it has used so far, with its children."""
        return sum(cpu_seconds(each.pid) for each in self.family())

    def memory_bytes(self) -> int:
        """Return how much memory it has, with its children."""
        return sum(each.memory_info().rss for each in self.family())

    def family(self) -> list[psutil.Process]:
        """Return its processes, the one that was started first."""
        try:
            process = psutil.Process(self._process.pid)
            return [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-END_OF_LOG:]


@dataclass(frozen=True, slots=True)
class Drained:
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


def drain(command: Command, filled: Filled, jobs: int) -> Drained:
    """Let a command drain a backlog, and end it."""
    with closing(open_store(command.url, command.types)) as store, Running(command) as running:
        wait_for(store, filled.first, running.check)
        before, ended = running.cpu_seconds(), store.span().jobs
        span = wait_for_all(store, filled.last, jobs, running.check)
        worker = (running.cpu_seconds() - before) / max(1, jobs - ended)
        return Drained(span, worker * 1e6, _server_seconds(command.url) / jobs * 1e6)


def _server_seconds(url: str) -> float:
    if url.startswith("sqlite:"):
        return 0.0
    return sum((session_seconds(url) or {}).values())

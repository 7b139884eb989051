"""Measures peers and ours in turn, all in the same way and on the same server.

A handler writes its job's number and the time into a file; that it was called is all the contest needs to know of a
queue. A rate is the number of jobs over the time from the first handler's call until the queue says that nothing is
left. A latency is the time from the call that starts a job, its commit included, to the handler's call. Processor time
is that of the worker's processes, and of the sessions that the database has when a figure was taken. Of durable
functions that have nothing but steps, a rate is that of the steps; one alone lasts from its call to the next one's.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from holdfast.cli.console import print_info
from holdfast_bench.machine import cpu_seconds, family
from holdfast_bench.measurement import Result, Scale, make_result
from holdfast_bench.peer_queues import (
    ADAPTERS,
    OURS,
    OURS_SQLITE,
    Handlers,
    Peer,
    PeerMissing,
    adapter_command,
)
from holdfast_bench.subject import PATIENCE_S, clean_environment
from holdfast_bench.workload import INPUT, IO_SECONDS, STAMP, count_stamps

if TYPE_CHECKING:
    from holdfast_bench.servers import BenchServer

PeerMode = Literal["defaults", "best"]
MODES: tuple[PeerMode, ...] = ("defaults", "best")
LOOK_S = 0.02
WARM_UP = 10
AGAINST: dict[str, tuple[str, str, PeerMode, str, float, float]] = {
    "peer_latency": ("p50_ms", "ms", "defaults", "pgqueuer", 1.0, 0.9),
    "peer_start_one": ("start_one", "jobs/s", "defaults", "pgqueuer", 1.0, 1.2),
    "peer_two_processes": ("two_processes", "jobs/s", "defaults", "graphile-worker", 1.15, 1.4),
    # Fifty functions at a time, as theirs.
    "peer_steps_dbos": ("steps", "steps/s", "best", "dbos", 20.0, 40.0),
    "peer_steps_absurd": ("steps", "steps/s", "best", "absurd", 5.0, 10.0),
    "peer_events": ("events", "events/s", "defaults", "faststream-outbox", 5.0, 10.0),
}
"""What ours is held to beside another queue: the column, its unit, our settings, the queue, floor and goal."""
FUNCTIONS, STEPS = 50, 20
"""At least so many durable functions are run, with so many steps each."""
CALL_S = 600.0
"""How long an adapter may take to set up or to start jobs."""


class PeerRow(msgspec.Struct):
    """What was found of one contender: medians of the rounds, and how far they differed; nothing where it cannot."""

    peer: str
    version: str
    mode: PeerMode
    server: str
    figures: dict[str, float]
    spread: dict[str, float]
    notes: list[str]

    @property
    def is_ours(self) -> bool:
        """Whether it is Holdfast's."""
        return self.peer == OURS.name


@dataclass(slots=True)
class Contender:
    """One queue with one kind of settings in one place."""

    peer: Peer
    mode: PeerMode
    command: list[str]
    server: BenchServer | None
    samples: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """What it is called while it runs."""
        place = "SQLite" if self.server is None else self.server.name
        return f"{self.peer.name} ({self.mode}, {place})"

    def row(self) -> PeerRow:
        """Sum up."""
        medians = {name: statistics.median(each) for name, each in self.samples.items()}
        return PeerRow(
            self.peer.name,
            self.peer.version,
            self.mode,
            "SQLite" if self.server is None else self.server.name,
            {
                name: round(each, 0 if each >= 10 and not name.endswith("ms") else 2)
                for name, each in medians.items()
            },
            {
                name: round((max(each) - min(each)) / (medians[name] or 1), 3)
                for name, each in self.samples.items()
            },
            list(dict.fromkeys(self.notes)),
        )


def compare(
    peers: Sequence[Peer], servers: Sequence[BenchServer], scale: Scale, python: str | None = None
) -> tuple[list[Contender], dict[str, str]]:
    """Measure peers and ours round by round; return them, and why a peer was skipped."""
    skipped: dict[str, str] = {}
    contenders: list[Contender] = []
    for peer in (*_ours_beside(peers), *peers):
        try:
            command = adapter_command(peer, python)
        except PeerMissing as error:
            skipped[peer.name] = str(error)
            print_info(f"skipped: {peer.name}: {error}")
            continue
        places: Sequence[BenchServer | None] = servers if peer.store == "postgresql" else (None,)
        contenders += [Contender(peer, mode, command, at) for at in places for mode in MODES]
    for number in range(scale.side_rounds):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            measure_once(contender, scale)
            latest = {name: round(each[-1], 2) for name, each in contender.samples.items()}
            print_info(f"round {number + 1}: {contender.label}: {latest}")
    return contenders, skipped


def against_peers(contenders: Sequence[Contender]) -> list[Result]:
    """Hold ours to other queues at their best, on each server."""
    results = []
    for name, (column, unit, our_mode, peer, floor, goal) in AGAINST.items():
        for server in dict.fromkeys(each.server for each in contenders if each.server):
            ours, theirs = (
                [
                    sample
                    for each in contenders
                    if (each.peer.name, each.mode, each.server) == (queue, mode, server)
                    for sample in each.samples.get(column, ())
                ]
                for queue, mode in ((OURS.name, our_mode), (peer, "best"))
            )
            # A round that failed has no counterpart.
            if ours and len(ours) == len(theirs):
                result = make_result(name, unit, ours, theirs, against=peer, floor=floor, goal=goal)
                results.append(msgspec.structs.replace(result, server=server.name))
    return results


def _ours_beside(peers: Sequence[Peer]) -> list[Peer]:
    """Return ours on each store that a peer is measured on."""
    stores = {each.store for each in peers}
    return [each for each in (OURS, OURS_SQLITE) if each.store in stores]


def measure_once(contender: Contender, scale: Scale) -> None:
    """Take all figures once; one that fails is noted and left empty."""
    longest = min(60.0, max(20.0, scale.peer_seconds * 10))
    with _database_of(contender, longest) as place:
        if not _took(contender, place.setup):
            return
        jobs = max(100, min(scale.jobs, int(contender.peer.pace * scale.peer_seconds)))
        singles = max(50, min(jobs // 10, 2_000))
        figures: list[Callable[[], dict[str, float]]] = [
            # First, because a queue that was cut off has a backlog.
            lambda: place.lone_jobs(scale.lone_jobs),
            lambda: {"start_one": place.start("one", singles)},
            lambda: place.start_many(jobs),
            place.drain_with_costs,
            lambda: {"two_processes": place.refill(jobs * 2, processes=2)},
        ]
        if contender.peer.steps:
            functions = int(contender.peer.steps * scale.peer_seconds / STEPS)
            figures += [
                lambda: place.lone_step(scale.lone_jobs),
                lambda: place.steps(max(FUNCTIONS, functions)),
            ]
        if contender.peer.events:
            figures.append(
                lambda: place.events(max(100, int(contender.peer.events * scale.peer_seconds)))
            )
        for handlers in contender.peer.handlers:
            figures.append(
                lambda handlers=handlers: {  # type: ignore[misc]
                    f"io_{handlers}": place.refill(max(100, jobs // 2), handlers=handlers)
                }
            )
        for figure in figures:
            _took(contender, lambda figure=figure: place.keep(figure()))  # type: ignore[misc]


def _took(contender: Contender, act: Callable[[], None]) -> bool:
    try:
        act()
    except Exception as error:
        text = str(error).strip()
        contender.notes.append((text.splitlines() or [type(error).__name__])[-1][:200])
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Workers:
    """Running workers of one contender."""

    processes: list[subprocess.Popen[bytes]]
    stamps: Path
    log: Path

    def check(self) -> None:
        """Raise when one has ended by itself."""
        if any(each.poll() is not None for each in self.processes):
            end = self.log.read_text(errors="replace").strip().splitlines()[-1:]
            raise RuntimeError(f"the worker exited on its own: {''.join(end)}")

    def cpu_seconds(self) -> float:
        """Return the processor time that they and their children have used."""
        return sum(cpu_seconds(pid) for each in self.processes for pid in family(each.pid))


class _Load(NamedTuple):
    """What a job of the next figure does: its kind of handler if it waits, and its steps, each stamped or not.

    Or that it is not a job but an event.
    """

    handlers: Handlers | None = None
    steps: int = 0
    is_stamped: bool = False
    is_event: bool = False


class _PeerDatabase:
    """A fresh database of one contender, and what was started in it."""

    def __init__(self, contender: Contender, url: str, folder: Path, longest: float) -> None:
        self._contender = contender
        self._longest = longest
        self._url = url
        self._folder = folder
        self._waiting = 0
        self._files = 0
        self._load = _Load()
        self._costs: dict[str, float] = {}

    def setup(self) -> None:
        """Make its tables."""
        self._call("setup")

    def keep(self, found: dict[str, float]) -> None:
        """Add samples to the contender's."""
        for name, value in found.items():
            self._contender.samples.setdefault(name, []).append(value)

    def start(self, action: str, count: int) -> float:
        """Start jobs; return how many a second."""
        answer = self._call(action, str(count))
        self._waiting += count
        return count / float(answer["seconds"])

    def start_many(self, count: int) -> dict[str, float]:
        """Start a backlog; what has no call for many starts one by one, and has no figure."""
        if self._contender.peer.bulk:
            return {"start_many": self.start("many", count)}
        self.start("one", count)
        return {}

    def refill(self, count: int, *, processes: int = 1, handlers: Handlers | None = None) -> float:
        """Start a backlog and drain it."""
        self._load = _Load(handlers)
        self.start_many(count)
        return self._drain(processes)

    def drain_with_costs(self) -> dict[str, float]:
        """Drain what waits; return how many jobs a second, and what one cost unless the drain was cut off."""
        jobs, server = self._waiting, self._contender.server
        before = server.wal_bytes() if server else 0
        rate = self._drain(1)
        if server and self._costs:
            self._costs["wal_bytes"] = (server.wal_bytes() - before) / jobs
        return {"drain": rate} | self._costs

    def _drain(self, processes: int) -> float:
        jobs, self._waiting = self._waiting, 0
        self._costs = {}
        with self._run_workers(processes) as workers:
            self._until(workers, 1, PATIENCE_S)
            deadline = time.monotonic() + self._longest
            begun, done = workers.cpu_seconds(), count_stamps(workers.stamps)
            while count_stamps(workers.stamps) < jobs or self._count_left():
                workers.check()
                if time.monotonic() > deadline:
                    return self._cut(workers.stamps)
                time.sleep(LOOK_S)
            ended = time.monotonic()
            worker = (workers.cpu_seconds() - begun) / max(1, jobs - done)
            self._costs = {"drain_worker_us": worker * 1e6}
            if (server := self._sessions_seconds()) is not None:
                self._costs["drain_server_us"] = server / jobs * 1e6
            first = _times(workers.stamps)[0]
        return jobs / (ended - first)

    def _cut(self, stamps: Path) -> float:
        """Settle for what was done in time; the next drain finds what is left."""
        times = _times(stamps)
        self._waiting = self._count_left()
        if len(times) < 2:
            raise RuntimeError(f"ran {len(times)} jobs in {self._longest:.0f} s")
        self._contender.notes.append(f"drains were cut off after {self._longest:.0f} s")
        return (len(times) - 1) / (times[-1] - times[0])

    def lone_jobs(self, count: int) -> dict[str, float]:
        """Start jobs at an even pace beside a worker that is up."""
        with self._run_workers(1) as workers:
            # A job before the others is done when the worker is up.
            self.start("one", 1)
            self._until(workers, 1, PATIENCE_S)
            worker, server = workers.cpu_seconds(), self._sessions_seconds()
            called = self._call("pace", str(count + WARM_UP))["called"]
            self._until(workers, count + WARM_UP + 1, self._longest)
            worker, later = workers.cpu_seconds() - worker, self._sessions_seconds()
            started = list(STAMP.iter_unpack(workers.stamps.read_bytes()))[1:]
        self._waiting = 0
        at = dict(started)
        waits = sorted(
            (at[number] - called[number]) / 1e6 for number in range(WARM_UP, len(called))
        )
        found = {
            "p50_ms": waits[len(waits) // 2],
            "p99_ms": waits[min(len(waits) - 1, int(len(waits) * 0.99))],
            "lone_worker_us": worker / len(called) * 1e6,
        }
        if server is not None and later is not None:
            found["lone_server_us"] = (later - server) / len(called) * 1e6
        return found

    def steps(self, functions: int) -> dict[str, float]:
        """Run durable functions; return their steps a second."""
        self._load = _Load(steps=STEPS)
        self.start_many(functions)
        rate = self._drain(1)
        if not self._costs:
            raise RuntimeError(f"did not end {functions * STEPS} steps in {self._longest:.0f} s")
        return {"steps": rate * STEPS}

    def events(self, count: int) -> dict[str, float]:
        """Publish events and have them handed over; return how many a second."""
        self._load = _Load(is_event=True)
        self.start("many", count)
        return {"events": self._drain(1)}

    def lone_step(self, count: int) -> dict[str, float]:
        """Run one durable function; return how long a step took from its call to that of the next."""
        self._load = _Load(steps=count + WARM_UP, is_stamped=True)
        with self._run_workers(1) as workers:
            self.start("one", 1)
            self._until(workers, 1 + self._load.steps, self._longest)
            times = _times(workers.stamps)[1 + WARM_UP :]
        self._waiting = 0
        took = [(later - sooner) * 1e3 for sooner, later in pairwise(times)]
        return {"step_ms": statistics.median(took)}

    def _until(self, workers: _Workers, count: int, longest: float) -> None:
        deadline = time.monotonic() + longest
        while count_stamps(workers.stamps) < count:
            workers.check()
            if time.monotonic() > deadline:
                self._waiting = self._count_left()
                ran = count_stamps(workers.stamps)
                raise RuntimeError(f"ran {ran} of {count} jobs in {longest:.0f} s")
            time.sleep(LOOK_S)

    def _sessions_seconds(self) -> float | None:
        """Return what the database's sessions have used; None when they cannot be seen."""
        if self._contender.server is None:
            return None
        from holdfast_bench.servers import session_seconds

        found = session_seconds(self._url, "all_sessions")
        return None if found is None else sum(found.values())

    def _count_left(self) -> int:
        question = self._contender.peer.left
        if self._contender.server is None:
            path = self._url.removeprefix("sqlite:///")
            with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection:
                return int(connection.execute(question).fetchone()[0])
        import psycopg

        with psycopg.connect(self._url, autocommit=True) as connection:
            return int(connection.execute(question.encode()).fetchall()[0][0])

    def _call(self, *words: str) -> dict[str, Any]:
        done = subprocess.run(
            [*self._contender.command, *words],
            cwd=self._folder,
            env=self._environment(self._folder / "unused"),
            capture_output=True,
            text=True,
            check=False,
            timeout=CALL_S,
        )
        if done.returncode:
            raise RuntimeError(f"{words[0]}: {done.stderr.strip() or done.stdout.strip()}")
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"seconds"')]
        answer: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        return answer

    @contextmanager
    def _run_workers(self, processes: int) -> Iterator[_Workers]:
        """Run workers, their output in a file, and end them and their children afterwards."""
        self._files += 1
        stamps = self._folder / f"stamps{self._files}"
        log = self._folder / f"worker{self._files}.log"
        environment = self._environment(stamps, processes)
        # Ours has an option for several processes; others are started several times.
        copies = 1 if self._contender.peer.is_ours else processes
        with log.open("wb") as output:
            started = [
                subprocess.Popen(
                    [*self._contender.command, "work"],
                    cwd=self._folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
                for _ in range(copies)
            ]
        try:
            yield _Workers(started, stamps, log)
        finally:
            _end(started)

    def _environment(self, stamps: Path, processes: int = 1) -> dict[str, str]:
        return clean_environment() | {
            "BENCH_URL": self._url,
            "BENCH_MODE": self._contender.mode,
            "BENCH_PROCESSES": str(processes),
            "BENCH_IO": str(IO_SECONDS if self._load.handlers else 0),
            "BENCH_THREADS": "yes" if self._load.handlers == "threads" else "",
            "BENCH_STEPS": str(self._load.steps),
            "BENCH_EVENTS": "yes" if self._load.is_event else "",
            "BENCH_STAMPED": "yes" if self._load.is_stamped else "",
            "BENCH_PAYLOAD": json.dumps(INPUT),
            "BENCH_STAMPS": str(stamps),
            "PYTHONPATH": str(ADAPTERS),
        }


def _times(stamps: Path) -> list[float]:
    """Return when handlers were called, in seconds and in order."""
    return sorted(at / 1e9 for _, at in STAMP.iter_unpack(stamps.read_bytes()))


def _end(workers: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask workers to end; then end what is left of their sessions, children that outlived them too."""
    for each in workers:
        each.terminate()
    for each in workers:
        with contextlib.suppress(subprocess.TimeoutExpired):
            each.wait(PATIENCE_S / 4)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGKILL)
        each.wait()


@contextmanager
def _database_of(contender: Contender, longest: float) -> Iterator[_PeerDatabase]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        if contender.server is None:
            yield _PeerDatabase(contender, f"sqlite:///{folder / 'bench.db'}", folder, longest)
            return
        with contender.server.database(migrated=False) as url:
            yield _PeerDatabase(contender, url, folder, longest)

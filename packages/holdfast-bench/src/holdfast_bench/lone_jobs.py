"""Jobs that come one by one, fifty a second: from COMMIT to the handler, and what each costs worker and server.

Beside ours, in turn, a hand-written process that listens, claims, stamps and completes; both are started, measured and
stopped in the same way.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg

from holdfast.cli.console import print_info
from holdfast_bench.baselines import LimitLoop, start_lone
from holdfast_bench.measurement import Bench, Result, make_result
from holdfast_bench.seeding import reset
from holdfast_bench.servers import BenchServer, session_seconds
from holdfast_bench.subject import RunningWorker, WorkerCommand
from holdfast_bench.workload import (
    BEFORE,
    STAMPS_VARIABLE,
    count_stamps,
    make_producer,
    read_stamps,
)

PER_SECOND = 50
WARM_UP = 10
LOOK_S = 0.02
SETTLE_S = 0.2
BY_HAND = "LISTEN by hand"
SELDOM = 0.05
"""What is executed less often than for every twentieth job belongs to no job: polls, heartbeats, upkeep."""


@dataclass(frozen=True, slots=True)
class LoneJobs:
    """One round: how long each job waited in ms, and the processor time a job in µs."""

    waits: list[float]
    worker_us: float
    server_us: float

    def percentile(self, share: float) -> float:
        """Return the wait that so many jobs did not exceed."""
        return sorted(self.waits)[min(len(self.waits) - 1, int(len(self.waits) * share))]

    @property
    def cpu_us(self) -> float:
        """Worker and server together."""
        return self.worker_us + self.server_us


class ListenCommand(WorkerCommand):
    """The hand-written process."""

    @property
    def argv(self) -> list[str]:
        """The command line."""
        words = ("listen", self.url, self.settings[STAMPS_VARIABLE])
        return [sys.executable, "-m", "holdfast_bench.baselines", *words]


def measure_lone_jobs(bench: Bench) -> list[Result]:
    """Measure those asked for."""
    results: list[Result] = []
    with bench.server.database() as url:
        if bench.wanted - {"lone_statements"}:
            results += _in_turn(bench, url)
        if "lone_statements" in bench.wanted:
            results += _statements(bench.server, url, bench.scale.lone_jobs)
    return [each for each in results if each.name in bench.wanted]


def _in_turn(bench: Bench, url: str) -> list[Result]:
    with LimitLoop(url) as loop:
        loop.create()
    ours, by_hand = list[LoneJobs](), list[LoneJobs]()
    for _ in range(bench.scale.rounds):
        ours.append(_run(WorkerCommand, url, bench.scale.lone_jobs))
        by_hand.append(_run(ListenCommand, url, bench.scale.lone_jobs))

    def result(
        name: str, unit: str, of: Callable[[LoneJobs], float], floor: float, goal: float
    ) -> Result:
        parts = {
            "worker_us": statistics.median(each.worker_us for each in ours),
            "server_us": statistics.median(each.server_us for each in ours),
        }
        return make_result(
            name,
            unit,
            [of(each) for each in ours],
            [of(each) for each in by_hand],
            against=BY_HAND,
            beside=parts if name == "lone_cpu" else {},
            floor=floor,
            goal=goal,
        )

    results = [
        result("latency_p50", "ms", lambda each: each.percentile(0.50), floor=1.1, goal=1.0),
        result("latency_p99", "ms", lambda each: each.percentile(0.99), floor=1.5, goal=1.2),
    ]
    if all(each.server_us for each in ours):
        results.append(result("lone_cpu", "CPU µs/job", lambda each: each.cpu_us, 1.3, 1.0))
    return results


def _run(
    kind: type[WorkerCommand], url: str, count: int, when_up: Callable[[], None] = lambda: None
) -> LoneJobs:
    """Start a worker, wait until it is up, and give it jobs at an even pace."""
    reset(url)
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        closing(make_producer(url)) as app,
        psycopg.connect(url) as connection,
    ):
        stamps = Path(folder) / "stamps"

        def commit(number: int) -> float:
            if kind is ListenCommand:
                start_lone(connection, number)
            else:
                app.start(connection, "stamp", {"number": number})
            at = time.monotonic()
            connection.commit()
            return at

        command = kind(url, ("stamp",), settings={STAMPS_VARIABLE: str(stamps)})
        with RunningWorker(command) as running:
            if kind is not ListenCommand:
                # A job before the others is done when the worker is up.
                commit(BEFORE)
            _wait_for(stamps, 1, running)
            _commit_at_pace(range(WARM_UP), commit)
            _wait_for(stamps, 1 + WARM_UP, running)
            when_up()
            worker, server = running.cpu_seconds(), _server_seconds(url)
            committed = _commit_at_pace(range(WARM_UP, WARM_UP + count), commit)
            _wait_for(stamps, 1 + WARM_UP + count, running)
            worker, server = running.cpu_seconds() - worker, _server_seconds(url) - server
        started = read_stamps(stamps)
    waits = [(started[number] - at) * 1000 for number, at in committed.items()]
    return LoneJobs(waits, worker / count * 1e6, server / count * 1e6)


def _server_seconds(url: str) -> float:
    return sum((session_seconds(url) or {}).values())


def _wait_for(stamps: Path, count: int, running: RunningWorker) -> None:
    """Wait until so many handlers were called, and a moment for the last one's outcome."""
    while count_stamps(stamps) < count:
        running.check()
        time.sleep(LOOK_S)
    time.sleep(SETTLE_S)


def _commit_at_pace(numbers: range, commit: Callable[[int], float]) -> dict[int, float]:
    """Commit numbered jobs at an even pace; return when each commit was called."""
    at: dict[int, float] = {}
    begun = time.monotonic()
    for place, number in enumerate(numbers):
        time.sleep(max(0.0, begun + place / PER_SECOND - time.monotonic()))
        at[number] = commit(number)
    return at


def _statements(server: BenchServer, url: str, count: int) -> list[Result]:
    """Count what the worker's sessions execute, by the server's own log."""
    if not server.can_log_statements:
        print_info(f"skipped: lone_statements: the log of {server.name} cannot be read")
        return []
    with server.log_statements(url) as log:
        _run(WorkerCommand, url, count, log.restart)
        found = Counter(log.read())
    of_jobs = {text: times / count for text, times in found.items() if times > count * SELDOM}
    return [
        make_result(
            "lone_statements",
            "statements/job",
            [sum(of_jobs.values())],
            beside={text[:40]: times for text, times in of_jobs.items()},
            # A claim and a completion, and a few polls that find nothing.
            floor=2.05,
            goal=2.0,
        )
    ]

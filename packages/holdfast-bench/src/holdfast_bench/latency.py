"""From the call of COMMIT to the start of the handler, at 20 jobs a second on an otherwise idle worker."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg

from holdfast_bench.baselines import LimitLoop
from holdfast_bench.measurement import Bench, FigureTarget, Result, make_result
from holdfast_bench.seeding import reset, seeded_database
from holdfast_bench.subject import RunningWorker, WorkerCommand
from holdfast_bench.workload import STAMPS_VARIABLE, count_stamps, make_producer, read_stamps

PER_SECOND = 20
WARM_UP = 10
BEFORE = -1
LOOK_S = 0.05


def measure_latency(bench: Bench) -> list[Result]:
    """Take samples of ours and of a hand-written listener in turn."""
    ours: list[list[float]] = []
    limit: list[list[float]] = []
    with seeded_database(bench.server) as url:
        for _ in range(bench.scale.rounds):
            ours.append(_ours(url, bench.scale.latency_samples))
            limit.append(_limit(url, bench.scale.latency_samples))
    return [
        _result("latency_p50", 0.50, ours, limit, FigureTarget("ms", 0, floor=2.5, goal=2.0)),
        _result("latency_p99", 0.99, ours, limit, FigureTarget("ms", 0, floor=6.0, goal=5.0)),
    ]


def _result(
    name: str, share: float, ours: list[list[float]], limit: list[list[float]], target: FigureTarget
) -> Result:
    """Take the percentile of all samples together; the spread is that of the rounds."""
    whole = _percentile([each for one in ours for each in one], share)
    other = _percentile([each for one in limit for each in one], share)
    rounds = [_percentile(each, share) for each in ours]
    return make_result(
        name,
        "ms",
        ours=whole,
        limit=other,
        ratio=whole / other,
        spread=(max(rounds) - min(rounds)) / statistics.median(rounds),
        against="LISTEN and claim by hand",
        target=FigureTarget(target.of, whole, target.floor, target.goal),
    )


def _percentile(samples: list[float], share: float) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _commit_at_pace(count: int, commit: Callable[[int], float]) -> dict[int, float]:
    """Commit numbered jobs at an even pace; return when each commit was called."""
    at: dict[int, float] = {}
    begun = time.monotonic()
    for number in range(count + WARM_UP):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        at[number] = commit(number)
    return at


def _milliseconds(committed: dict[int, float], started: dict[int, float]) -> list[float]:
    return [
        (started[number] - committed[number]) * 1000 for number in committed if number >= WARM_UP
    ]


def _ours(url: str, count: int) -> list[float]:
    reset(url)
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        closing(make_producer(url)) as app,
    ):
        stamps = Path(folder) / "stamps"
        command = WorkerCommand(url, ("stamp",), settings={STAMPS_VARIABLE: str(stamps)})
        with RunningWorker(command) as running, psycopg.connect(url) as connection:

            def commit(number: int) -> float:
                app.start(connection, "stamp", {"number": number})
                at = time.monotonic()
                connection.commit()
                return at

            # A job before the others is done when the worker is up.
            commit(BEFORE)
            _wait_for(stamps, 1, running)
            committed = _commit_at_pace(count, commit)
            _wait_for(stamps, count + WARM_UP + 1, running)
        return _milliseconds(committed, read_stamps(stamps))


def _wait_for(stamps: Path, count: int, running: RunningWorker) -> None:
    """Wait until so many handlers were called."""
    while count_stamps(stamps) < count:
        running.check()
        time.sleep(LOOK_S)


def _limit(url: str, count: int) -> list[float]:
    started: dict[int, float] = {}
    with LimitLoop(url, 1) as loop, psycopg.connect(url) as connection:
        loop.empty()
        listening = threading.Event()
        listener = threading.Thread(target=_listen, args=(url, loop, started, listening, count))
        listener.start()
        listening.wait()

        def commit(number: int) -> float:
            loop.start_on(connection)
            connection.execute("select pg_notify('limit_loop', %s)", [str(number)])
            at = time.monotonic()
            connection.commit()
            return at

        committed = _commit_at_pace(count, commit)
        listener.join()
    return _milliseconds(committed, started)


def _listen(
    url: str, loop: LimitLoop, started: dict[int, float], listening: threading.Event, count: int
) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("listen limit_loop")
        listening.set()
        for notification in connection.notifies(stop_after=count + WARM_UP):
            started[int(notification.payload)] = loop.run_one()

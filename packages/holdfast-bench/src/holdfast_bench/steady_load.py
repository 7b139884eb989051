"""A producer and a worker for long, at half of what the worker can do: do dead rows, sizes and claims stay level?

The sizes are those of the tables whose rows come and go; history grows with every job, as it must. How quick claims are
shows in how long a job waited for its handler, by the database's own times.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import psycopg

from holdfast_bench.handwritten import SQL
from holdfast_bench.measurement import Bench, Result, make_result
from holdfast_bench.seeding import reset
from holdfast_bench.subject import (
    RunningWorker,
    WorkerCommand,
    drain,
    open_progress,
    wait_for,
    wait_for_all,
)
from holdfast_bench.workload import INPUT, fill, make_producer

SHARE = 0.5
SAMPLE_S = 1.0
PER_SECOND = 20
"""Transactions of the producer."""
WINDOW_S = 60.0
BEHIND_S = 5.0
DEAD_FLOOR = 30_000
MIB = 2**20


@dataclass(slots=True)
class TableSamples:
    """What was seen of the tables, second by second."""

    dead: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    oldest_s: list[float] = field(default_factory=list)

    @property
    def size_before(self) -> int:
        """The largest size before the last third."""
        return max(self.sizes[: -max(1, len(self.sizes) // 3)] or self.sizes)

    @property
    def size_late(self) -> int:
        """The largest size of the last third."""
        return max(self.sizes[-max(1, len(self.sizes) // 3) :])

    @property
    def above_floor_s(self) -> float:
        """For how long there were more dead rows than `DEAD_FLOOR`."""
        return sum(each > DEAD_FLOOR for each in self.dead) * SAMPLE_S

    @property
    def behind_after_s(self) -> float:
        """When the worker fell behind for good, by `BEHIND_S`; 0 when it never did."""
        kept_up = [place for place, each in enumerate(self.oldest_s) if each < BEHIND_S]
        last = kept_up[-1] + 1 if kept_up else 0
        return 0.0 if last == len(self.oldest_s) else max(1, last) * SAMPLE_S


def measure_steady_load(bench: Bench) -> list[Result]:
    """Find out what the worker can do, then keep it half busy."""
    seconds = bench.scale.steady_seconds
    with bench.server.database() as url:
        backlog = fill(url, "noop", bench.scale.jobs)
        rate = drain(WorkerCommand(url), backlog, bench.scale.jobs).rate * SHARE
        reset(url)
        samples = TableSamples()
        with (
            closing(open_progress(url, ("noop",))) as progress,
            RunningWorker(WorkerCommand(url)) as running,
        ):
            # A job before the others is done when the worker is up.
            wait_for(progress, fill(url, "noop", 1).last, running.check)
            since = _now(url)
            with _sample_tables(url, samples):
                jobs, last = _produce(url, rate, seconds)
            wait_for_all(progress, last, jobs + 1, running.check)
        first_ms, last_ms = _waits(url, since, min(WINDOW_S, seconds / 3))
    results = [
        make_result(
            "dead_rows",
            "rows",
            [max(samples.dead)],
            beside={
                "at_the_end": samples.dead[-1],
                "above_floor_s": samples.above_floor_s,
                "jobs_per_s": jobs / seconds,
                "oldest_peak_s": max(samples.oldest_s),
                "behind_after_s": samples.behind_after_s,
            },
            floor=DEAD_FLOOR,
            goal=10_000,
        ),
        make_result(
            "dead_rows_size",
            "MiB",
            [samples.size_late / MIB],
            [samples.size_before / MIB],
            against="before",
            floor=1.25,
            goal=1.05,
        ),
        make_result(
            "dead_rows_claim",
            "ms",
            [last_ms],
            [first_ms],
            against="at first",
            floor=1.25,
            goal=1.05,
        ),
    ]
    return [each for each in results if each.name in bench.wanted]


def _produce(url: str, rate: float, seconds: float) -> tuple[int, str]:
    """Start jobs at an even pace; return how many, and the last."""
    jobs, last, begun = 0, "", time.monotonic()
    with closing(make_producer(url)) as app:
        for round in range(1, int(seconds * PER_SECOND) + 1):
            time.sleep(max(0.0, begun + round / PER_SECOND - time.monotonic()))
            wanted = max(1, int(rate * round / PER_SECOND) - jobs)
            with app.transaction() as tx:
                last = str(app.start_many(tx, "noop", [INPUT] * wanted)[-1].id)
            jobs += wanted
    return jobs, last


@contextmanager
def _sample_tables(url: str, samples: TableSamples) -> Iterator[None]:
    """Look at the tables every second meanwhile."""
    done = threading.Event()

    def sample() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while True:
                ended = done.wait(SAMPLE_S)
                dead, size, oldest_s = connection.execute(SQL["dead_rows_sample"]).fetchall()[0]
                samples.dead.append(dead)
                samples.sizes.append(size)
                samples.oldest_s.append(oldest_s)
                if ended:
                    return

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _now(url: str) -> datetime:
    with psycopg.connect(url, autocommit=True) as connection:
        (now,) = connection.execute("select clock_timestamp()").fetchall()[0]
    assert isinstance(now, datetime)
    return now


def _waits(url: str, since: datetime, window_s: float) -> tuple[float, float]:
    """Return how long jobs waited at first and at last, in ms (medians)."""
    window = {"since": since, "window": timedelta(seconds=window_s)}
    with psycopg.connect(url, autocommit=True) as connection:
        first, last = connection.execute(SQL["dead_rows_waits"], window).fetchall()[0]
    return float(first), float(last)

"""Removing old jobs: how fast a worker does so beside nothing else, and what that takes from a drain."""

from __future__ import annotations

import time

import psycopg

from holdfast.app import Holdfast
from holdfast.commands.retention import FIRST_ID, Ages, remove_chains
from holdfast_bench.handwritten import SQL
from holdfast_bench.measurement import Bench, Contest, Result
from holdfast_bench.seeding import reset
from holdfast_bench.subject import RunningWorker, WorkerCommand, drain
from holdfast_bench.workload import INPUT_TEXT, UNKEPT, fill

LOOK_S = 0.01
PATIENCE_S = 600.0
AT_ONCE = 200
"""What a worker removes in one transaction at its defaults."""


def measure_retention(bench: Bench) -> list[Result]:
    """Measure a worker that only removes, against the same removal without pauses; then a drain beside it."""
    jobs = bench.scale.jobs
    with bench.server.database() as url:

        def drain_beside(old: int) -> float:
            _refill(url, old)
            return drain(WorkerCommand(url), fill(url, "noop", jobs), jobs).rate

        alone = Contest(
            bench.scale.side_rounds,
            {
                "ours": lambda: _count_removed_by_worker(url, jobs),
                "baseline": lambda: _count_removed(url, jobs),
            },
        )
        beside = Contest(
            bench.scale.side_rounds,
            {"with": lambda: drain_beside(2 * jobs), "without": lambda: drain_beside(0)},
        )
    return [
        alone.result("retention", "jobs/s removed", against="without pauses", floor=0.2, goal=0.3),
        beside.result(
            "drain_with_retention",
            "jobs/s",
            ours="with",
            baseline="without",
            against="nothing to remove",
            floor=0.75,
            goal=0.9,
        ),
    ]


def measure_unkept(bench: Bench) -> list[Result]:
    """Measure a drain of jobs of which nothing is kept, against one of jobs that leave their outcomes."""
    jobs = bench.scale.jobs
    with bench.server.database() as url:
        contest = Contest(
            bench.scale.side_rounds,
            {
                "unkept": lambda: _drain_queue(url, UNKEPT, jobs),
                "kept": lambda: _drain_queue(url, "noop", jobs),
            },
        )
    return [
        contest.result(
            "drain_unkept",
            "jobs/s",
            ours="unkept",
            baseline="kept",
            against="kept jobs",
            floor=1.0,
            goal=1.1,
        )
    ]


def _drain_queue(url: str, type: str, jobs: int) -> float:
    """Return how many jobs a second leave the queue, which is all that is left to see of some."""
    reset(url)
    fill(url, type, jobs)
    command = WorkerCommand(url, types=(type,))
    with psycopg.connect(url, autocommit=True) as connection, RunningWorker(command) as running:

        def wait_until(left: int) -> tuple[float, int]:
            deadline = time.monotonic() + PATIENCE_S
            while True:
                ((count,),) = connection.execute(SQL["queue_count"]).fetchall()
                if count <= left:
                    return time.monotonic(), count
                running.check()
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{count} jobs are still there after {PATIENCE_S:.0f} s")
                time.sleep(LOOK_S)

        (began, first), (ended, _) = wait_until(jobs - 1), wait_until(0)
        return first / (ended - began)


def _refill(url: str, old: int) -> tuple[str, str] | None:
    """Leave nothing but so many old jobs; return the first and the last of them."""
    reset(url)
    if not old:
        return None
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SQL["seed_old"], {"input": INPUT_TEXT, "count": old})
        connection.execute(SQL["seed_vacuum"])
        first, last = connection.execute(SQL["seed_old_ids"]).fetchall()[0]
        return first, last


def _count_removed_by_worker(url: str, jobs: int) -> float:
    ids = _refill(url, jobs)
    assert ids is not None
    with (
        psycopg.connect(url, autocommit=True) as connection,
        RunningWorker(WorkerCommand(url)) as running,
    ):

        def wait_until_gone(id: str) -> float:
            deadline = time.monotonic() + PATIENCE_S
            while connection.execute(SQL["is_there"], [id]).rowcount:
                running.check()
                if time.monotonic() > deadline:
                    raise RuntimeError(f"old jobs are still there after {PATIENCE_S:.0f} s")
                time.sleep(LOOK_S)
            return time.monotonic()

        began = wait_until_gone(ids[0])
        return jobs / (wait_until_gone(ids[1]) - began)


def _count_removed(url: str, jobs: int) -> float:
    """Remove with the worker's own statements, one batch after the other."""
    _refill(url, jobs)
    app = Holdfast(url)
    began, after, seen = time.monotonic(), FIRST_ID, AT_ONCE
    while seen == AT_ONCE:
        op = remove_chains(app.database.store, Ages(30, 90, 30), after, AT_ONCE)
        page = app.database.run(op)
        after, seen = page.last, page.seen
    took = time.monotonic() - began
    app.close()
    return jobs / took

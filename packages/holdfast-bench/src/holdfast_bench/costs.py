"""What workers cost besides a drain's time: idling, chains, memory."""

from __future__ import annotations

import time
from contextlib import closing

import psycopg

from holdfast.cli.console import print_info
from holdfast_bench.baselines import LimitLoop
from holdfast_bench.handwritten import SQL
from holdfast_bench.measurement import Bench, Contest, Result, make_result
from holdfast_bench.seeding import LoadCondition, reset, seed
from holdfast_bench.servers import session_seconds
from holdfast_bench.subject import (
    RunningWorker,
    WorkerCommand,
    drain,
    open_progress,
    wait_for,
    wait_for_all,
)
from holdfast_bench.workload import KEYED, BacklogIds, fill, fill_keys, make_app

IDLE_BESIDE = LoadCondition("idle", delayed=1_000_000, unhandled=1_000_000)
STEPS = 3
SETTLE_S = 5.0
MINUTE_MS = 60_000
MIB = 2**20
LOOK_S = 0.05


def measure_idle(bench: Bench) -> list[Result]:
    """Measure an idle worker beside large backlogs that are not due or that no worker handles.

    Meanwhile a hand-written loop looks once a second into tables of its own, which are empty.
    """
    condition, seconds = IDLE_BESIDE.scale(bench.scale.share), bench.scale.idle_seconds
    with bench.server.database() as url:
        seed(url, condition)
        reset(url, condition)
        backlog = fill(url, "noop", 1)
        with (
            closing(open_progress(url, ("noop",))) as progress,
            RunningWorker(WorkerCommand(url)) as running,
        ):
            wait_for(progress, backlog.last, running.check)
            time.sleep(SETTLE_S)
            worker, sessions = running.cpu_seconds(), session_seconds(url)
            by_hand = _poll_by_hand(url, seconds)
            worker = running.cpu_seconds() - worker
            server = _used_since(sessions, session_seconds(url))
            running.check()
    if server is None:
        print_info(f"skipped: idle: the processes of {bench.server.name} cannot be seen")
        return []
    per_minute = MINUTE_MS / seconds
    return [
        make_result(
            "idle",
            "CPU ms/minute",
            [(worker + server) * per_minute],
            [by_hand * per_minute],
            against="polls by hand",
            beside={"worker": worker * per_minute, "server": server * per_minute},
            floor=5.0,
            goal=3.0,
        )
    ]


def _poll_by_hand(url: str, seconds: float) -> float:
    """Look once a second; return the processor time of this thread and of the server."""
    with LimitLoop(url) as loop:
        loop.create()
        begun, python, server = time.monotonic(), time.thread_time(), loop.server_seconds()
        for look in range(round(seconds)):
            loop.run_one()
            time.sleep(max(0.0, begun + look + 1 - time.monotonic()))
        return time.thread_time() - python + loop.server_seconds() - server


def _used_since(before: dict[int, float] | None, after: dict[int, float] | None) -> float | None:
    """Return what sessions used in between; a new one counts whole. None: the server is elsewhere."""
    if before is None or after is None:
        return None
    return sum(spent - before.get(pid, 0.0) for pid, spent in after.items())


def measure_chain_step(bench: Bench) -> list[Result]:
    """Start and drain as many chains of three steps as jobs, in turn; the figure is the time of a step."""
    count = bench.scale.jobs // STEPS
    with bench.server.database() as url:
        contest = Contest(
            bench.scale.side_rounds,
            {
                "ours": lambda: _chain_seconds(url, count, STEPS) / count / STEPS * 1e6,
                "baseline": lambda: _chain_seconds(url, count, 1) / count * 1e6,
            },
        )
    return [contest.result("chain_step", "µs/step", against="one job", floor=1.2, goal=1.0)]


def _chain_seconds(url: str, count: int, steps: int) -> float:
    """Start and drain chains, one after the other."""
    reset(url)
    begun = time.monotonic()
    backlog = fill(url, "step", count, {"left": steps - 1})
    started = time.monotonic() - begun
    return started + drain(WorkerCommand(url, ("step",)), backlog, count * steps).span.seconds


def measure_memory(bench: Bench) -> list[Result]:
    """Measure how much a worker grows after the first 10,000 jobs of a large backlog; a size needs no repetition."""
    jobs = bench.scale.memory_jobs
    with bench.server.database() as url:
        settled, grown = _growth(WorkerCommand(url), fill(url, "noop", jobs), jobs)
    return [
        make_result(
            "memory", "MiB growth", [grown], beside={"resident_mib": settled}, floor=30, goal=10
        )
    ]


def measure_keys_memory(bench: Bench) -> list[Result]:
    """Measure the same with a limited job of each of many keys; the sweep leaves none of their partitions."""
    keys = bench.scale.keys
    with bench.server.database() as url:
        settled, grown = _growth(WorkerCommand(url, (KEYED,)), fill_keys(url, keys, keys), keys)
        left = _sweep_partitions(url)
    if left:
        raise RuntimeError(f"{left} rows of partitions are left after the sweep")
    return [
        make_result(
            "flow_memory",
            "MiB growth",
            [grown],
            beside={"resident_mib": settled},
            floor=30,
            goal=10,
        )
    ]


def _growth(command: WorkerCommand, backlog: BacklogIds, jobs: int) -> tuple[float, float]:
    """Return the MiB that a worker has after the first jobs, and how many more it had at most until the last."""
    with (
        closing(open_progress(command.url, command.types)) as progress,
        RunningWorker(command) as running,
    ):
        wait_for(progress, backlog.early, running.check)
        settled = largest = running.memory_bytes()
        while not progress.has_ended(backlog.last):
            running.check()
            time.sleep(LOOK_S)
            largest = max(largest, running.memory_bytes())
        # Where keys take turns, the last one started is not the last to end.
        wait_for_all(progress, backlog.last, jobs, running.check)
    return settled / MIB, (largest - settled) / MIB


def _sweep_partitions(url: str) -> int:
    """Remove what upkeep removes once partitions were unused for a while; return how many rows are left."""
    with closing(make_app(url, (KEYED,))) as app:
        store = app.database.store
        later = app.database.run(store.schema.clock()) + 120_000_000
        after: str | None = ""
        while after is not None:
            after, _, _ = app.database.run(store.limits.sweep(after, later))
    with psycopg.connect(url) as connection:
        ((left,),) = connection.execute(SQL["gate_rows"]).fetchall()
    return int(left)

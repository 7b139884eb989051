"""Handlers that wait 5 ms, as most real ones wait for something: against the same waiting without a database."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from holdfast.cli.console import print_info
from holdfast_bench.drains import drain_anew
from holdfast_bench.measurement import Bench, Contest, Result
from holdfast_bench.subject import WorkerCommand
from holdfast_bench.workload import IO_SECONDS

SLOTS = 50
AT_DEFAULTS = 2_000
"""About what ten slots can do in a second."""


def measure_async(bench: Bench) -> list[Result]:
    """Measure coroutines that wait, fifty at once."""
    return [_at_fifty("io_async", bench, "wait", wait_in_tasks, floor=0.92, goal=0.97)]


def measure_threads(bench: Bench) -> list[Result]:
    """Measure functions that wait in threads, fifty at once."""
    return [_at_fifty("io_threads", bench, "wait_blocking", wait_in_threads, floor=0.8, goal=0.9)]


def _at_fifty(
    name: str,
    bench: Bench,
    type: str,
    only_wait: Callable[[int], float],
    *,
    floor: float,
    goal: float,
) -> Result:
    jobs = bench.scale.jobs
    with bench.server.database() as url:
        command = WorkerCommand(url, (type,), ("--slots", str(SLOTS)))
        contest = Contest(
            bench.scale.rounds,
            {
                "ours": lambda: drain_anew(command, jobs).rate,
                "baseline": lambda: only_wait(jobs // 2),
            },
        )
    return contest.result(name, "jobs/s", against="only waiting", floor=floor, goal=goal)


def measure_server_cost(bench: Bench) -> list[Result]:
    """Measure the server's time a job with coroutines that wait, at the defaults, against that of no-op jobs."""
    jobs = min(bench.scale.jobs, AT_DEFAULTS * 5)
    workers: list[float] = []
    with bench.server.database() as url:

        def server_us(type: str) -> float:
            found = drain_anew(WorkerCommand(url, (type,)), jobs)
            if type == "wait":
                workers.append(found.worker_us)
            return found.server_us

        contest = Contest(
            bench.scale.rounds,
            {"ours": lambda: server_us("wait"), "baseline": lambda: server_us("noop")},
        )
    if not contest.median("baseline"):
        print_info(f"skipped: io_server_cost: {bench.server.name} is on another machine")
        return []
    return [
        contest.result(
            "io_server_cost",
            "server µs/job",
            against="no-op jobs",
            beside={"worker_us": statistics.median(workers)},
            floor=2.2,
            goal=1.6,
        )
    ]


def wait_in_tasks(count: int) -> float:
    """Wait in fifty coroutines; return how often a second."""

    async def wait_in_turn() -> None:
        for _ in range(count // SLOTS):
            await asyncio.sleep(IO_SECONDS)

    async def wait_in_all() -> None:
        await asyncio.gather(*(wait_in_turn() for _ in range(SLOTS)))

    begun = time.perf_counter()
    asyncio.run(wait_in_all())
    return count / (time.perf_counter() - begun)


def wait_in_threads(count: int) -> float:
    """Wait in a pool of fifty threads; return how often a second."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(SLOTS) as pool:
        for _ in pool.map(time.sleep, [IO_SECONDS] * count):
            pass
    return count / (time.perf_counter() - begun)

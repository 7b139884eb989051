"""Jobs that wait 5 ms each, fifty at once: the ceiling is 10,000 a second."""

from __future__ import annotations

import asyncio
import time

from tests.bench.command import Command, drain
from tests.bench.conditions import FRESH
from tests.bench.figure import Bench, Contest, Result, Target
from tests.bench.handlers import IO_SECONDS
from tests.bench.site import fill, refresh

NAMES = ("drain_io",)
SLOTS = 50
CEILING = SLOTS / IO_SECONDS


def measure(bench: Bench) -> list[Result]:
    """Measure `holdfast worker --slots 50` beside coroutines that only wait."""
    jobs = bench.scale.jobs
    with bench.server.database() as url:

        def ours() -> float:
            refresh(url, FRESH)
            filled = fill(url, "wait", jobs)
            command = Command(url, ("wait",), ("--slots", str(SLOTS)))
            return drain(command, filled, jobs).rate

        contest = Contest(
            bench.scale.rounds,
            {
                "ours": ours,
                "limit": lambda: CEILING,
                "waiting": lambda: asyncio.run(_wait(jobs // 4)),
            },
        )
    return [
        contest.result(
            "drain_io",
            "jobs/s",
            against="ceiling",
            beside={"only_waiting": "waiting"},
            target=Target("jobs/s", contest.median("ours"), floor=8_000, goal=9_000),
        )
    ]


async def _wait(count: int) -> float:
    async def one() -> None:
        for _ in range(count // SLOTS):
            await asyncio.sleep(IO_SECONDS)

    begun = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(SLOTS)))
    return count / (time.perf_counter() - begun)

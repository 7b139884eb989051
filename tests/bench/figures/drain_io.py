"""Jobs that wait 5 ms each at concurrency 50: the ceiling is 10 000 a second."""

from __future__ import annotations

import asyncio
import time

from tests.bench.conditions import FRESH
from tests.bench.figure import Bench, Contest, Result, Target
from tests.bench.handlers import IO_SECONDS
from tests.bench.site import fill, refresh
from tests.bench.subject import Spec
from tests.bench.subjects import drain, rate

NAMES = ("drain_io",)
SLOTS = 50
BATCH = 200
CEILING = SLOTS / IO_SECONDS


def measure(bench: Bench) -> list[Result]:
    """Measure our worker beside coroutines that only wait."""
    jobs = bench.scale.jobs // 2
    with bench.server.database() as url:

        def ours() -> float:
            refresh(url, FRESH)
            fill(url, "wait", jobs)
            return rate([drain(Spec(url, ("wait",), jobs=jobs, slots=SLOTS, batch=BATCH))])

        contest = Contest(
            bench.scale.rounds,
            {
                "ours": ours,
                "limit": lambda: CEILING,
                "waiting": lambda: asyncio.run(_wait(jobs)),
            },
        )
    share = contest.ratio("ours", "limit")
    return [
        contest.result(
            "drain_io",
            "jobs/s",
            against="ceiling",
            beside={"only_waiting": "waiting"},
            target=Target("ratio", share, floor=0.75, goal=0.9),
        )
    ]


async def _wait(count: int) -> float:
    async def one() -> None:
        for _ in range(count // SLOTS):
            await asyncio.sleep(IO_SECONDS)

    begun = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(SLOTS)))
    return count / (time.perf_counter() - begun)

"""What a step of a chain costs beside the start and drain of one job."""

from __future__ import annotations

import time

from tests.bench.command import Command, drain
from tests.bench.conditions import FRESH
from tests.bench.figure import Bench, Contest, Result, Target
from tests.bench.site import fill, refresh

NAMES = ("chain_step",)
STEPS = 3


def measure(bench: Bench) -> list[Result]:
    """Start and drain as many chains of three steps as jobs, in turn; the figure is the time of a step."""
    count = bench.scale.jobs // STEPS
    with bench.server.database() as url:
        contest = Contest(
            bench.scale.side_rounds,
            {
                "ours": lambda: _seconds(url, count, STEPS) / count / STEPS * 1e6,
                "limit": lambda: _seconds(url, count, 1) / count * 1e6,
            },
        )
    share = contest.ratio("ours", "limit")
    return [
        contest.result(
            "chain_step",
            "µs a step",
            against="start and drain of one job",
            target=Target("ratio", share, floor=1.2, goal=1.0),
        )
    ]


def _seconds(url: str, count: int, steps: int) -> float:
    """Start and drain chains, one after the other."""
    refresh(url, FRESH)
    begun = time.monotonic()
    filled = fill(url, "step", count, {"left": steps - 1})
    started = time.monotonic() - begun
    return started + drain(Command(url, ("step",)), filled, count * steps).span.seconds

"""One job that starts 1,000 chains, and one that waits for all of them."""

from __future__ import annotations

from tests.bench.command import Command, drain
from tests.bench.conditions import FRESH
from tests.bench.figure import Bench, Contest, Result
from tests.bench.handlers import CHILDREN
from tests.bench.site import fill, refresh

NAMES = ("fan_out_in",)
JOBS = CHILDREN + 2


def measure(bench: Bench) -> list[Result]:
    """Measure one such fan beside the drain of as many jobs that nobody waits for."""
    with bench.server.database() as url:

        def milliseconds(type: str, count: int) -> float:
            refresh(url, FRESH)
            filled = fill(url, type, count)
            return drain(Command(url, ("fan", "noop")), filled, JOBS).span.seconds * 1000

        contest = Contest(
            bench.scale.side_rounds,
            {"ours": lambda: milliseconds("fan", 1), "limit": lambda: milliseconds("noop", JOBS)},
        )
    return [
        contest.result("fan_out_in", f"ms for 1 → {CHILDREN:,} → 1", against="as many plain jobs")
    ]

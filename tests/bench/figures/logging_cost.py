"""What the log costs: the worker's processor time a job at the default level, beside a worker that logs only errors."""

from __future__ import annotations

import statistics

from tests.bench.command import Command, drain
from tests.bench.conditions import FRESH
from tests.bench.figure import Bench, Contest, Result, Target, make_result
from tests.bench.site import fill, refresh

NAMES = ("log_per_job",)


def measure(bench: Bench) -> list[Result]:
    """Drain with both levels in turn, and once with all lines there are."""
    jobs = bench.scale.jobs
    with bench.server.database() as url:

        def worker_us(*options: str) -> float:
            refresh(url, FRESH)
            filled = fill(url, "noop", jobs)
            return drain(Command(url, options=options), filled, jobs).worker_us

        contest = Contest(
            bench.scale.rounds,
            {
                "default": worker_us,
                "error": lambda: worker_us("--log-level", "error"),
            },
        )
        debug = worker_us("--log-level", "debug") - contest.median("error")
    pairs = zip(contest.samples["default"], contest.samples["error"], strict=True)
    cost = statistics.median(one - other for one, other in pairs)
    return [
        make_result(
            "log_per_job",
            "µs a job",
            ours=cost,
            spread=contest.spread("default"),
            beside={"worker_us": contest.median("default"), "at_debug_us": debug},
            target=Target("µs", cost, floor=8.0, goal=4.0),
        )
    ]

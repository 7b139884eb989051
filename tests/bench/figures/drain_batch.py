"""A handler that takes a list of jobs at once, for bulk APIs."""

from __future__ import annotations

from tests.bench.command import Command, drain
from tests.bench.conditions import FRESH
from tests.bench.figure import Bench, Contest, Result
from tests.bench.handlers import BATCH_SIZE
from tests.bench.limit_loop import LimitLoop
from tests.bench.site import fill, refresh, site

NAMES = ("drain_batch",)


def measure(bench: Bench) -> list[Result]:
    """Measure the command beside the limit loop with claims of the same size."""
    jobs = bench.scale.jobs
    with site(bench.server, FRESH) as url:

        def ours() -> float:
            refresh(url, FRESH)
            filled = fill(url, "batch", jobs)
            return drain(Command(url, ("batch",)), filled, jobs).rate

        def limit() -> float:
            with LimitLoop(url, BATCH_SIZE) as loop:
                loop.empty()
                loop.start(jobs)
                return loop.drain().rate

        contest = Contest(bench.scale.side_rounds, {"ours": ours, "limit": limit})
    return [contest.result("drain_batch", "jobs/s")]

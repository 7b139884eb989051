"""A handler that takes a list of jobs at once, for bulk APIs."""

from __future__ import annotations

from tests.bench.conditions import FRESH
from tests.bench.figure import Bench, Contest, Result
from tests.bench.limit_loop import LimitLoop
from tests.bench.site import fill, refresh, site
from tests.bench.subject import Spec
from tests.bench.subjects import drain, rate

NAMES = ("drain_batch",)
SIZE = 1000


def measure(bench: Bench) -> list[Result]:
    """Measure our worker beside the limit loop with claims of the same size."""
    jobs = bench.scale.jobs
    with site(bench.server, FRESH) as url:

        def ours() -> float:
            refresh(url, FRESH)
            fill(url, "batch", jobs)
            return rate([drain(Spec(url, ("batch",), jobs=jobs, slots=2, batch=50))])

        def limit() -> float:
            with LimitLoop(url, SIZE) as loop:
                loop.empty()
                loop.start(jobs)
                return loop.drain().rate

        contest = Contest(bench.scale.rounds, {"ours": ours, "limit": limit})
    return [contest.result("drain_batch", "jobs/s")]

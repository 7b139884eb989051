"""How much a worker grows while it drains a large backlog, from its size after the first 10,000 jobs."""

from __future__ import annotations

from tests.bench.figure import Bench, Result, Target, make_result
from tests.bench.figures.drains import BATCH, SLOTS
from tests.bench.site import fill
from tests.bench.subject import Spec
from tests.bench.subjects import drain

NAMES = ("memory",)
MIB = 2**20


def measure(bench: Bench) -> list[Result]:
    """Drain once; a size needs no repetition."""
    jobs = bench.scale.memory_jobs
    with bench.server.database() as url:
        fill(url, "noop", jobs)
        report = drain(Spec(url, ("noop",), jobs=jobs, slots=SLOTS, batch=BATCH))
    grown = (report.largest_rss - report.settled_rss) / MIB
    return [
        make_result(
            "memory",
            f"MiB more over {jobs:,} jobs",
            ours=grown,
            beside={"resident_mib": report.settled_rss / MIB},
            target=Target("MiB", grown, floor=30, goal=10),
        )
    ]

"""How much write-ahead log a job costs from its insert to its outcome: what replicas and archives must carry."""

from __future__ import annotations

from tests.bench.command import Command, drain
from tests.bench.conditions import FRESH
from tests.bench.figure import Bench, Contest, Result, Target
from tests.bench.figures.drains import BATCH
from tests.bench.limit_loop import LimitLoop
from tests.bench.site import fill, refresh, site

NAMES = ("wal_per_job",)


def measure(bench: Bench) -> list[Result]:
    """Measure both from start to end."""
    jobs = bench.scale.jobs
    server = bench.server
    with site(server, FRESH) as url:

        def ours() -> float:
            refresh(url, FRESH)
            before = server.wal_bytes()
            filled = fill(url, "noop", jobs)
            drain(Command(url), filled, jobs)
            return (server.wal_bytes() - before) / jobs

        def limit() -> float:
            with LimitLoop(url, BATCH) as loop:
                loop.empty()
                before = server.wal_bytes()
                loop.start(jobs)
                loop.drain()
                return (server.wal_bytes() - before) / jobs

        contest = Contest(bench.scale.side_rounds, {"ours": ours, "limit": limit})
    bytes_a_job = contest.median("ours")
    target = Target("bytes", bytes_a_job, floor=1600, goal=1250)
    return [contest.result("wal_per_job", "bytes", target=target)]

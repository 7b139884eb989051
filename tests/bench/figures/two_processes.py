"""Two worker processes on one database, beside two limit loops."""

from __future__ import annotations

import subprocess
import sys

from tests.bench.command import ROOT, Command, drain
from tests.bench.conditions import FRESH
from tests.bench.figure import Bench, Contest, Result, Target
from tests.bench.figures.drains import BATCH
from tests.bench.limit_loop import LimitLoop
from tests.bench.site import fill, refresh, site

NAMES = ("drain_two_processes",)


def measure(bench: Bench) -> list[Result]:
    """Measure `holdfast worker --processes 2`, and two limit loops in turn."""
    jobs = bench.scale.jobs * 2
    with site(bench.server, FRESH) as url:
        contest = Contest(
            bench.scale.rounds,
            {
                "ours": lambda: _ours(Command(url, options=("--processes", "2")), jobs),
                "limit": lambda: _limit(url, jobs),
            },
        )
    share = contest.ratio("ours", "limit")
    return [
        contest.result(
            "drain_two_processes",
            "jobs/s",
            against="two limit loops",
            target=Target("ratio", share, floor=0.6, goal=0.8),
        )
    ]


def _ours(command: Command, jobs: int) -> float:
    refresh(command.url, FRESH)
    filled = fill(command.url, "noop", jobs)
    return drain(command, filled, jobs).rate


def _limit(url: str, jobs: int) -> float:
    with LimitLoop(url, BATCH) as loop:
        loop.empty()
        loop.start(jobs)
    command = [sys.executable, "-m", "tests.bench.limit_drain", url, str(BATCH)]
    both = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    spans = [each.communicate()[0].split() for each in both]
    begun = min(float(begin) for begin, _ in spans)
    return jobs / (max(float(end) for _, end in spans) - begun)

"""Two worker processes on one database, beside two limit loops and beside one worker."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack

import psycopg

from tests.bench.conditions import FRESH
from tests.bench.figure import Bench, Contest, Result, Target
from tests.bench.figures.drains import BATCH, SLOTS
from tests.bench.limit_loop import LimitLoop
from tests.bench.site import fill, refresh, site
from tests.bench.subject import Spec
from tests.bench.subjects import ROOT, Subject, drain, rate

NAMES = ("drain_two_processes",)
LOOK_S = 0.02
LIVE = "select exists (select from holdfast.queue)"


def measure(bench: Bench) -> list[Result]:
    """Measure all three in turn."""
    jobs = bench.scale.jobs * 2
    with site(bench.server, FRESH) as url:
        contest = Contest(
            bench.scale.rounds,
            {
                "ours": lambda: _ours(url, jobs),
                "limit": lambda: _limit(url, jobs),
                "one": lambda: _one(url, jobs),
            },
        )
    share = contest.ratio("ours", "limit")
    return [
        contest.result(
            "drain_two_processes",
            "jobs/s",
            against="two limit loops",
            beside={"one_process": "one"},
            target=Target("ratio", share, floor=0.7, goal=0.9),
        )
    ]


def _one(url: str, jobs: int) -> float:
    refresh(url, FRESH)
    fill(url, "noop", jobs)
    return rate([drain(Spec(url, ("noop",), jobs=jobs, slots=SLOTS, batch=BATCH))])


def _ours(url: str, jobs: int) -> float:
    refresh(url, FRESH)
    fill(url, "noop", jobs)
    spec = Spec(url, ("noop",), slots=SLOTS, batch=BATCH)
    with ExitStack() as stack:
        subjects = [stack.enter_context(Subject(spec)) for _ in range(2)]
        for each in subjects:
            each.go()
        _wait_until_empty(url)
        for each in subjects:
            each.stop()
        return rate([each.report() for each in subjects])


def _wait_until_empty(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(LIVE).fetchone() == (True,):
            time.sleep(LOOK_S)


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

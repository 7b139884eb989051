"""Draining no-op jobs with one process: fresh, and under every condition that slows queues down."""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from tests.bench.bare_loop import drain_bare
from tests.bench.command import BareWorker, Command, Drained, drain
from tests.bench.conditions import FRESH, Condition, snapshot_held
from tests.bench.figure import Bench, Contest, Result, Target, with_beside
from tests.bench.limit_loop import LimitLoop
from tests.bench.site import fill, refresh, site

BATCH = 200
"""What the hand-written loops claim at once."""

CONDITIONS = {
    "drain_held_snapshot": Condition("held snapshot", held_snapshot=True),
    "drain_after_finished": Condition("after finished"),
    "drain_unhandled_backlog": Condition("unhandled backlog", unhandled=1_000_000),
    "drain_in_flight": Condition("in flight", in_flight=5_000),
}
NAMES = ("drain", *CONDITIONS)


def measure(bench: Bench) -> list[Result]:
    """Measure the fresh drain and the conditions asked for, interleaved."""
    wanted = {
        name: _sized(condition, bench)
        for name, condition in CONDITIONS.items()
        if name in bench.wanted
    }
    with ExitStack() as stack:
        contenders = {}
        for name, condition in {"drain": FRESH, **wanted}.items():
            url = stack.enter_context(site(bench.server, condition))
            runs = Runs(url, condition, bench.scale.jobs)
            contenders[name] = runs.ours
            contenders[f"{name} limit"] = runs.limit
            if condition is FRESH and "drain" in bench.wanted:
                fresh = runs
                contenders |= {"bare worker": runs.bare_worker, "bare loop": runs.bare_loop}
        contest = Contest(bench.scale.rounds, contenders)
    results = [_fresh(contest, fresh)] if "drain" in bench.wanted else []
    return results + [_beside_fresh(contest, name) for name in wanted]


def _sized(condition: Condition, bench: Bench) -> Condition:
    if condition.name == "after finished":
        return Condition(condition.name, finished=bench.scale.finished)
    return condition.scaled(bench.scale.share)


class Runs:
    """The contenders under one condition."""

    def __init__(self, url: str, condition: Condition, jobs: int) -> None:
        self._url = url
        self._condition = condition
        self._jobs = jobs * 3 if condition.held_snapshot else jobs
        self.costs: list[tuple[float, float]] = []

    def ours(self) -> float:
        """Drain with the command as people type it; note what it cost."""
        drained = self._drained(Command(self._url))
        self.costs.append((drained.worker_us, drained.server_us))
        return drained.rate

    def bare_worker(self) -> float:
        """Drain with the worker object alone."""
        return self._drained(BareWorker(self._url)).rate

    def _drained(self, command: Command) -> Drained:
        refresh(self._url, self._condition)
        with snapshot_held(self._url, self._condition.held_snapshot):
            filled = fill(self._url, "noop", self._jobs)
            return drain(command, filled, self._jobs)

    def limit(self) -> float:
        """Drain with the hand-written loop."""
        with LimitLoop(self._url, BATCH) as loop:
            if self._condition.is_seeded:
                loop.vacuum()
            else:
                loop.empty()
            with snapshot_held(self._url, self._condition.held_snapshot):
                loop.start(self._jobs)
                return loop.drain().rate

    def bare_loop(self) -> float:
        """Drain one table without history."""
        return drain_bare(self._url, self._jobs, BATCH)


def _fresh(contest: Contest, runs: Runs) -> Result:
    share = contest.ratio("drain", "drain limit")
    worker_us, server_us = (statistics.median(each) for each in zip(*runs.costs, strict=True))
    result = contest.result(
        "drain",
        "jobs/s",
        ours="drain",
        limit="drain limit",
        beside={"bare_worker": "bare worker", "bare_loop": "bare loop"},
        target=Target("ratio", share, floor=0.7, goal=0.9),
    )
    return with_beside(result, {"worker_us": worker_us, "server_us": server_us})


def _beside_fresh(contest: Contest, name: str) -> Result:
    share = contest.ratio(name, "drain")
    return contest.result(
        name,
        "jobs/s",
        ours=name,
        limit=f"{name} limit",
        against="limit loop under the same condition",
        beside={"fresh": "drain"},
        target=Target("× our fresh drain", share, floor=0.8, goal=0.95),
    )

"""Draining no-op jobs with one process: fresh, and under every condition that slows queues down."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
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
    """Measure the fresh drain, and the conditions asked for with a fresh drain among them, each interleaved."""
    results = [_fresh(bench)] if "drain" in bench.wanted else []
    wanted = {
        name: _sized(condition, bench)
        for name, condition in CONDITIONS.items()
        if name in bench.wanted
    }
    return results + (_under(bench, wanted) if wanted else [])


def _fresh(bench: Bench) -> Result:
    with site(bench.server, FRESH) as url:
        runs = Runs(url, FRESH, bench.scale.jobs)
        contest = Contest(
            bench.scale.rounds,
            {
                "ours": runs.ours,
                "limit": runs.limit,
                "bare worker": runs.bare_worker,
                "bare loop": runs.bare_loop,
            },
        )
    worker_us, server_us = (statistics.median(each) for each in zip(*runs.costs, strict=True))
    result = contest.result(
        "drain",
        "jobs/s",
        beside={"bare_worker": "bare worker", "bare_loop": "bare loop"},
        target=Target("ratio", contest.ratio("ours", "limit"), floor=0.7, goal=0.9),
    )
    return with_beside(result, {"worker_us": worker_us, "server_us": server_us})


def _under(bench: Bench, conditions: Mapping[str, Condition]) -> list[Result]:
    with ExitStack() as stack:
        contenders = {}
        for name, condition in {"fresh": FRESH, **conditions}.items():
            url = stack.enter_context(site(bench.server, condition))
            runs = Runs(url, condition, bench.scale.jobs)
            contenders[name] = runs.ours
            if condition is not FRESH:
                contenders[f"{name} limit"] = runs.limit
        contest = Contest(bench.scale.side_rounds, contenders)
    return [
        contest.result(
            name,
            "jobs/s",
            ours=name,
            limit=f"{name} limit",
            against="limit loop under the same condition",
            beside={"fresh": "fresh"},
            target=Target("× our fresh drain", contest.ratio(name, "fresh"), floor=0.8, goal=0.95),
        )
        for name in conditions
    ]


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

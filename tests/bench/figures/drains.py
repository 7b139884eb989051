"""Draining no-op jobs with one process: fresh, and under every condition that slows queues down."""

from __future__ import annotations

from contextlib import ExitStack

from tests.bench.bare_loop import drain_bare
from tests.bench.conditions import FRESH, Condition, snapshot_held
from tests.bench.figure import Bench, Contest, Result, Target
from tests.bench.limit_loop import LimitLoop
from tests.bench.site import fill, refresh, site
from tests.bench.subject import Spec
from tests.bench.subjects import drain, rate

BATCH = 200
SLOTS = 50

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
            runs = _Runs(url, condition, bench.scale.jobs)
            contenders[name] = runs.ours
            contenders[f"{name} limit"] = runs.limit
            if condition is FRESH:
                contenders["bare"] = runs.bare
        contest = Contest(bench.scale.rounds, contenders)
    results = [_fresh(contest)] if "drain" in bench.wanted else []
    return results + [_beside_fresh(contest, name) for name in wanted]


def _sized(condition: Condition, bench: Bench) -> Condition:
    if condition.name == "after finished":
        return Condition(condition.name, finished=bench.scale.finished)
    return condition.scaled(bench.scale.share)


class _Runs:
    """The contenders under one condition."""

    def __init__(self, url: str, condition: Condition, jobs: int) -> None:
        self._url = url
        self._condition = condition
        self._jobs = jobs * 3 if condition.held_snapshot else jobs

    def ours(self) -> float:
        refresh(self._url, self._condition)
        with snapshot_held(self._url, self._condition.held_snapshot):
            fill(self._url, "noop", self._jobs)
            spec = Spec(self._url, ("noop",), jobs=self._jobs, slots=SLOTS, batch=BATCH)
            return rate([drain(spec)])

    def limit(self) -> float:
        with LimitLoop(self._url, BATCH) as loop:
            if self._condition.is_seeded:
                loop.vacuum()
            else:
                loop.empty()
            with snapshot_held(self._url, self._condition.held_snapshot):
                loop.start(self._jobs)
                return loop.drain().rate

    def bare(self) -> float:
        return drain_bare(self._url, self._jobs, BATCH)


def _fresh(contest: Contest) -> Result:
    share = contest.ratio("drain", "drain limit")
    return contest.result(
        "drain",
        "jobs/s",
        ours="drain",
        limit="drain limit",
        beside={"bare_loop": "bare"},
        target=Target("ratio", share, floor=0.5, goal=0.8),
    )


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

"""Makes a failing plan smaller: faults, jobs and processes are left out for as long as the same law is broken."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from tests.simulation.plan import Plan
from tests.simulation.run import Result, simulate

T = TypeVar("T")
MOST_RUNS = 300


class Shrunk(msgspec.Struct, frozen=True):
    """A smaller plan that fails as the given one did, and how."""

    plan: Plan
    result: Result

    @property
    def text(self) -> str:
        """The plan, what happened, and which law it broke."""
        plan = msgspec.json.format(msgspec.json.encode(self.plan)).decode()
        return "\n".join([plan, *self.result.trace, *self.result.breaches])


def shrink(plan: Plan, run: Callable[[Plan], Result] = simulate) -> Shrunk:
    """Return a plan from which nothing more can be left out, or only after too many tries."""
    best = run(plan)
    law = _law(best)
    runs = 0

    def fails(smaller: Plan) -> bool:
        nonlocal best, runs
        runs += 1
        if runs > MOST_RUNS:
            return False
        result = run(smaller)
        if _law(result) != law:
            return False
        best = result
        return True

    def with_faults(faults: Sequence[object]) -> Plan:
        return msgspec.structs.replace(plan, faults=list(faults))

    def with_jobs(jobs: Sequence[object]) -> Plan:
        return msgspec.structs.replace(plan, jobs=list(jobs))

    def with_events(events: Sequence[object]) -> Plan:
        return msgspec.structs.replace(plan, events=list(events))

    if not best.breaches:
        return Shrunk(plan, best)
    plan = with_faults(_fewer(plan.faults, lambda left: fails(with_faults(left))))
    plan = with_jobs(_fewer(plan.jobs, lambda left: bool(left) and fails(with_jobs(left))))
    plan = with_events(_fewer(plan.events, lambda left: fails(with_events(left))))
    return Shrunk(plan, best)


def _law(result: Result) -> str:
    return result.breaches[0].partition(":")[0] if result.breaches else ""


def _fewer(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Leave out as many as possible, halves first, then quarters, then single ones."""
    size = max(1, len(items) // 2)
    while True:
        at = 0
        while at < len(items):
            left = [*items[:at], *items[at + size :]]
            if fails(left):
                items = left
            else:
                at += size
        if size == 1:
            return items
        size //= 2

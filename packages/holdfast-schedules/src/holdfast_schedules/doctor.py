"""Checks of schedules: late ones, types that no live worker handles, and due times that could not be started."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.duration import format_span, pluralize
from holdfast.scheduler.doctor import Finding, ok, problem, warning
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast_schedules.commands import MAX_WORKERS
from holdfast_schedules.schedule_store import SCHEDULES, ScheduleTotals


def check_schedules(store: Store) -> Op[list[Finding]]:
    """Check schedules; where there is none there is nothing to say."""
    totals = yield from SCHEDULES.totals()
    if not totals:
        return []
    workers = yield from store.workers.page(MAX_WORKERS, live=True)
    handled = {type for each in workers for type in each.types}
    return [_check_late(totals), _check_types(totals, handled), _check_refused(totals)]


CHECKS = (check_schedules,)


def _check_late(totals: Sequence[ScheduleTotals]) -> Finding:
    count, paused = sum(each.count for each in totals), sum(each.paused for each in totals)
    measured = f"{pluralize(count, 'schedule')}, {paused} paused"
    late = [each for each in totals if each.late]
    if late:
        listed = ", ".join(
            f"{each.late} of {each.type}, the first {format_span(each.now - (each.next_at or each.now))}"
            for each in late
        )
        return problem(
            "schedules_late",
            f"{measured}; late: {listed}",
            "no worker starts their jobs",
            "start a worker of an application that has these types and calls add_schedules(app)",
        )
    return ok("schedules_late", f"{measured}, none late")


def _check_types(totals: Sequence[ScheduleTotals], handled: set[str]) -> Finding:
    unknown = [
        each.type for each in totals if each.type not in handled and each.count > each.paused
    ]
    if unknown:
        return warning(
            "schedules_types",
            f"types that no live worker handles: {', '.join(unknown)}",
            "jobs of their schedules would wait",
            "start a worker that handles them, or find the schedules with `holdfast schedules list --type TYPE`",
        )
    return ok("schedules_types", f"{pluralize(len(totals), 'type')}, all handled")


def _check_refused(totals: Sequence[ScheduleTotals]) -> Finding:
    refused = [each for each in totals if each.refused]
    if refused:
        listed = ", ".join(f"{each.refused} of {each.type}" for each in refused)
        return problem(
            "schedules_refused",
            f"schedules whose latest due time could not be started: {listed}",
            "no job ran for these due times",
            "see the error with `holdfast schedules show NAME`, then set it again with an input that fits",
        )
    return ok("schedules_refused", "every due time could be started")

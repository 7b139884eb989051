"""The law that totals, which are sums of appended counts, equal the rows they stand for."""

from __future__ import annotations

from collections import Counter

from holdfast.core.records import LIVE, JobRecord, TypeTotals
from holdfast.storage.operation import Op
from holdfast.storage.query import JobQuery
from holdfast.testing.conformance.stage import Stage

# Above what any test writes, so that nothing is cut off.
BOUND = 10_000


def counters_equal_rows(stage: Stage) -> Op[None]:
    """Compare the totals, in all and per type, with the jobs themselves."""
    rows = yield from stage.store.jobs.page(JobQuery(limit=BOUND), stage.now)
    told = yield from _totals_equal(stage, rows)
    assert told == (yield from stage.store.workers.type_totals(stage.now))
    types = {row.type for row in rows} | {each.type for each in told}
    assert told == [
        _type_totals(type, [row for row in rows if row.type == type], stage.now)
        for type in sorted(types)
    ]


def _totals_equal(stage: Stage, rows: list[JobRecord]) -> Op[list[TypeTotals]]:
    states = Counter(row.state for row in rows)
    due = _due(rows, stage.now)
    totals, types = yield from stage.store.workers.totals(BOUND, stage.now)
    assert totals.live == sum(states[state] for state in LIVE)
    assert totals.blocked == states["blocked"]
    assert totals.running == states["running"]
    assert totals.due == len(due)
    assert totals.oldest_due_at == min(due, default=None)
    assert totals.completed == states["completed"]
    assert totals.failed == states["failed"]
    assert totals.cancelled == states["cancelled"]
    assert not totals.bounded
    return types


def _type_totals(type: str, rows: list[JobRecord], now: int) -> TypeTotals:
    states = Counter(row.state for row in rows)
    return TypeTotals(
        type=type,
        live=sum(states[state] for state in LIVE),
        completed=states["completed"],
        failed=states["failed"],
        cancelled=states["cancelled"],
        oldest_due_at=min(_due(rows, now), default=None),
    )


def _due(rows: list[JobRecord], now: int) -> list[int]:
    return [
        row.available_at
        for row in rows
        if row.state == "pending" and row.available_at is not None and row.available_at <= now
    ]

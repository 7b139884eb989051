"""The demo's figures, all read from the database: the shop's own tables, the queue and its waits."""

from __future__ import annotations

import time
from dataclasses import dataclass

from holdfast.core.cycle import CycleRecord
from holdfast.core.records import Instant, JobRecord, QueueTotals
from holdfast.core.schedule import parse_schedule
from holdfast.demo import tables
from holdfast.demo.shop import CHARGE, app
from holdfast.storage.operation import run
from holdfast.storage.store.pagination import JobQuery

RATE_OVER_S = 5.0

_COUNTED = 10_000
_WAITS_OF = 200
# Types that wait only for a worker: from creation to start is their whole wait.
_PLAIN_TYPES = ("order.placed/mail_receipt", "order.ship", "stock.reserve")


@dataclass(frozen=True, slots=True)
class Ledger:
    """The shop's own books."""

    orders: int
    paid: int
    paid_twice: int
    unpaid: int
    in_payment: int
    shipped: int
    mailed: int
    paid_lately: int

    @property
    def per_second(self) -> float:
        """Recent payments per second."""
        return self.paid_lately / RATE_OVER_S


@dataclass(frozen=True, slots=True)
class DemoFigures:
    """All figures, of one snapshot."""

    ledger: Ledger
    queue: QueueTotals
    charges_open: int
    p95_wait_ms: float | None
    next_cycle: tuple[str, float] | None

    @property
    def is_drained(self) -> bool:
        """Whether all jobs have finished."""
        return self.queue.live == 0

    @property
    def wait(self) -> str:
        """The 95th percentile of the wait, formatted."""
        ms = self.p95_wait_ms
        if ms is None:
            return "-"
        return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"

    @property
    def lost(self) -> int:
        """Unpaid orders without a job that is live or waits to be redriven."""
        return max(0, self.ledger.unpaid - self.charges_open)


def read_figures(connection: tables.Connection) -> DemoFigures:
    """Read the shop's own tables and the queue."""
    store = app.database.store
    query = JobQuery(limit=_WAITS_OF, states=("completed",), types=_PLAIN_TYPES)
    with tables.snapshot(connection) as executor:
        row = tables.execute(connection, tables.LEDGER, since=time.time() - RATE_OVER_S)
        queue, types = run(store.workers.totals(_COUNTED), executor)
        jobs = run(store.jobs.page(query), executor)
        cycles = run(store.cycles.page(), executor)
        now = run(store.schema.clock(), executor)
    assert row is not None
    charges_open = sum(each.live + each.failed for each in types if each.type == CHARGE)
    return DemoFigures(
        Ledger(*row), queue, charges_open, p95_wait_ms(jobs), _next_cycle(cycles, now)
    )


def _next_cycle(cycles: list[CycleRecord], now: Instant) -> tuple[str, float] | None:
    """Return which cycle runs next, and in how many seconds; None before a worker has registered it."""
    due = [(parse_schedule(each.schedule, each.zone).next_after(now), each.name) for each in cycles]
    if not due:
        return None
    at, name = min(due)
    return name, (at - now) / 1_000_000


def p95_wait_ms(jobs: list[JobRecord]) -> float | None:
    """Return the 95th percentile of the wait from creation to start, of first attempts."""
    waits = sorted(
        (each.started_at - each.created_at) / 1000
        for each in jobs
        if each.started_at is not None and each.attempt == 1
    )
    if not waits:
        return None
    return max(0.0, waits[min(len(waits) - 1, int(len(waits) * 0.95))])

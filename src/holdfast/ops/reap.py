"""Reaping: taking back what dead workers held, and letting go of whatever waited for those that are spent."""

from __future__ import annotations

import msgspec

from holdfast.core.model import Instant
from holdfast.ops.blockers import FanIn, close_chains
from holdfast.storage.port import Store
from holdfast.storage.records import ReapPage
from holdfast.storage.statement import Op

BATCH = 100
POISON_LIMIT = 3


class ReapReport(msgspec.Struct):
    """One page of the reaper's work, and what it led to."""

    page: ReapPage
    fan_in: FanIn


def reap_leases(
    store: Store,
    limit: int = BATCH,
    poison: int = POISON_LIMIT,
    after: tuple[Instant, str] | None = None,
    now: Instant | None = None,
) -> Op[ReapReport]:
    """Take back one page of expired leases in one transaction."""
    page = yield from store.leases.reap(limit, poison, after, now)
    spent = [each.id for each in page.reaped if each.state == "failed" and each.awaited]
    records = (yield from store.jobs.get(spent)) if spent else []
    fan_in = yield from close_chains(store, [(each.chain_id, "failed") for each in records], now)
    return ReapReport(page, fan_in)

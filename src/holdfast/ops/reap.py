"""Reaping: taking back what dead workers held, and letting go of whatever waited for those that are spent."""

from __future__ import annotations

import msgspec

from holdfast.core.model import Held, Instant, State
from holdfast.ops.blockers import FanIn, close_chains
from holdfast.storage.port import Store
from holdfast.storage.records import ReapPage
from holdfast.storage.statement import Op

BATCH = 100
POISON_LIMIT = 3
RECENT_MS = 600_000
MOST_WORKERS = 1_000


class ReapReport(msgspec.Struct):
    """One page of the reaper's work, and what it led to; `failed` are the chains of jobs that are spent."""

    page: ReapPage
    failed: list[str]
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
    spent = {each.id: each.awaited for each in page.reaped if each.state == "failed"}
    records = (yield from store.jobs.get(sorted(spent))) if spent else []
    over: list[tuple[str, State]] = [
        (each.chain_id, "failed") for each in records if spent[each.id]
    ]
    fan_in = yield from close_chains(store, over, now)
    if page.reaped:
        # Last, when everything else has been accepted: what a lost handler has locked is free for the next one.
        yield from store.leases.evict([Held(each.id, each.token) for each in page.reaped])
    return ReapReport(page, [each.chain_id for each in records], fan_in)


def fleet_fell_silent(
    store: Store, quiet_ms: int, besides: str = "", now: Instant | None = None
) -> Op[bool]:
    """Say whether leases have ended, and all workers of a short while ago are silent, as after an outage."""
    present = (yield from store.schema.clock()) if now is None else now
    leases = yield from store.leases.page(1)
    if not leases or leases[0].expires_at > present:
        return False
    there = yield from store.workers.page(MOST_WORKERS, RECENT_MS, now)
    others = [each.seen_at for each in there if each.stopped_at is None and each.id != besides]
    return bool(others) and all(present - seen_at > quiet_ms * 1000 for seen_at in others)

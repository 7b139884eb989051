"""Ending attempts with what follows for other jobs, and reaping: taking back what dead workers held.

Also how far the database's clock was set back, so that what was due by the old clock is due by the new one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.commands.blockers import (
    FanIn,
    attach_blockers,
    close_chains,
    fail_later,
    refuse_circle,
)
from holdfast.commands.change import due_hints, ended_hints, group_by_worker, lost_hints
from holdfast.core.instants import Instant
from holdfast.core.records import Finish, Finished, Held, LeaseStatus, Reaped, ReapPage, State
from holdfast.core.worker_presence import WorkerRecord
from holdfast.notify.base import Hint
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.storage.store.pagination import JobQuery

_ENDS: dict[str, State] = {"complete": "completed", "fail": "failed", "cancel": "cancelled"}


class FinishReport(msgspec.Struct):
    """Which finishes were accepted, and what they led to; `failing` are the jobs whose `on_failed` is called next."""

    accepted: list[Finished]
    fan_in: FanIn
    failing: frozenset[str] = frozenset()

    def outcome_of(self, finish: Finish) -> Finish:
        """Return what was recorded: a job has yet to fail if the next attempt is the call of its `on_failed`."""
        return (
            msgspec.structs.replace(finish, kind="retry") if finish.id in self.failing else finish
        )


def finish_attempts(
    store: Store, finishes: Sequence[Finish], freed: Sequence[str] = (), now: Instant | None = None
) -> Op[FinishReport]:
    """End attempts in one transaction, awaited ones included. Raises: CircularWait."""
    accepted = yield from store.jobs.finish(finishes, freed, awaited=True, now=now)
    hits = {each.id: each for each in accepted}
    mine = [each for each in finishes if each.id in hits]
    edges = [edge for each in mine if each.kind == "continue" for edge in each.next_blockers]
    if edges:
        yield from attach_blockers(store, edges, now)
        waiting = [each for each in mine if each.kind == "continue" and each.next_blockers]
        for each in waiting:
            # A chain that is not awaited has no waiters, unless they were attached in this very transaction.
            if hits[each.id].awaited or len(waiting) > 1:
                yield from refuse_circle(store, each.chain_id, each.next_blockers)
    failing = yield from fail_later(
        store, [each.id for each in mine if each.on_failed == "due"], now
    )
    called = [each.id for each in mine if each.on_failed == "called"]
    if called:
        yield from store.on_failed.defer(called, 0, now)
    ended = [
        (each.chain_id, _ENDS[each.kind])
        for each in mine
        if each.kind in _ENDS and hits[each.id].awaited and each.id not in failing
    ]
    fan_in = yield from close_chains(store, ended, now)
    return FinishReport(accepted, fan_in, frozenset(failing))


def finish_unless_awaited(store: Store, finishes: Sequence[Finish]) -> Op[FinishReport]:
    """End attempts without waiting for a lock; one statement, unless one of them is to be failed with `on_failed`."""
    accepted = yield from store.jobs.finish(finishes)
    hits = {each.id for each in accepted}
    failed = [each.id for each in finishes if each.on_failed == "due" and each.id in hits]
    failing = yield from fail_later(store, failed)
    return FinishReport(accepted, FanIn([], []), frozenset(failing))


def read_lease_status(store: Store, pairs: Sequence[Held]) -> Op[list[LeaseStatus]]:
    """Say what became of attempts that a finish did not find; that one is done is said only once it would last."""
    statuses = yield from store.jobs.lease_status(pairs)
    if any(each.lease == "done" for each in statuses):
        yield from store.schema.confirm()
    return statuses


BATCH = 100
POISON_LIMIT = 3
MAX_WORKERS = MAX_LEASES = 1_000
NEWEST_JOBS = 20
BEAT_SLACK = 1.5


class ReapReport(msgspec.Struct):
    """One page of the reaper's work, and what it led to; `failed` are the chains of jobs that are spent."""

    page: ReapPage
    failed: list[str]
    fan_in: FanIn

    def hints(self) -> list[Hint]:
        """Jobs are due again and their workers lost them; chains failed, and jobs that waited for them may be due."""
        return [
            *reaped_hints(self.page.reaped),
            *ended_hints((*self.failed, *(each.chain_id for each in self.fan_in.failed))),
            *due_hints(each.type for each in self.fan_in.opened),
        ]


def reaped_hints(jobs: Sequence[Reaped]) -> list[Hint]:
    """Jobs that were taken back are due again at their places, and their workers have lost them."""
    return [
        *(Hint("look", type) for type in pending_types(jobs)),
        *lost_hints(group_by_worker((each.worker, each.id) for each in jobs)),
    ]


def pending_types(jobs: Sequence[Reaped]) -> list[str]:
    """The types of those jobs that were taken back into the queue."""
    return sorted({each.type for each in jobs if each.state == "pending"})


def reap_leases(
    store: Store,
    limit: int = BATCH,
    poison: int = POISON_LIMIT,
    after: tuple[Instant, str] | None = None,
    now: Instant | None = None,
) -> Op[ReapReport]:
    """Take back one page of expired leases in one transaction."""
    page = yield from store.leases.reap(limit, poison, after, now)
    failed = [each.id for each in page.reaped if each.state == "failed"]
    failing = yield from fail_later(store, failed, now)
    page = msgspec.structs.replace(
        page,
        reaped=[
            msgspec.structs.replace(each, state="pending") if each.id in failing else each
            for each in page.reaped
        ],
    )
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


def returning_within_ms(store: Store, grace_ms: int, present: Instant) -> Op[int]:
    """Return how long workers whose leases have expired may take to renew them, as after an outage; 0 if none may.

    That is `grace_ms`, or their heartbeat's interval if longer: after a jump of the clock nothing makes them renew
    earlier. After so long with a live worker that beat without a gap, the database was there: those missing are gone.
    """
    leases = yield from store.leases.page(BATCH)
    holders = {each.worker for each in leases if each.expires_at <= present}
    if not holders:
        return 0
    there = yield from store.workers.page(MAX_WORKERS, ids=sorted(holders), now=present)
    expected = [
        each for each in there if each.is_missing(present) or _has_just_returned(each, present)
    ]
    if not expected:
        return 0
    within_ms = max(grace_ms, *map(_renewal_ms, expected))
    live = yield from store.workers.page(MAX_WORKERS, live=True, now=present)
    watched_us = max((present - each.steady_since for each in live), default=0)
    return within_ms if watched_us < within_ms * 1000 else 0


def _has_just_returned(worker: WorkerRecord, now: Instant) -> bool:
    """Whether its last renewal may have been before the gap: a beat renews first and gives its sign last."""
    return worker.back_at is not None and now - worker.back_at < _renewal_ms(worker) * 1000


def _renewal_ms(worker: WorkerRecord) -> int:
    return int(worker.timings.get("heartbeat_ms", 0) * BEAT_SLACK)


AHEAD_US = 60_000_000
"""Less than this is no reason to move anything."""


def ahead_us(store: Store, now: Instant) -> Op[int]:
    """Return how far the clock is behind what it showed before, by the newest records of each kind."""
    workers = yield from store.workers.page(MAX_WORKERS)
    leases = yield from store.leases.page(MAX_LEASES)
    runs = yield from store.runs.page(1, AHEAD_US // 1000)
    jobs = yield from store.jobs.page(JobQuery(NEWEST_JOBS))
    seen = [
        *(each.created_at for each in jobs),
        *(each.seen_at for each in workers),
        *(each.claimed_at for each in leases),
        *(each.started_at for each in runs),
    ]
    return max(0, max(seen, default=now) - now)

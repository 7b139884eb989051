"""Leases and workers in SQLite: releasing, reaping and folding the tally take several statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.core.instants import Instant
from holdfast.core.records import HealPage, JobRef, Reaped, ReapPage
from holdfast.core.retry import suspected_from
from holdfast.storage.operation import Op, Statement
from holdfast.storage.sqlite.limits import signal_leaving, signal_placed, signal_returned
from holdfast.storage.sqlite.tally import Tally
from holdfast.storage.store.leases import LeaseStore
from holdfast.storage.store.params import document, resolve_now, texts
from holdfast.storage.store.workers import WorkerStore

_MINUTE_US = 60_000_000
_AGES = {"week": 8 * 24 * 60, "day": 25 * 60, "hours": 7 * 60, "hour": 75}
"""After so many minutes counts are kept in steps of a day, an hour, 12 and 6 minutes."""


class SqliteLeaseStore(LeaseStore):
    """Leases, released and reaped in several statements."""

    def release(self, tokens: Sequence[str], now: Instant | None = None) -> Op[list[JobRef]]:
        given = {"tokens": texts(tokens)}
        now = yield from resolve_now(now)
        rows = yield Statement("lease_release", given)
        yield Statement("lease_drop", given)
        return (yield from signal_returned(rows, now))

    def heal(self, now: Instant | None = None) -> Op[int]:
        return (yield from super().heal((yield from resolve_now(now))))

    def heal_queue(self, after: str, now: Instant | None = None) -> Op[HealPage]:
        now = yield from resolve_now(now)
        ids = [row[0] for row in (yield Statement("queue_page", {"after": after}))]
        healed = yield Statement("queue_heal", {"ids": texts(ids), "now": now})
        yield from signal_placed(ids, now)
        return HealPage(max(ids, default=None), len(ids), len(healed))

    def reap(
        self,
        limit: int,
        poison: int,
        after: tuple[Instant, str] | None = None,
        now: Instant | None = None,
    ) -> Op[ReapPage]:
        now = yield from resolve_now(now)
        after_at, after_token = after or (None, None)
        leases = yield Statement(
            "lease_reap",
            {"limit": limit, "after": after_at, "after_token": after_token, "now": now},
        )
        if not leases:
            return ReapPage([], 0, None)
        tokens = texts(token for token, _ in leases)
        rows = yield Statement("lease_reap_jobs", {"tokens": tokens, "poison": poison, "now": now})
        dropped = [_Dropped(*row) for row in rows]
        if dropped:
            yield from _settle(dropped, suspected_from(poison), now)
        yield Statement("lease_drop", {"tokens": tokens})
        last = max((expires_at, token) for token, expires_at in leases)
        return ReapPage([_reaped_record(each) for each in dropped], len(leases), last)


class _Dropped(NamedTuple):
    """A job whose worker died; `next_at` is None when no further attempt is given."""

    id: str
    token: str
    type: str
    worker: str
    attempt: int
    fence: int
    awaited: int
    crashes: int
    claimed_at: Instant
    stale_ms: int
    alone: int
    poisoned: int
    next_at: Instant | None

    @property
    def error(self) -> str:
        if self.poisoned:
            if self.crashes == 1:
                return "WorkerDied: the worker died while it ran this job, alone"
            times = f"the worker died {self.crashes} times while it ran this job"
            return f"WorkerDied: {times}, the last time alone"
        attempts = (
            "the only attempt is" if self.attempt == 1 else f"all {self.attempt} attempts are"
        )
        return f"WorkerDied: the worker died and {attempts} spent"

    def history_error(self, suspected: int) -> str:
        """The error that the history of attempts shows."""
        ended = f"WorkerDied: the lease of {self.worker} ended {_ago(self.stale_ms)} ago"
        if self.alone:
            return f"{ended}; the job ran alone"
        if self.crashes >= suspected:
            return f"{ended}; the job is suspected and runs alone next"
        return ended

    @property
    def fingerprint(self) -> str:
        return "worker-died" if self.poisoned else "worker-died-attempts-spent"


def _ago(ms: int) -> str:
    return f"{ms} ms" if ms < 1_000 else f"{ms / 1000:.1f} s"


def _settle(dropped: Sequence[_Dropped], suspected: int, now: Instant) -> Op[None]:
    """Fail the jobs that are poisoned or spent, give the others back, and remember every attempt."""
    spent = [
        (each.id, each.crashes, each.worker, each.claimed_at, each.error, each.fingerprint)
        for each in dropped
        if each.next_at is None
    ]
    if spent:
        yield from signal_leaving([row[0] for row in spent], now)
        yield Statement("lease_reap_fail", {"rows": document(spent), "now": now})
        yield Statement("queue_drop", {"ids": texts(row[0] for row in spent)})
    back = [(each.id, each.crashes, each.next_at) for each in dropped if each.next_at is not None]
    if back:
        yield Statement("lease_reap_return", {"rows": document(back)})
        yield from signal_placed([row[0] for row in back], now)
    history = [
        (
            each.id,
            each.fence,
            each.attempt,
            "reap",
            each.worker,
            each.claimed_at,
            each.history_error(suspected),
        )
        for each in dropped
    ]
    yield Statement("attempt_add", {"rows": document(history), "now": now})
    tally = Tally()
    for each in dropped:
        count = tally.of(each.type)
        count.reaped += 1
        count.failed += each.next_at is None
    yield from tally.write(now)


def _reaped_record(each: _Dropped) -> Reaped:
    return Reaped(
        id=each.id,
        type=each.type,
        worker=each.worker,
        state="failed" if each.next_at is None else "pending",
        crashes=each.crashes,
        stale_ms=each.stale_ms,
        awaited=bool(each.awaited),
        token=each.token,
    )


class SqliteWorkerStore(WorkerStore):
    """Workers, whose tally is folded in several statements."""

    def fold_tally(self, limit: int, now: Instant | None = None) -> Op[int]:
        now = yield from resolve_now(now)
        cut = now - now % _MINUTE_US - _MINUTE_US
        ages = {name: now - minutes * _MINUTE_US for name, minutes in _AGES.items()}
        rows = yield Statement("tally_fold_page", {**ages, "cut": cut, "limit": limit})
        ids = msgspec.json.decode(rows[0][0], type=list[int])
        if ids:
            yield Statement("tally_fold", {**ages, "ids": rows[0][0]})
            yield Statement("tally_fold_drop", {"ids": rows[0][0]})
        return len(ids)

"""Limits of the whole fleet: claims through partitions, what was set at run time, and what people ask about."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.instants import Instant
from holdfast.core.partitions import (
    HeldQueue,
    LimitSetting,
    PartitionPlace,
    PartitionRecord,
    PartitionState,
    QueuedJob,
    UnqueuedJob,
)
from holdfast.storage.operation import Op, Statement, Value
from holdfast.storage.store.params import document, fetch, fetch_set, fetch_value, has_rows, texts

MAX_COUNTED = 10_000
"""Where counts of a queue stop."""


class LimitStore:
    """Partitions: who may run, who waits, and what was set for them."""

    def unqueued(self, type: str, limit: int, reads: int | None = None) -> Op[list[UnqueuedJob]]:
        """Read jobs of a limited type that wait in no partition yet, up to a version. One statement."""
        return fetch(UnqueuedJob, "limit_unqueued", type=type, limit=limit, reads=reads)

    def enqueue(
        self, jobs: Sequence[QueuedJob], ordered: bool, now: Instant | None = None
    ) -> Op[int]:
        """Give such jobs their places; return how many had not been moved since. One statement."""
        return fetch_value("limit_enqueue", rows=document(jobs), ordered=ordered, now=now)

    def queued_types(self, types: Sequence[str], now: Instant | None = None) -> Op[set[str]]:
        """Return which of these types have jobs in partitions, and no live worker that limits them. One statement."""
        return fetch_set("limit_queued_types", types=texts(types), now=now)

    def page(
        self,
        type: str,
        limit: int,
        *,
        after: str | None = None,
        period_ms: int = 0,
        max_count: int = 1_000,
        now: Instant | None = None,
    ) -> Op[list[PartitionRecord]]:
        """Read the queues of a type by key; counts stop at `max_count`. One statement."""
        return fetch(
            PartitionRecord,
            "limit_page",
            type=type,
            limit=limit,
            after=after,
            period_ms=period_ms,
            max_count=max_count,
            now=now,
        )

    def shared(self, ids: Sequence[str], period_ms: int = 0) -> Op[list[PartitionRecord]]:
        """Read partitions of whole types and shared names that have been used. One statement."""
        return fetch(PartitionRecord, "limit_shared", ids=texts(ids), period_ms=period_ms, now=None)

    def place(self, job_ids: Sequence[str]) -> Op[list[PartitionPlace]]:
        """Read where jobs wait; those in no partition are left out. One statement."""
        return fetch(PartitionPlace, "limit_place", ids=texts(job_ids), max_count=MAX_COUNTED)

    def states(self, ids: Sequence[str], few: int) -> Op[list[PartitionState]]:
        """Read partitions, used or not, with the first `few` of the jobs that run there. One statement."""
        return fetch(PartitionState, "limit_states", ids=texts(ids), few=few)

    def held(self, types: Sequence[str], limit: int) -> Op[list[HeldQueue]]:
        """Read the keys of ordered types where jobs wait for one that failed, the longest first. One statement.

        Of all failed jobs, the newest `limit` are looked at.
        """
        return fetch(HeldQueue, "limit_held", types=texts(types), limit=limit)

    def settings(self, type: str | None = None, limit: int = 1_000) -> Op[list[LimitSetting]]:
        """Read what was set at run time, for everything or for a type and its keys. One statement."""
        return fetch(LimitSetting, "limit_settings", type=type, limit=limit)

    def paused(self, limit: int, now: Instant | None = None) -> Op[list[LimitSetting]]:
        """Read the partitions that let nothing through for a while, the longest first. One statement."""
        return fetch(LimitSetting, "limit_paused", limit=limit, now=now)

    def set(
        self,
        id: str,
        *,
        allowed: int | None = None,
        rate: int | None = None,
        period_ms: int | None = None,
        by: str | None = None,
        now: Instant | None = None,
    ) -> Op[None]:
        """Set the numbers of a partition, or of every key of a type; None is the code's own. One statement."""
        params: dict[str, Value] = {"id": id, "allowed": allowed, "rate": rate, "by": by}
        yield Statement("limit_set", {**params, "period_ms": period_ms, "now": now})
        yield from self._signal_queues(id, now)

    def clear(self, id: str, now: Instant | None = None) -> Op[bool]:
        """Return to the code's own numbers and end a pause; False when nothing was set. One statement."""
        was_set = yield from has_rows("limit_clear", id=id, now=now)
        yield from self._signal_queues(id, now)
        return was_set

    def rest(
        self,
        id: str,
        ms: int,
        reason: str | None = None,
        by: str | None = None,
        now: Instant | None = None,
    ) -> Op[None]:
        """Let nothing through a partition for so long; 0 ends that. One statement."""
        params: dict[str, Value] = {"id": id, "ms": ms, "reason": reason, "by": by}
        yield Statement("limit_rest", {**params, "now": now})
        yield from self._signal_queues(id, now)

    def sweep(self, after: str, now: Instant | None = None) -> Op[tuple[str | None, int, int]]:
        """Remove partitions nobody needs, in a page by id; return the last id, and how many were seen and removed."""
        ((last, seen, removed),) = yield Statement("limit_sweep", {"after": after, "now": now})
        return last, seen, removed

    def _signal_queues(self, id: str, now: Instant | None) -> Op[None]:
        """Have the queues polled that a setting concerns, where its own statement does not."""
        yield from ()

"""Looks after the fleet in each tick: tells of workers that vanished, and of types that nobody handles."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.model import WorkerRecord
from holdfast.runtime.runner import RunnerContext
from holdfast.storage.port import Store
from holdfast.storage.records import TypeTotals

LOOK_EVERY_MS = 60_000
SETTLE_MS = 5_000
"""Workers that start together with this one, and its own, need a moment to say what they handle."""

_MANY = 1_000


def unhandled_types(workers: Sequence[WorkerRecord], types: Sequence[TypeTotals]) -> list[str]:
    """Return the types with due jobs that none of the live workers handles."""
    handled = {name for worker in workers for name in worker.types}
    return [
        each.type for each in types if each.oldest_due_at is not None and each.type not in handled
    ]


class FleetWatch:
    """One process's eye on the others; each fact is told once."""

    def __init__(self, store: Store, grace_ms: int, every_ms: int = LOOK_EVERY_MS) -> None:
        self._store = store
        self._grace_ms = grace_ms
        self._every_ms = every_ms
        self._look_at_ms: int | None = None
        self._told: set[str] = set()

    async def look(self, context: RunnerContext) -> None:
        """Tell what is new."""
        await self._tell_vanished(context)
        # The process of a single tick works without being registered, so it could not count itself.
        if context.mode != "background":
            return
        now_ms = context.now_ms()
        if self._look_at_ms is None:
            self._look_at_ms = now_ms + SETTLE_MS
        elif now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + self._every_ms
            await self._tell_unhandled(context)

    async def _tell_vanished(self, context: RunnerContext) -> None:
        """Each vanished worker is reported by the one replica that marks it."""
        op = self._store.workers.vanished(self._grace_ms, context.now())
        gone = await context.link.run_atomic(op)
        if not gone:
            return
        now = context.now()
        if now is None:
            now = await context.link.run(self._store.schema.clock())
        for each in gone:
            context.counts.updated += 1
            context.tell(
                "worker_vanished",
                worker=each.id,
                by=context.worker,
                silent_ms=(now - each.seen_at) // 1000,
            )

    async def _tell_unhandled(self, context: RunnerContext) -> None:
        now, link, store = context.now(), context.link, self._store.workers
        workers = await link.run(store.page(_MANY, self._grace_ms, now))
        found = set(unhandled_types(workers, await link.run(store.type_totals(now))))
        for type in sorted(found - self._told):
            context.tell("type_unhandled", type=type, worker=context.worker)
        self._told = found

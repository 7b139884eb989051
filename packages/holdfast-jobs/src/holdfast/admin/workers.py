"""Workers for HTTP, pages and the command line: status, jobs held, drain."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import msgspec

from holdfast.admin.access import Caller, NounAdmin
from holdfast.admin.serializers import plain, redact_text
from holdfast.commands.explain import MAX_WORKERS
from holdfast.commands.workers import drain_worker
from holdfast.core.instants import Instant
from holdfast.core.worker_presence import VANISHED, WorkerRecord
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

Standing = Literal["live", "draining", "silent", "vanished", "stopped"]
"""A silent worker has missed its heartbeats; a vanished one was given up by a reaper, a stopped one said goodbye."""

GONE: tuple[Standing, ...] = ("vanished", "stopped")


class WorkerFacts(msgspec.Struct, frozen=True):
    """A worker, its status, and how many jobs its leases hold."""

    now: Instant
    worker: WorkerRecord
    standing: Standing
    held: int

    def as_json(self) -> dict[str, Any]:
        """Return the facts for programs."""
        return {
            **plain(self.worker),
            "last_error": redact_text(self.worker.last_error),
            "standing": self.standing,
            "held": self.held,
        }


class WorkerAdmin(NounAdmin):
    """What can be asked about workers and done to them."""

    async def list(
        self, caller: Caller, everyone: bool = False, limit: int = 100
    ) -> list[WorkerFacts]:
        """Read workers, newest first; those that are gone only with `everyone`."""

        def op(store: Store) -> Op[list[WorkerFacts]]:
            now = yield from store.schema.clock()
            leases = yield from store.leases.page(MAX_WORKERS)
            held = Counter[str]()
            for each in leases:
                held[each.worker] += each.jobs
            found = yield from store.workers.page(limit)
            if not everyone:
                # Those that are gone may be newer, and more than a page of them.
                found += yield from store.workers.page(limit, live=True)
            records = {(-each.started_at, each.id): each for each in found}
            return [
                WorkerFacts(now, each, standing_of(each, now), held[each.id])
                for _, each in sorted(records.items())
            ]

        facts = await self._gateway.read(caller, "worker.list", op)
        return [each for each in facts if everyone or each.standing not in GONE][:limit]

    async def drain(self, caller: Caller, id: str) -> None:
        """Ask a worker to take nothing new, finish what it runs, and exit. Raises: WorkerNotFound."""
        await self._gateway.run(caller, "worker.drain", lambda store: drain_worker(store, id))


def standing_of(worker: WorkerRecord, now: Instant) -> Standing:
    """Return a worker's status."""
    if worker.stopped_at is not None:
        return "vanished" if worker.last_error == VANISHED else "stopped"
    if not worker.is_live(now):
        return "silent"
    return "draining" if worker.draining else "live"

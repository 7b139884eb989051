"""Keeps a slot while its handler runs: pings the lock, renews the lease, and tells the handler when either is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from holdfast.commands.cycles import renew_slot
from holdfast.core.cycle import HeldSlot
from holdfast.core.errors import DatabaseBusy, DatabaseUnreachable
from holdfast.core.lease import default_heartbeat_ms, local_deadline_ms
from holdfast.scheduler.cycle_run import CycleRun
from holdfast.scheduler.runner import RunnerContext
from holdfast.storage.database import Singleton
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

T = TypeVar("T")

RETRY_S = 1.0


class Keeper:
    """The heartbeat of one run. Without a slot it only gives signs of life."""

    def __init__(
        self,
        run: CycleRun,
        store: Store,
        lock: Singleton | None,
        lease_ms: int,
        context: RunnerContext,
    ) -> None:
        self._run = run
        self._store = store
        self._lock = lock
        self._lease_ms = lease_ms
        self._link = context.link
        self._clock = context.clock
        self._now = context.now
        self._beat_s = default_heartbeat_ms(lease_ms) / 1000
        self._deadline = self._deadline_from(self._clock.monotonic())

    async def keep(self) -> None:
        """Go on until cancelled, or until the run has been told to stop."""
        try:
            while not self._run.aborted:
                await self._clock.sleep(self._beat_s)
                if not await self._holds_lock():
                    self._run.abort("lock_lost")
                elif not await self._renewed():
                    self._run.abort("slot_lost")
        except Exception:
            # A run whose heartbeat has ended, for whatever reason, must not go on.
            self._run.abort("slot_lost")
            raise

    async def write(self, operation: Callable[[], Op[T]]) -> T | None:
        """Run the write that ends the run until it is answered; None when the lease may be over before."""
        while True:
            try:
                return await self._link.run_atomic(operation())
            except (DatabaseUnreachable, DatabaseBusy):
                if self._clock.monotonic() + RETRY_S >= self._deadline:
                    return None
                await self._clock.sleep(RETRY_S)

    async def _holds_lock(self) -> bool:
        if self._lock is None:
            return True
        try:
            await self._lock.ping()
        except DatabaseUnreachable:
            return False
        return True

    async def _renewed(self) -> bool:
        """Renew; an unreachable database is tried again until the lease may be over by the local clock."""
        while True:
            asked_at = self._clock.monotonic()
            try:
                kept = await self._link.run_atomic(self._renewal(self._run.held))
            except (DatabaseUnreachable, DatabaseBusy):
                if self._clock.monotonic() + RETRY_S >= self._deadline:
                    return False
                await self._clock.sleep(RETRY_S)
                continue
            self._deadline = self._deadline_from(asked_at)
            return kept

    def _renewal(self, held: HeldSlot | None) -> Op[bool]:
        counters = counters_text(self._run)
        if held is not None:
            return (yield from renew_slot(self._store, held, self._lease_ms, counters, self._now()))
        yield from self._store.runs.seen(self._run.run_id, counters, self._now())
        return True

    def _deadline_from(self, asked_at: float) -> float:
        return local_deadline_ms(int(asked_at * 1000), self._lease_ms) / 1000


def counters_text(run: CycleRun) -> str:
    """Return the counters of a run as runs record them."""
    counts = msgspec.structs.asdict(run.counts.report())
    return msgspec.json.encode({**counts, **run.numbers}).decode()

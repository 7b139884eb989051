"""A run of a cycle as its handler sees it: its slot, its shard, whether to stop, and fenced transactions."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal

from holdfast.core.cycle import HeldSlot, Slot
from holdfast.core.errors import Aborted, LeaseLost, ShardPairInvalid
from holdfast.core.records import to_datetime
from holdfast.scheduler.runner import RunnerReport
from holdfast.storage.database import Database
from holdfast.storage.operation import run, run_async


@dataclass(frozen=True, slots=True)
class Shard:
    """One part of the tenants, divided by a hash that is the same on every replica."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ShardPairInvalid(f"there is no shard {self.index} of {self.count}")

    def owns(self, tenant: object) -> bool:
        """Return whether a tenant, given by its id, belongs to this shard."""
        digest = blake2b(str(tenant).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.count == self.index

    def name_of(self, cycle: str) -> str:
        """Return the name under which this shard of a cycle locks, runs and is recorded."""
        return f"{cycle}:{self.index}/{self.count}"


WHOLE = Shard(0, 1)
"""All tenants."""


CycleAbort = Literal["lock_lost", "slot_lost", "timeout", "shutdown"]


class CycleRun:
    """One run of one slot. All of it may be used from the handler's thread.

    `shard` is the part of the tenants this run serves, all of them unless the cycle is sharded; `max_items` is how many
    items it should take at most (WORKER_TICK_RUNNER_MAX_ITEMS).
    """

    def __init__(
        self,
        name: str,
        slot: Slot,
        run_id: str,
        worker: str,
        shard: Shard,
        database: Database,
        held: HeldSlot | None,
        max_items: int | None = None,
    ) -> None:
        self.name = name
        self.run_id = run_id
        self.worker = worker
        self.shard = shard
        self.max_items = max_items
        self.counts = RunnerReport()
        self.numbers: dict[str, int | float] = {}
        self.held = held
        self._slot = slot
        self._database = database
        self._flag = threading.Event()
        self._reason: CycleAbort | None = None
        self._on_abort: Callable[[], object] | None = None

    @property
    def slot(self) -> datetime:
        """The time this run is for, or when it was triggered."""
        return to_datetime(self._slot.due_at)

    @property
    def key(self) -> str:
        """The idempotency key of the slot: the same for every run of it, on every replica."""
        return f"{self.name}:{self._slot.name}"

    @property
    def attempt(self) -> int:
        """Which run of the slot this is, from 1."""
        return 1 if self.held is None else self.held.runs

    @property
    def aborted(self) -> bool:
        """Whether the handler must stop."""
        return self._reason is not None

    @property
    def abort_reason(self) -> CycleAbort | None:
        """Why the handler must stop."""
        return self._reason

    def checkpoint(self) -> None:
        """Raise Aborted when the handler must stop; cheap enough for inner loops."""
        if self._reason is not None:
            raise Aborted(self._reason, "the run was aborted")

    def wait_for_abort(self, seconds: float | None = None) -> bool:
        """Sleep in a thread until aborted or the time is over; return whether it was aborted."""
        return self._flag.wait(seconds)

    def transaction(self) -> FencedTransaction:
        """Open a transaction that commits only while this run holds its slot: `with` or `async with`."""
        return FencedTransaction(self._database, self.held)

    def abort(self, reason: CycleAbort) -> None:
        """Abort the handler; the first reason counts."""
        if self._reason is None:
            self._reason = reason
            self._flag.set()
            if self._on_abort is not None:
                self._on_abort()

    def on_abort(self, callback: Callable[[], object]) -> None:
        """Call back when the handler is aborted, now if it was already."""
        self._on_abort = callback
        if self._reason is not None:
            callback()


class FencedTransaction:
    """A transaction whose last statement checks that the slot is held. Raises: LeaseLost, after a rollback."""

    def __init__(self, database: Database, held: HeldSlot | None) -> None:
        self._sync = _fenced(database, held)
        self._async = _fenced_async(database, held)

    def __enter__(self) -> Any:
        return self._sync.__enter__()

    def __exit__(self, *details: Any) -> bool | None:
        return self._sync.__exit__(*details)

    async def __aenter__(self) -> Any:
        return await self._async.__aenter__()

    async def __aexit__(self, *details: Any) -> bool | None:
        return await self._async.__aexit__(*details)


@contextmanager
def _fenced(database: Database, held: HeldSlot | None) -> Iterator[Any]:
    with database.transaction() as tx:
        yield tx
        if held is not None:
            _check(run(database.store.slots.fence(held), tx))


@asynccontextmanager
async def _fenced_async(database: Database, held: HeldSlot | None) -> AsyncIterator[Any]:
    async with database.transaction_async() as tx:
        yield tx
        if held is not None:
            _check(await run_async(database.store.slots.fence(held), tx))


def _check(holds: bool) -> None:
    if not holds:
        raise LeaseLost("slot_lost", "the run no longer holds its slot")

"""What a store must offer to cycles, runs, retention and the doctor; the same rules as in `storage.port`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.cycle import (
    CycleRecord,
    CycleState,
    HeldSlot,
    NewCycle,
    NewRun,
    RunOutcome,
    RunRecord,
    Slot,
)
from holdfast.core.model import Instant
from holdfast.storage.records import Swept
from holdfast.storage.statement import Op


class CycleStore(Protocol):
    """Cycles as they are registered, and what people ask of them. A name means the cycle with all its shards."""

    def register(self, cycles: Sequence[NewCycle], now: Instant | None = None) -> Op[None]:
        """Write cycles, which must be in name order; one whose schedule changed begins anew. One statement."""

    def states(self, names: Sequence[str], now: Instant | None = None) -> Op[list[CycleState]]:
        """Read what decides whether cycles are due, by one clock. One statement."""

    def page(self, now: Instant | None = None) -> Op[list[CycleRecord]]:
        """Read every cycle and who runs it. One statement."""

    def pause(
        self, name: str, paused: bool, by: str | None, now: Instant | None = None
    ) -> Op[list[str]]:
        """Pause or resume; return the names found. What a pause left out is not caught up. One statement."""

    def request(self, name: str, slot: str, now: Instant | None = None) -> Op[list[str]]:
        """Ask for a run now; return the names found. One statement."""

    def advance(self, cycle: str, slot: Slot) -> Op[None]:
        """Note that a slot and all before it are decided. One statement."""


class SlotStore(Protocol):
    """Slot records: each completes at most once."""

    def claim(
        self,
        cycle: str,
        slot: Slot,
        token: str,
        run_id: str,
        lease_ms: int,
        now: Instant | None = None,
    ) -> Op[HeldSlot | None]:
        """Take a slot for one run; None when it is decided, paused, resting after a failure, or the cycle runs.

        Concurrency: claims of one cycle wait for one another; at most one of its slots runs at a time.
        """

    def abandon(self, held: HeldSlot, now: Instant | None = None) -> Op[list[str]]:
        """Give up the cycle's other slots that a dead process left running; return them. One statement."""

    def renew(self, held: HeldSlot, lease_ms: int, now: Instant | None = None) -> Op[bool]:
        """Extend a slot's lease; False when it is lost. One statement."""

    def fence(self, held: HeldSlot) -> Op[bool]:
        """Prove, last in a transaction, that the slot is still held; it cannot be taken over before the commit."""

    def complete(self, held: HeldSlot, now: Instant | None = None) -> Op[bool]:
        """End a slot for good; False when it is lost. Repeating it is harmless. One statement."""

    def fail(self, held: HeldSlot, pause_ms: int | None, now: Instant | None = None) -> Op[bool]:
        """End a run without success: the slot may run again after the pause, without one never. One statement."""


class RunStore(Protocol):
    """Runs of cycles and ticks, also of those that never came to an end."""

    def begin(self, run: NewRun, now: Instant | None = None) -> Op[Instant]:
        """Write a run; return when it began. One statement."""

    def seen(
        self, run_id: str, counters: str | None = None, now: Instant | None = None
    ) -> Op[None]:
        """Give a sign of life, with counters as JSON. One statement."""

    def finish(
        self,
        run_id: str,
        outcome: RunOutcome,
        counters: str,
        error: str | None = None,
        now: Instant | None = None,
    ) -> Op[bool]:
        """End a run; False when it was found dead before. One statement."""

    def crashed(self, run: NewRun, slots: Sequence[str]) -> Op[list[str]]:
        """Mark earlier runs of these slots that never ended as crashed; return their ids. One statement."""

    def page(
        self, limit: int, grace_ms: int, name: str | None = None, now: Instant | None = None
    ) -> Op[list[RunRecord]]:
        """Read the last runs, newest first; one that gave no sign within the grace counts as crashed. One statement."""


class RetentionStore(Protocol):
    """What is old enough to be removed, in bounded batches."""

    def page(self, after: str, until: str, limit: int) -> Op[list[str]]:
        """Read the ids of chains between two ids, oldest first. One statement."""

    def hold(
        self,
        chain_ids: Sequence[str],
        before: Instant,
        dead_before: Instant,
        now: Instant | None = None,
    ) -> Op[list[str]]:
        """Lock and return the chains that ended before the instants and whose key no longer counts.

        Concurrency: what others hold is skipped.
        """

    def waited(self, chain_ids: Sequence[str]) -> Op[set[str]]:
        """Read which of the chains a live job depends on. One statement."""

    def drop_runs(self, until: str, limit: int) -> Op[int]:
        """Remove runs whose id lies before one; return how many. One statement."""

    def drop_slots(self, before: Instant, limit: int) -> Op[int]:
        """Remove slots that ended before an instant; return how many. One statement."""

    def drop_keys(self, before: Instant, limit: int) -> Op[int]:
        """Remove keys whose chains went before an instant; return how many. One statement."""

    def drop_workers(self, before: Instant, limit: int) -> Op[int]:
        """Remove workers that stopped before an instant; return how many. One statement."""


class VitalsStore(Protocol):
    """What the database says of itself."""

    def document(self) -> Op[str]:
        """Read the dialect's own figures as one JSON object. It only reads."""

    def sweep(self, few: int) -> Op[Swept | None]:
        """Remove dead rows where there are more than a few; None where there was nothing to do, or no right to do it.

        Runs outside a transaction only.
        """

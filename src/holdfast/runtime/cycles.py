"""Cycles as runners: each looks whether a slot is due and runs it, a singleton under its lock and its slot record."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import msgspec

from holdfast.core.cycle import (
    LOCK_PREFIX,
    CycleSpec,
    CycleState,
    HeldSlot,
    NewRun,
    Slot,
    plan_slots,
)
from holdfast.core.errors import Aborted
from holdfast.core.model import Instant
from holdfast.ops.cycle import begin_slot
from holdfast.runtime.board import Board
from holdfast.runtime.cycle_run import CycleRun
from holdfast.runtime.ending import Ending, end_run
from holdfast.runtime.handling import Around, Handled, handle, nothing_around
from holdfast.runtime.keeper import Keeper
from holdfast.runtime.runner import Manner, RunnerContext, RunnerReport
from holdfast.runtime.shards import WHOLE, Shard
from holdfast.storage.database import Database, Singleton
from holdfast.storage.identifiers import new_id


@dataclass(frozen=True, slots=True)
class CyclePlace:
    """What all cycles of a process share."""

    database: Database
    board: Board
    threads: Executor
    lease_ms: int
    shard: Shard | None = None
    around: Around = nothing_around


def stored_name(spec: CycleSpec, shard: Shard | None) -> str:
    """Return the name under which a cycle locks, runs and is recorded: with its shard, if it has one."""
    return spec.name if shard is None or not spec.sharded else shard.name_of(spec.name)


class CycleRunner:
    """One cycle. It goes beside all others: none of them waits for it."""

    manner: Manner = "beside"

    def __init__(self, spec: CycleSpec, place: CyclePlace) -> None:
        self.name = spec.name
        self.max_ms = spec.timeout_ms
        self._spec = spec
        self._place = place
        self._stored = stored_name(spec, place.shard)
        # A cycle that is not divided runs once for all tenants, however many shards the replicas are.
        self._shard = (place.shard if spec.sharded else None) or WHOLE
        self._last: Instant | None = None

    async def run(self, context: RunnerContext) -> RunnerReport:
        state = await self._place.board.state(self._stored, context)
        if not self._spec.singleton:
            state = self._of_this_process(state, context)
        plan = plan_slots(self._spec, state)
        context.wake_in((plan.next_at - state.now) // 1000 + 1)
        if plan.slots and state.running is not None:
            self._skip(context, "slot_is_running")
        elif plan.slots and self._spec.singleton:
            await self._run_locked(plan.slots, context)
        else:
            await self._run_in_turn(plan.slots, None, context)
        return context.counts.report()

    def _of_this_process(self, state: CycleState, context: RunnerContext) -> CycleState:
        """A cycle that runs on every replica counts its slots from when the replica began."""
        if context.mode == "tick":
            # The process of a single tick has no memory, so the record of the last one serves it.
            return msgspec.structs.replace(state, closed=())
        if self._last is None or state.paused:
            self._last = state.now
        return msgspec.structs.replace(state, last_slot=self._last, closed=())

    async def _run_locked(self, slots: Sequence[Slot], context: RunnerContext) -> None:
        lock = self._place.database.singleton(f"{LOCK_PREFIX}{self._stored}")
        if not await lock.acquire():
            self._skip(context, "lock_is_held")
            return
        try:
            await self._run_in_turn(slots, lock, context)
        finally:
            await lock.release()

    async def _run_in_turn(
        self, slots: Sequence[Slot], lock: Singleton | None, context: RunnerContext
    ) -> None:
        for slot in slots:
            if context.budget.exhausted(context.now_ms()):
                return
            if not self._spec.singleton and not slot.requested:
                await self._unheld(slot, context)
            elif not await self._held(slot, lock, context):
                return

    async def _unheld(self, slot: Slot, context: RunnerContext) -> None:
        """Run a slot that other replicas run as well, so that nobody holds it."""
        store = self._place.database.store
        run = NewRun(new_id(), self._stored, context.worker, slot.name)
        await context.link.run(store.runs.begin(run, context.now()))
        self._last = slot.due_at
        if context.mode == "tick":
            await context.link.run(store.cycles.advance(self._stored, slot))
        await self._perform(slot, run.id, None, None, context)

    async def _held(self, slot: Slot, lock: Singleton | None, context: RunnerContext) -> bool:
        """Run a slot under its record; False when it is not to be had."""
        run = NewRun(new_id(), self._stored, context.worker, slot.name)
        store, lease_ms = self._place.database.store, self._place.lease_ms
        held = await context.link.run_atomic(
            begin_slot(store, run, slot, new_id(), lease_ms, context.now())
        )
        if held is None:
            self._skip(context, "slot_is_taken")
            return False
        await self._perform(slot, run.id, held, lock, context)
        return True

    async def _perform(
        self,
        slot: Slot,
        run_id: str,
        held: HeldSlot | None,
        lock: Singleton | None,
        context: RunnerContext,
    ) -> None:
        """Run the handler under its heartbeat and write down how it ended. Raises: what the handler raised."""
        place = self._place
        run = CycleRun(
            self._stored,
            slot,
            run_id,
            context.worker,
            self._shard,
            place.database,
            held,
            context.budget.items,
        )
        keeper = Keeper(run, place.database.store, lock, place.lease_ms, context)
        began = context.now_ms()
        context.tell("cycle_started", worker=context.worker, cycle=self._stored, slot=slot.name)
        handled = await self._handled(run, keeper, context)
        ending = Ending.of(run, handled, self._spec)
        outcome = await keeper.write(
            lambda: end_run(place.database.store, run, ending, context.now())
        )
        context.counts.add(run.counts.report())
        context.tell(
            "cycle_finished",
            worker=context.worker,
            cycle=self._stored,
            slot=slot.name,
            outcome=outcome or "aborted",
            duration_ms=context.now_ms() - began,
            error=ending.error,
        )
        if handled.was_cancelled:
            raise asyncio.CancelledError
        if outcome != "completed":
            raise _told(handled.error, ending) or Aborted(run.abort_reason or "slot_lost")

    async def _handled(self, run: CycleRun, keeper: Keeper, context: RunnerContext) -> Handled:
        beat = asyncio.create_task(keeper.keep(), name=f"holdfast keeper {self._stored}")
        try:
            return await handle(self._spec, run, context, self._place.threads, self._place.around)
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)

    def _skip(self, context: RunnerContext, reason: str) -> None:
        context.counts.skipped += 1
        context.tell("cycle_skipped", worker=context.worker, cycle=self._stored, reason=reason)


def _told(error: BaseException | None, ending: Ending) -> Exception | None:
    """The handler's own error; that it was cancelled is only how it was told to stop."""
    if error is None or isinstance(error, Exception):
        return error
    return RuntimeError(ending.error) if ending.outcome == "failed" else None

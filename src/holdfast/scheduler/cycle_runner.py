"""What the database says of this process's cycles: registered once, read once per tick for all of them.

How a run of a cycle ended, and the one transaction that writes it down.

Cycles as runners: each looks whether a slot is due and runs it, a singleton under its lock and its slot record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Literal

import msgspec

from holdfast.commands.cycles import begin_slot, complete_slot, fail_slot
from holdfast.core.cycle import (
    LOCK_PREFIX,
    RETRY_BASE_MS,
    CycleSpec,
    CycleState,
    HeldSlot,
    NewCycle,
    NewRun,
    RunOutcome,
    Slot,
    plan_slots,
    retry_pause_ms,
    schedule_text,
)
from holdfast.core.error_text import clean_error, words_of
from holdfast.core.errors import Aborted
from holdfast.core.records import Instant
from holdfast.scheduler.call_handler import Abandoned, Around, Handled, handle, nothing_around
from holdfast.scheduler.cycle_run import WHOLE, CycleRun, Shard
from holdfast.scheduler.runner import Manner, RunnerContext, RunnerReport
from holdfast.scheduler.slot_heartbeat import Keeper, counters_text
from holdfast.storage.database import Database, Singleton
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

STALE_MS = 1_000


class Board:
    """The state of cycles, by the names under which they are stored."""

    def __init__(self, store: Store, cycles: Mapping[str, CycleSpec]) -> None:
        self._store = store
        self._cycles = dict(sorted(cycles.items()))
        self._is_registered = False
        self._read_for = ("", 0)
        self._reading = asyncio.Lock()
        self._states: dict[str, CycleState] = {}

    async def state(self, name: str, context: RunnerContext) -> CycleState:
        """Return a cycle's state as this tick found it."""
        async with self._reading:
            await self._refresh(context)
            return self._states[name]

    async def _refresh(self, context: RunnerContext) -> None:
        """Read once for all cycles of a tick; one that had to wait for its turn sees how it is by then."""
        run_id, read_ms = self._read_for
        if run_id != context.run_id or context.now_ms() - read_ms > STALE_MS:
            if not self._is_registered:
                await self._register(context)
            self._states = await self._read(context)
            if self._states.keys() != self._cycles.keys():
                await self._register(context)
                self._states = await self._read(context)
            self._read_for = (context.run_id, context.now_ms())

    async def _read(self, context: RunnerContext) -> dict[str, CycleState]:
        op = self._store.cycles.states(list(self._cycles), context.now())
        return {each.name: each for each in await context.link.run(op)}

    async def _register(self, context: RunnerContext) -> None:
        """Write down what the code says of the cycles, changed schedules included."""
        rows = [
            NewCycle(name, *schedule_text(each.schedule), each.singleton, str(each.missed))
            for name, each in self._cycles.items()
        ]
        await context.link.run(self._store.cycles.register(rows, context.now()))
        self._is_registered = True


AT_ONCE_MS = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """The outcome of a run; `pause_ms` is how long its slot rests, None ends the slot for good."""

    outcome: Literal["completed", "failed", "aborted"]
    error: str | None = None
    pause_ms: int | None = None

    @classmethod
    def of(cls, run: CycleRun, handled: Handled, spec: CycleSpec) -> Ending:
        """Judge a run by how its handler ended and what it was told."""
        reason = run.abort_reason
        if reason in ("lock_lost", "slot_lost"):
            return cls("aborted", f"aborted: {reason}", AT_ONCE_MS)
        error = handled.error
        pause_ms = None if run.attempt >= spec.attempts else retry_pause_ms(run.attempt)
        if isinstance(error, Abandoned):
            text = f"aborted: {reason}; {error}, and was abandoned"
            return cls("aborted", text, RETRY_BASE_MS if reason == "shutdown" else pause_ms)
        if error is None:
            return cls("completed")
        if reason == "shutdown" and isinstance(error, asyncio.CancelledError | Aborted):
            return cls("aborted", "aborted: shutdown", AT_ONCE_MS)
        if reason == "timeout" and isinstance(error, asyncio.CancelledError | Aborted):
            return cls("aborted", "aborted: timeout", pause_ms)
        return cls("failed", clean_error(type(error).__name__, words_of(error)), pause_ms)


def end_run(
    store: Store, run: CycleRun, ending: Ending, now: Instant | None = None
) -> Op[RunOutcome]:
    """Write down how a run ended; a slot that was lost makes it aborted, whatever the handler did."""
    counters = counters_text(run)
    if run.held is None:
        yield from store.runs.finish(run.run_id, ending.outcome, counters, ending.error, now)
        return ending.outcome
    if ending.outcome == "completed":
        accepted = yield from complete_slot(store, run.held, counters, now)
        return "completed" if accepted else "aborted"
    error = ending.error or ""
    yield from fail_slot(store, run.held, ending.outcome, counters, error, ending.pause_ms, now)
    return ending.outcome


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

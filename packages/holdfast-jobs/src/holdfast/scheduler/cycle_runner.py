"""Cycles as runners: each runs the slots that are due, a singleton under its lock and its slot record.

Cycles that look together share one read of their states; a heartbeat keeps the slot while its handler runs; one
transaction records how the run ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import msgspec

from holdfast.commands.cycles import begin_slot, complete_slot, fail_slot, renew_slot
from holdfast.core.cycle import (
    LOCK_PREFIX,
    RETRY_BASE_MS,
    CycleSpec,
    CycleState,
    HeldSlot,
    NewRun,
    RunOutcome,
    Slot,
    new_cycles,
    plan_slots,
    retry_pause_ms,
)
from holdfast.core.errors import Aborted, DatabaseBusy, DatabaseUnreachable, words_of
from holdfast.core.instants import Instant
from holdfast.core.lease import default_heartbeat_ms, local_deadline_ms
from holdfast.core.redaction import clean_error
from holdfast.scheduler.cycle_run import (
    WHOLE,
    Abandoned,
    CycleResult,
    CycleRun,
    Shard,
    WrapRun,
    call_handler,
    wrap_nothing,
)
from holdfast.scheduler.runner import Concurrency, RunnerContext, RunnerFailed, RunnerReport
from holdfast.storage.database import Database, Singleton
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.worker.handler_threads import HandlerThreads

T = TypeVar("T")
RETRY_S = 1.0
IMMEDIATELY_MS = 0


@dataclass(frozen=True, slots=True)
class CycleResources:
    """What all cycles of a process share."""

    database: Database
    states: CycleStates
    threads: HandlerThreads
    lease_ms: int
    shard: Shard | None = None
    wrap_run: WrapRun = wrap_nothing


class CycleRunner:
    """One cycle; no other runner waits for it."""

    concurrency: Concurrency = "concurrent"

    def __init__(self, spec: CycleSpec, resources: CycleResources) -> None:
        self.name = spec.name
        self.max_ms = spec.timeout_ms
        self._spec = spec
        self._resources = resources
        self._stored = stored_name(spec, resources.shard)
        # A cycle that is not sharded runs once for all tenants, however many shards there are.
        self._shard = (resources.shard if spec.sharded else None) or WHOLE
        self._last: Instant | None = None

    async def run(self, context: RunnerContext) -> RunnerReport:
        state = await self._resources.states.state(self._stored, context)
        if not self._spec.singleton:
            state = self._local_state(state, context)
        plan = plan_slots(self._spec, state)
        context.wake_in((plan.next_at - state.now) // 1000 + 1)
        if plan.slots and state.running is not None:
            self._skip(context, "slot_is_running")
        elif plan.slots and self._spec.singleton:
            await self._run_locked(plan.slots, context)
        else:
            await self._run_in_turn(plan.slots, None, context)
        return context.counts

    def _local_state(self, state: CycleState, context: RunnerContext) -> CycleState:
        """A cycle that runs on every replica counts its slots from the start of the replica."""
        if context.mode == "tick":
            # The process of a single tick has no memory, so it uses the record of the last one.
            return msgspec.structs.replace(state, closed=())
        if self._last is None or state.paused:
            self._last = state.now
        return msgspec.structs.replace(state, last_slot=self._last, closed=())

    async def _run_locked(self, slots: Sequence[Slot], context: RunnerContext) -> None:
        lock = self._resources.database.singleton(f"{LOCK_PREFIX}{self._stored}")
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
        for number, slot in enumerate(slots):
            # Each run has a timeout of its own, and is left to the next tick if this one's budget would cut it.
            if context.stopping.is_set() or (number > 0 and not context.renew_budget()):
                context.wake_in(0)
                return
            if not self._spec.singleton and not slot.requested:
                await self._run_unclaimed(slot, context)
            elif not await self._run_claimed(slot, lock, context):
                return

    async def _run_unclaimed(self, slot: Slot, context: RunnerContext) -> None:
        """Run a slot that every replica runs, so it is not claimed."""
        store = self._resources.database.store
        run = NewRun(new_id(), self._stored, context.worker, slot.name)
        asked_at = context.clock.monotonic()
        await context.link.run(store.runs.begin(run, context.now()))
        self._last = slot.due_at
        if context.mode == "tick":
            await context.link.run(store.cycles.advance(self._stored, slot))
        await self._execute(slot, run.id, None, None, context, asked_at)

    async def _run_claimed(
        self, slot: Slot, lock: Singleton | None, context: RunnerContext
    ) -> bool:
        """Claim a slot and run it; False when it cannot be claimed."""
        run = NewRun(new_id(), self._stored, context.worker, slot.name)
        store, lease_ms = self._resources.database.store, self._resources.lease_ms
        asked_at = context.clock.monotonic()
        held = await context.link.run_atomic(
            begin_slot(store, run, slot, new_id(), lease_ms, context.now())
        )
        if held is None:
            self._skip(context, "slot_is_taken")
            return False
        await self._execute(slot, run.id, held, lock, context, asked_at)
        return True

    async def _execute(
        self,
        slot: Slot,
        run_id: str,
        held: HeldSlot | None,
        lock: Singleton | None,
        context: RunnerContext,
        asked_at: float,
    ) -> None:
        """Run the handler under its heartbeat and record how it ended. Raises: what the handler raised."""
        run = CycleRun(
            self._stored,
            slot,
            run_id,
            context.worker,
            self._shard,
            self._resources.database,
            held,
            context.budget.items if self._spec.max_items is None else self._spec.max_items,
        )
        store = self._resources.database.store
        heartbeat = SlotHeartbeat(run, store, lock, self._resources.lease_ms, context, asked_at)
        began = context.now_ms()
        context.emit("cycle_started", worker=context.worker, cycle=self._stored, slot=slot.name)
        result = await self._call_handler(run, heartbeat, context)
        wanted = CycleOutcome.of(run, result, self._spec)
        outcome = await heartbeat.write(lambda: record_run(store, run, wanted, context.now()))
        context.counts.add(run.counts)
        context.emit(
            "cycle_finished",
            worker=context.worker,
            cycle=self._stored,
            slot=slot.name,
            outcome=outcome or "aborted",
            duration_ms=context.now_ms() - began,
            error=wanted.error,
            counters={name: each for name, each in counters_of(run).items() if each} or None,
        )
        if result.was_cancelled:
            raise asyncio.CancelledError
        if outcome != "completed":
            raise _error_of(run, result.error, wanted, context)

    async def _call_handler(
        self, run: CycleRun, heartbeat: SlotHeartbeat, context: RunnerContext
    ) -> CycleResult:
        beat = asyncio.create_task(heartbeat.beat(), name=f"holdfast heartbeat {self._stored}")
        try:
            return await call_handler(
                self._spec, run, context, self._resources.threads, self._resources.wrap_run
            )
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)

    def _skip(self, context: RunnerContext, reason: str) -> None:
        context.counts.skipped += 1
        context.emit("cycle_skipped", worker=context.worker, cycle=self._stored, reason=reason)


def stored_name(spec: CycleSpec, shard: Shard | None) -> str:
    """Return the name under which a cycle locks, runs and is recorded: with its shard, if it has one."""
    return spec.name if shard is None or not spec.sharded else shard.name_of(spec.name)


def _error_of(
    run: CycleRun, error: BaseException | None, outcome: CycleOutcome, context: RunnerContext
) -> Exception:
    """Return why a run did not complete: its timeout, or the handler's own error unless that is only how it stopped."""
    if run.abort_reason == "timeout" and outcome.outcome == "aborted":
        limit_ms = context.budget.milliseconds
        return RunnerFailed(f"cancelled after {limit_ms} ms, the end of its budget")
    if isinstance(error, Exception):
        return error
    if outcome.outcome == "failed":
        return RuntimeError(outcome.error)
    return Aborted(run.abort_reason or "slot_lost")


class CycleStates:
    """The state of this process's cycles, by the names under which they are stored."""

    def __init__(self, store: Store, cycles: Mapping[str, CycleSpec]) -> None:
        self._store = store
        self._cycles = dict(sorted(cycles.items()))
        self._is_registered = False
        self._reading = asyncio.Lock()
        self._reads = 0
        self._states: dict[str, CycleState] = {}

    async def state(self, name: str, context: RunnerContext) -> CycleState:
        """Return a cycle's state; those who ask while a read is under way share the next one."""
        wanted = self._reads + (2 if self._reading.locked() else 1)
        async with self._reading:
            if self._reads < wanted:
                await self._refresh(context)
                self._reads += 1
            return self._states[name]

    async def _refresh(self, context: RunnerContext) -> None:
        if not self._is_registered:
            await self._register(context)
        self._states = await self._read(context)
        if self._states.keys() != self._cycles.keys():
            await self._register(context)
            self._states = await self._read(context)

    async def _read(self, context: RunnerContext) -> dict[str, CycleState]:
        op = self._store.cycles.states(list(self._cycles), context.now())
        return {each.name: each for each in await context.link.run(op)}

    async def _register(self, context: RunnerContext) -> None:
        """Store the cycles as the code defines them, changed schedules included."""
        rows = new_cycles(self._cycles)
        await context.link.run(self._store.cycles.register(rows, context.now()))
        self._is_registered = True


class SlotHeartbeat:
    """Keeps a run's slot: pings the lock, renews the lease, and aborts the run when either is lost.

    A run without a slot only records that it is alive.
    """

    def __init__(
        self,
        run: CycleRun,
        store: Store,
        lock: Singleton | None,
        lease_ms: int,
        context: RunnerContext,
        asked_at: float,
    ) -> None:
        """`asked_at` is when the slot was asked for, by the local clock: its lease may have begun right then."""
        self._run = run
        self._store = store
        self._lock = lock
        self._lease_ms = lease_ms
        self._link = context.link
        self._clock = context.clock
        self._now = context.now
        self._beat_s = default_heartbeat_ms(lease_ms) / 1000
        self._asked_at = asked_at

    async def beat(self) -> None:
        """Beat until cancelled, or until the run is aborted."""
        try:
            while not self._run.aborted:
                await self._clock.sleep(self._beat_s)
                if not await self._holds_lock():
                    self._run.abort("lock_lost")
                elif not await self.write(self._renew):
                    self._run.abort("slot_lost")
        except Exception:
            # A run whose heartbeat has ended, for whatever reason, must not go on.
            self._run.abort("slot_lost")
            raise

    async def write(self, operation: Callable[[], Op[T]]) -> T | None:
        """Retry a write about the run until it succeeds; None when the lease may be over before, by the local clock."""
        while True:
            asked_at = self._clock.monotonic()
            try:
                answer = await self._link.run_atomic(operation())
            except (DatabaseUnreachable, DatabaseBusy):
                deadline_ms = local_deadline_ms(int(self._asked_at * 1000), self._lease_ms)
                if self._clock.monotonic() + RETRY_S >= deadline_ms / 1000:
                    return None
                await self._clock.sleep(RETRY_S)
            else:
                self._asked_at = asked_at
                return answer

    async def _holds_lock(self) -> bool:
        if self._lock is None:
            return True
        try:
            await self._lock.ping()
        except DatabaseUnreachable:
            return False
        return True

    def _renew(self) -> Op[bool]:
        held, counters = self._run.held, counters_text(self._run)
        if held is not None:
            return (yield from renew_slot(self._store, held, self._lease_ms, counters, self._now()))
        yield from self._store.runs.touch(self._run.run_id, counters, self._now())
        return True


@dataclass(frozen=True, slots=True)
class CycleOutcome:
    """The outcome of a run; its slot runs again after `pause_ms`, or never if that is None."""

    outcome: Literal["completed", "failed", "aborted"]
    error: str | None = None
    pause_ms: int | None = None

    @classmethod
    def of(cls, run: CycleRun, result: CycleResult, spec: CycleSpec) -> CycleOutcome:
        """Decide by how the handler ended and why it was aborted, if it was."""
        reason = run.abort_reason
        if reason in ("lock_lost", "slot_lost"):
            return cls("aborted", f"aborted: {reason}", IMMEDIATELY_MS)
        error = result.error
        pause_ms = None if run.attempt >= spec.attempts else retry_pause_ms(run.attempt)
        if isinstance(error, Abandoned):
            text = f"aborted: {reason}; {error}, and was abandoned"
            return cls("aborted", text, RETRY_BASE_MS if reason == "shutdown" else pause_ms)
        if error is None:
            return cls("completed")
        if reason == "shutdown" and isinstance(error, asyncio.CancelledError | Aborted):
            return cls("aborted", "aborted: shutdown", IMMEDIATELY_MS)
        if reason == "timeout" and isinstance(error, asyncio.CancelledError | Aborted):
            return cls("aborted", "aborted: timeout", pause_ms)
        return cls("failed", clean_error(type(error).__name__, words_of(error)), pause_ms)


def record_run(
    store: Store, run: CycleRun, outcome: CycleOutcome, now: Instant | None = None
) -> Op[RunOutcome]:
    """Record how a run ended; if its slot was lost it is aborted, whatever the handler did."""
    counters = counters_text(run)
    if run.held is None:
        yield from store.runs.finish(run.run_id, outcome.outcome, counters, outcome.error, now)
        return outcome.outcome
    if outcome.outcome == "completed":
        accepted = yield from complete_slot(store, run.held, counters, now)
        return "completed" if accepted else "aborted"
    error = outcome.error or ""
    yield from fail_slot(store, run.held, outcome.outcome, counters, error, outcome.pause_ms, now)
    return outcome.outcome


def counters_of(run: CycleRun) -> dict[str, int | float]:
    """Return the counters of a run, its own last."""
    return {**msgspec.structs.asdict(run.counts), **run.numbers}


def counters_text(run: CycleRun) -> str:
    """Return the counters of a run as runs record them."""
    return msgspec.json.encode(counters_of(run)).decode()

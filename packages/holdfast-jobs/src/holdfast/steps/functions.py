"""The durable functions of one worker: opens them with what was recorded, and does for them what needs the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent import futures
from datetime import datetime
from typing import Any

import msgspec

from holdfast.client.start_plan import Batch, Starter, with_context, with_job
from holdfast.client.start_targets import Targets
from holdfast.commands.blockers import attach_blockers, refuse_circle
from holdfast.commands.start import keep_large, start_chains
from holdfast.core.codec import TypeCodec
from holdfast.core.errors import InvalidOption
from holdfast.core.instants import Instant, to_instant
from holdfast.core.records import BlockerRecord, Held, NewBlocker
from holdfast.core.registry import Target
from holdfast.core.sealing import is_sealed, open_output
from holdfast.core.steps import NewStep
from holdfast.notify.base import Hint
from holdfast.steps.actions import CallAtomic, StartChildren
from holdfast.steps.current import in_step
from holdfast.steps.function import DurableFunction
from holdfast.steps.recorder import StepRecorder, write_once
from holdfast.steps.result_types import ANYTHING
from holdfast.steps.step_history import StepHistory
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.worker.attempt import Attempt
from holdfast.worker.handler_transactions import AtomicStep
from holdfast.worker.notifications import WorkerHints
from holdfast.worker.worker_context import WorkerContext

EDGES_PER_STEP = 1 << 16
"""The chains that a step called have places behind those that the job was started to wait for."""


class FunctionTypes:
    """What functions ask of the types that their application knows."""

    on_boundary: Callable[[str], bool] | None = None
    """Whether the worker dies at a boundary that a function reaches; for tests."""

    def __init__(self, targets: Targets) -> None:
        self._targets, self.output_limit = targets, targets.output_limit
        self.open_emission = targets.open_emission

    def until_ms(self, time: datetime, now: Instant) -> int:
        """How long it is until a time. Raises: InvalidOption for one without a zone."""
        if time.tzinfo is None:
            raise InvalidOption(
                f"{time} has no time zone", help="use datetime.now(UTC) + …, or a duration"
            )
        return max(0, to_instant(time) - now + 999) // 1000

    def output_of(self, target: Target) -> tuple[str, TypeCodec]:
        """Return the name and the output of a type that is to be called. Raises: UnknownJobType, InvalidOption."""
        name = self._targets.entry(target).name
        return name, self._targets.output_of(name) or ANYTHING

    def open_child(self, child: BlockerRecord, attempt: Attempt) -> str:
        """Return the output of a chain that a function called, in clear. Raises: SealError."""
        text = child.output or "null"
        attempt.sealed |= is_sealed(text)
        return open_output(attempt.type.sealer, text, child.chain_id)


class Functions(FunctionTypes):
    """What the functions of one worker share. On the loop, unless it says otherwise."""

    def __init__(
        self, context: WorkerContext, recorder: StepRecorder, targets: Targets, hints: WorkerHints
    ) -> None:
        super().__init__(targets)
        self._context = context
        self._starter = Starter(targets)
        self._hints = hints
        self._loop: asyncio.AbstractEventLoop | None = None
        self._with_undo: set[str] = set()
        self.wait: Callable[[futures.Future[Any]], Any] = futures.Future.result
        """How the thread of a sync handler waits for the loop."""
        self.plain: set[str] = {
            name
            for name, each in context.types.items()
            if each.executor != "loop" or each.atomic or each.batch is not None
        }
        """The types whose handlers need no task of their own: they cannot be durable functions, or never were one."""
        self.recorder = recorder
        self.random = context.clock.random
        self.monotonic = context.clock.monotonic

    def bind(self) -> None:
        """Note the worker's loop. Called on it."""
        self._loop = asyncio.get_running_loop()

    def open(self, attempt: Attempt) -> DurableFunction:
        """Return the function of an attempt that has no records yet. From any thread."""
        self.note_durable(attempt)
        return DurableFunction(self, attempt)

    def note_durable(self, attempt: Attempt) -> None:
        """Have the handlers of a type run in tasks of their own, which can be left behind."""
        if attempt.type.executor == "loop":
            self.plain.discard(attempt.type.name)

    async def load(self, attempt: Attempt) -> DurableFunction:
        """Return the function of an attempt, with what earlier ones left. Raises: the database's errors."""
        self.note_durable(attempt)
        database, store, id = self._context.database, self._context.store, attempt.claimed.id
        records = await database.read_async(store.steps.of_jobs([id]))
        children: list[BlockerRecord] = []
        if any(each.kind == "run" and each.state == "open" for each in records):
            children = await database.read_async(store.blockers.of_jobs([id]))
        if attempt.type.payloads is not None:
            await attempt.type.payloads.restore(records)
            await attempt.type.payloads.restore(children)
        return DurableFunction(self, attempt, records, children)

    def now(self, attempt: Attempt) -> Instant:
        """The database's clock, as far as it has come since the claim. From any thread."""
        passed = self.monotonic() - attempt.received_at
        return attempt.claimed.claimed_at + int(passed * 1_000_000)

    def on_loop(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Run something on the loop and wait for it. In the thread of a sync handler."""
        assert self._loop is not None
        return self.wait(asyncio.run_coroutine_threadsafe(call, self._loop))

    async def declare_undo(self, type: str) -> None:
        """Declare that jobs of a type are undone when they fail; once."""
        if type not in self._with_undo:
            await self._context.database.run_async(self._context.store.on_failed.declare([type]))
            self._with_undo.add(type)

    async def call_atomic(
        self, history: StepHistory, attempt: Attempt, action: CallAtomic
    ) -> NewStep:
        """Call a function in a transaction whose last statement is its record. Raises: LeaseLost."""
        call, step = action.call, self._atomic_step(attempt, action.opens)
        with in_step(call.info):
            async with asyncio.timeout(call.timeout_s), step as tx:
                row = action.record(await call.function(tx, *call.arguments))
                step.record(self._record(attempt, history.mark(row)))
        return row

    def call_atomic_sync(
        self, history: StepHistory, attempt: Attempt, action: CallAtomic
    ) -> NewStep:
        """Do what `call_atomic` does, in the thread of a sync handler."""
        call, step = action.call, self._atomic_step(attempt, action.opens)
        with in_step(call.info), step as tx:
            row = action.record(call.function(tx, *call.arguments))
            step.record(self._record(attempt, history.mark(row)))
        return row

    def _atomic_step(self, attempt: Attempt, opens: Callable[[], Any] | None) -> AtomicStep:
        held = Held(attempt.claimed.id, attempt.claimed.token)
        idle_ms = attempt.policy.lease_ms // 2
        own = None if opens is None else opens()
        return AtomicStep(self._context.database, held, idle_ms, attempt.prepare_tx, own=own)

    def _record(self, attempt: Attempt, row: NewStep) -> Op[None]:
        held = Held(attempt.claimed.id, attempt.claimed.token)
        yield from keep_large(attempt.type.sealer, rows := [row])
        yield from write_once(self._context.store, held, rows[0])

    async def start_children(
        self, history: StepHistory, attempt: Attempt, action: StartChildren
    ) -> NewStep:
        """Start chains, and record them as what the function waits for. Raises: LeaseLost, and those of starts."""
        batch = self._starter.many(action.target, action.inputs, action.keys, action.options)  # type: ignore[arg-type]
        if attempt.type.payloads is not None:
            await attempt.type.payloads.keep(batch.requests)
        started = start_children(self._context.store, attempt, batch, history, action.record)
        row = await self._context.database.run_async(started)
        if batch.requests:
            self._hints.send_soon(Hint("due", batch.requests[0].job.type))
        return row


def start_children(
    store: Store,
    attempt: Attempt,
    batch: Batch,
    history: StepHistory,
    record: Callable[[str], NewStep],
) -> Op[NewStep]:
    """Start chains, record them, and have their ends wake the function; all of it or nothing.

    The job itself is locked last, as it is when one of the chains ends.
    """
    claimed, requests = attempt.claimed, batch.requests
    if batch.delays_ms is not None:
        requests = batch.at_times((yield from store.schema.clock()))
    requests = [with_job(each, trace=claimed.trace) for each in requests]
    requests = with_context(requests, claimed.context)
    started = yield from start_chains(store, requests)
    ids = [each.id for each in started]
    row = record(msgspec.json.encode(ids).decode())
    edges = [
        NewBlocker(claimed.id, row.position * EDGES_PER_STEP + place, id, "run", row.position)
        for place, id in enumerate(dict.fromkeys(ids))
    ]
    yield from attach_blockers(store, edges)
    if any(each.deduplicated for each in started):
        yield from refuse_circle(store, claimed.chain_id, edges)
    yield from write_once(store, Held(claimed.id, claimed.token), history.mark(row))
    return row

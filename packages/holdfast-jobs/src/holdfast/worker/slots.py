"""Slots: long-lived coroutines that run one call at a time and hand its outcome to the completer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from holdfast.core.errors import Busy
from holdfast.core.records import Finish, Held
from holdfast.worker.admission import Admission
from holdfast.worker.attempt import Attempt, Backlog
from holdfast.worker.claimer import Claimer
from holdfast.worker.clock import all_ended
from holdfast.worker.completer import Completer
from holdfast.worker.executor import AttemptResult, Executor
from holdfast.worker.worker_context import WorkerContext

CALLS_WITHOUT_A_PAUSE = 32
ABANDON_S = 1.0
PROCESS_START_S = 60.0
"""A process may take so long to import its handler before the handler's own timeout begins."""


class Slots:
    """The slots of one worker."""

    def __init__(
        self,
        context: WorkerContext,
        backlog: Backlog,
        executor: Executor,
        completer: Completer,
        claimer: Claimer,
        admission: Admission,
    ) -> None:
        self._context = context
        self._backlog = backlog
        self._executor = executor
        self._completer = completer
        self._claimer = claimer
        self._expect_deadline = context.wakes.deadlines.expect
        self._is_abandoned = False
        self._tasks: list[asyncio.Task[None]] = []
        self._monotonic = context.clock.monotonic
        self.all_end_at = math.inf
        self.running = admission.running
        self.abandoned: set[Attempt] = set()

    def start(self) -> list[asyncio.Task[None]]:
        """Open all slots."""
        if self._context.options.handlers_s is not None:
            self.all_end_at = self._monotonic() + self._context.options.handlers_s
        self._tasks = [
            asyncio.create_task(self._slot(), name=f"holdfast slot {number}")
            for number in range(self._context.options.slots)
        ]
        return self._tasks

    async def wait_ended(self, seconds: float | None = None) -> bool:
        """Wait until every slot has ended; False when that took too long."""
        return await all_ended(self._context.clock, self._tasks, seconds)

    def interrupt(self) -> None:
        """Interrupt every handler that still runs, because the worker shuts down."""
        now = self._monotonic()
        for attempt in list(self.running):
            if not attempt.is_ending and attempt.abort("shutdown", now):
                attempt.interrupt()

    def find_stuck(self, now: float) -> dict[Attempt, float]:
        """The attempts that ignore their abort signal, and for how many seconds. From any thread."""
        stuck_after_s = self._context.options.stuck_after_ms / 1000
        return {
            attempt: now - attempt.aborted_at
            for attempt in list(self.running)
            if attempt.aborted_at is not None and now - attempt.aborted_at > stuck_after_s
        }

    async def abandon(self) -> None:
        """Give up handlers that do not end; what they hold is left to lease expiry."""
        self._is_abandoned = True
        self.abandoned |= self.running
        for task in self._tasks:
            task.cancel()
        await self.wait_ended(ABANDON_S)

    async def _slot(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        calls = 0
        while not self._is_abandoned:
            try:
                batch = self._backlog.take_now() or await self._backlog.take()
                if batch is None:
                    return
                await self._run_call(batch, task)
                calls += 1
                if calls % CALLS_WITHOUT_A_PAUSE == 0:
                    # A handler that never waits would otherwise keep the loop to itself.
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                # Unless the slots are abandoned, this is an abort that came just after its attempt had ended.
                if self._is_abandoned:
                    raise

    async def _run_call(self, batch: list[Attempt], task: asyncio.Task[None]) -> None:
        first = batch[0]
        type = first.type
        try:
            if first.claimed.debounced or (type.batch and any(e.claimed.debounced for e in batch)):
                batch, waiting = await _settle_inputs(self._context, batch)
                self._completer.release(waiting)
                if not batch:
                    return
            if type.batch is not None:
                await self._run_batch([each for each in batch if self._begin(each)], task)
            elif self._begin(batch[0]):
                await self._run(batch[0], task)
        finally:
            self._backlog.end_call(type.name)
            # An abort that a handler swallowed must not look, in the slot's next call, like one of that call.
            while task.cancelling():
                task.uncancel()

    async def _run(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        attempt.task = task
        try:
            result = await self._executor.run(attempt)
        finally:
            attempt.task = None
        self.running.discard(attempt)
        self._end(attempt, result)

    async def _run_batch(self, batch: list[Attempt], task: asyncio.Task[None]) -> None:
        if not batch:
            return
        cancel = _CancelWhenAllAborted(batch, task)
        try:
            results = await self._executor.run_batch(batch)
        finally:
            cancel.disarm()
        for attempt, result in zip(batch, results, strict=True):
            self.running.discard(attempt)
            self._end(attempt, result)

    def _begin(self, attempt: Attempt) -> bool:
        """Start an attempt, unless it was aborted, or its lease ended, while it waited."""
        now = self._monotonic()
        if not self._context.may_begin(attempt, now):
            self._completer.release([attempt])
            return False
        if attempt.has_expired(now):
            self._completer.expire(attempt)
            return False
        attempt.started_at = now
        own_s = attempt.policy.timeout_ms / 1000
        if attempt.type.executor == "process":
            own_s += PROCESS_START_S
        attempt.timeout_at = min(now + own_s, self.all_end_at)
        self.running.add(attempt)
        self._context.emitter.emit_started(attempt)
        self._expect_deadline(attempt.timeout_at)
        return True

    def restart_timeout(self, attempt: Attempt) -> None:
        """Count an attempt's timeout from now on: its process was being started."""
        own_s = attempt.policy.timeout_ms / 1000
        attempt.timeout_at = min(self._monotonic() + own_s, self.all_end_at)
        self._expect_deadline(attempt.timeout_at)

    def _end(self, attempt: Attempt, result: AttemptResult) -> None:
        attempt.ended_at = self._monotonic()
        finish = result.finish
        if isinstance(result.error, Busy):
            self._pause_type(attempt, result.error, finish)
        if self._is_abandoned:
            return
        if finish is None:
            if result.is_refused:
                self._completer.refuse(attempt)
        elif attempt.take_ending("slot"):
            if result.report is not None:
                self._completer.accept_committed(attempt, finish, result.report)
            else:
                self._completer.submit(attempt, finish)
        self._claimer.free_slot(attempt)

    def _pause_type(self, attempt: Attempt, busy: Busy, finish: Finish | None) -> None:
        if finish is not None and finish.kind != "snooze":
            return
        try:
            is_of_key = busy.key and attempt.claimed.gate is not None
            seconds = (busy.delay_ms if finish is None else finish.delay_ms) / 1000
        except Exception:
            # A class of the application's own may lack what Busy has; a slot must not end with it.
            return
        if not is_of_key:
            self._claimer.pause_type(attempt.type.name, seconds)


class _CancelWhenAllAborted:
    """Cancels a batch only when none of its attempts may go on."""

    def __init__(self, batch: list[Attempt], task: asyncio.Task[None]) -> None:
        self._task: asyncio.Task[None] | None = task
        self._left = len(batch)
        for attempt in batch:
            attempt.on_interrupt = self._count_down

    def disarm(self) -> None:
        self._task = None

    def _count_down(self) -> None:
        self._left -= 1
        if self._left == 0 and self._task is not None:
            self._task.cancel()


async def _settle_inputs(
    context: WorkerContext, batch: Sequence[Attempt]
) -> tuple[list[Attempt], list[Attempt]]:
    """Give debounced jobs the input they were last asked for with, just before they start.

    Return what may start, and what is to be given back because it waits for quiet; if the database fails,
    that is everything, and costs no attempt.
    """
    pairs = [Held(each.claimed.id, each.claimed.token) for each in batch if each.claimed.debounced]
    try:
        found = await context.database.run_async(context.store.debounce.settle(pairs))
    except Exception as error:
        context.health.report_error("debounce", error)
        context.connections.note_error(batch[0].type.name, error)
        return [], list(batch)
    context.health.report_ok("debounce")
    settled = {each.job_id: each for each in found}
    ready, back = [], []
    for attempt in batch:
        answer = settled.get(attempt.claimed.id)
        if attempt.claimed.debounced and (answer is None or answer.is_put_off):
            back.append(attempt)
            continue
        if answer is not None and answer.input is not None:
            attempt.claimed.input, attempt.claimed.version = answer.input, answer.version
        ready.append(attempt)
    return ready, back

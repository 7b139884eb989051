"""Slots: long-lived coroutines that run one call at a time and hand its end to the completer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from typing import Protocol

from holdfast.core.errors import Busy
from holdfast.core.model import Finish
from holdfast.ops.finish import FinishReport
from holdfast.worker.attempt import Attempt
from holdfast.worker.backlog import Backlog
from holdfast.worker.clock import all_ended
from holdfast.worker.execution import Ended, Execution
from holdfast.worker.workplace import Workplace

TURNS_WITHOUT_A_PAUSE = 32
ABANDON_S = 1.0
START_UP_S = 60.0
"""A process may take so long to import its handler, before the handler's own time begins."""


class Office(Protocol):
    """Where a slot reports what it did."""

    def submit(self, attempt: Attempt, finish: Finish) -> None: ...
    def committed(self, attempt: Attempt, finish: Finish, report: FinishReport) -> None: ...
    def too_late(self, attempt: Attempt) -> None: ...
    def give_back(self, attempts: Iterable[Attempt]) -> int: ...
    def ended(self, attempt: Attempt) -> None: ...
    def busy(self, attempt: Attempt, seconds: float) -> None: ...


class Slots:
    """The slots of one worker."""

    def __init__(
        self,
        place: Workplace,
        backlog: Backlog,
        execution: Execution,
        office: Office,
        expect: Callable[[float], None],
    ) -> None:
        """The time at which an attempt runs out of time is announced to `expect`."""
        self._place = place
        self._backlog = backlog
        self._execution = execution
        self._office = office
        self._expect = expect
        self._is_abandoned = False
        self._tasks: list[asyncio.Task[None]] = []
        self._monotonic = place.clock.monotonic
        self.all_end_at = math.inf
        self.running: set[Attempt] = set()
        self.abandoned: set[Attempt] = set()

    def start(self) -> list[asyncio.Task[None]]:
        """Open all slots."""
        if self._place.options.handlers_s is not None:
            self.all_end_at = self._monotonic() + self._place.options.handlers_s
        self._tasks = [
            asyncio.create_task(self._slot(), name=f"holdfast slot {number}")
            for number in range(self._place.options.slots)
        ]
        return self._tasks

    async def finished(self, seconds: float | None) -> bool:
        """Wait until every slot has ended; False when that took too long."""
        return await all_ended(self._place.clock, self._tasks, seconds)

    def interrupt(self) -> None:
        """Tell every handler that is still running to stop, because the worker does."""
        now = self._place.clock.monotonic()
        for attempt in list(self.running):
            if not attempt.is_ending and attempt.abort("shutdown", now):
                attempt.stop()

    async def abandon(self) -> None:
        """Give up handlers that do not end; what they hold is left to lease expiry."""
        self._is_abandoned = True
        self.abandoned |= self.running
        for task in self._tasks:
            task.cancel()
        await self.finished(ABANDON_S)

    async def _slot(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        turns = 0
        while not self._is_abandoned:
            try:
                batch = self._backlog.take_now() or await self._backlog.take()
                if batch is None:
                    return
                await self._turn(batch, task)
                turns += 1
                if turns % TURNS_WITHOUT_A_PAUSE == 0:
                    # A handler that never waits would otherwise keep the loop to itself.
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                # Without that word it is an abort that came a moment after its attempt had ended.
                if self._is_abandoned:
                    raise

    async def _turn(self, batch: list[Attempt], task: asyncio.Task[None]) -> None:
        type = batch[0].type
        try:
            if type.batch is not None:
                await self._run_batch([each for each in batch if self._begin(each)], task)
            elif self._begin(batch[0]):
                await self._run(batch[0], task)
        finally:
            self._backlog.done(type.name)
            # An abort that a handler swallowed must not look, in the slot's next call, like one of that call.
            while task.cancelling():
                task.uncancel()

    async def _run(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        attempt.task = task
        try:
            ended = await self._execution.run(attempt)
        finally:
            attempt.task = None
        self.running.discard(attempt)
        self._end(attempt, ended)

    async def _run_batch(self, batch: list[Attempt], task: asyncio.Task[None]) -> None:
        if not batch:
            return
        stop = _StopWhenAllAborted(batch, task)
        try:
            results = await self._execution.run_batch(batch)
        finally:
            stop.over()
        for attempt, ended in zip(batch, results, strict=True):
            self.running.discard(attempt)
            self._end(attempt, ended)

    def _begin(self, attempt: Attempt) -> bool:
        """Start an attempt, unless it was aborted while it waited."""
        if attempt.abort_reason is not None:
            self._office.give_back([attempt])
            return False
        now = self._monotonic()
        attempt.started_at = now
        own_s = attempt.terms.timeout_ms / 1000
        if attempt.type.executor == "process":
            own_s += START_UP_S
        attempt.timeout_at = min(now + own_s, self.all_end_at)
        self.running.add(attempt)
        self._place.telling.started(attempt)
        self._expect(attempt.timeout_at)
        return True

    def begun(self, attempt: Attempt) -> None:
        """Count an attempt's time from now on: its process was being started."""
        own_s = attempt.terms.timeout_ms / 1000
        attempt.timeout_at = min(self._monotonic() + own_s, self.all_end_at)
        self._expect(attempt.timeout_at)

    def _end(self, attempt: Attempt, ended: Ended) -> None:
        attempt.ended_at = self._monotonic()
        if isinstance(ended.error, Busy):
            delay_ms = ended.finish.delay_ms if ended.finish else ended.error.delay_ms
            self._office.busy(attempt, delay_ms / 1000)
        if self._is_abandoned:
            return
        if ended.finish is None:
            if ended.is_refused:
                self._office.too_late(attempt)
        elif attempt.take_ending("slot"):
            if ended.report is not None:
                self._office.committed(attempt, ended.finish, ended.report)
            else:
                self._office.submit(attempt, ended.finish)
        self._office.ended(attempt)


class _StopWhenAllAborted:
    """Cancels a batch only when none of its attempts may go on."""

    def __init__(self, batch: list[Attempt], task: asyncio.Task[None]) -> None:
        self._task: asyncio.Task[None] | None = task
        self._left = len(batch)
        for attempt in batch:
            attempt.on_stop(self._one_less)

    def over(self) -> None:
        self._task = None

    def _one_less(self) -> None:
        self._left -= 1
        if self._left == 0 and self._task is not None:
            self._task.cancel()

"""Slots: long-lived coroutines that run one attempt at a time and hand its end to the completer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.core.errors import Busy
from holdfast.worker.attempt import Attempt
from holdfast.worker.backlog import Backlog
from holdfast.worker.claimer import Claimer
from holdfast.worker.clock import Clock
from holdfast.worker.completer import Completer
from holdfast.worker.execution import Ended, Execution
from holdfast.worker.holdings import Holdings
from holdfast.worker.options import WorkerOptions

TURNS_WITHOUT_A_PAUSE = 32


class Slots:
    """The slots of one worker."""

    def __init__(
        self,
        options: WorkerOptions,
        backlog: Backlog,
        execution: Execution,
        completer: Completer,
        claimer: Claimer,
        holdings: Holdings,
        clock: Clock,
        started: Callable[[Attempt], None],
        recorded: Callable[[Attempt, Ended], None],
        lease_ms: Callable[[Attempt], int],
    ) -> None:
        self._options = options
        self._backlog = backlog
        self._execution = execution
        self._completer = completer
        self._claimer = claimer
        self._holdings = holdings
        self._clock = clock
        self._started = started
        self._recorded = recorded
        self._lease_ms = lease_ms
        self._abandoned = False
        self._tasks: list[asyncio.Task[None]] = []
        self.running: dict[int, Attempt] = {}

    def start(self) -> None:
        """Open all slots."""
        self._tasks = [
            asyncio.create_task(self._slot(), name=f"holdfast slot {number}")
            for number in range(self._options.slots)
        ]

    async def finished(self, seconds: float | None) -> bool:
        """Wait until every slot has ended; False when that took too long."""
        if not self._tasks:
            return True
        _, pending = await asyncio.wait(self._tasks, timeout=seconds)
        return not pending

    def abandon(self) -> None:
        """Give up slots whose handlers do not end; whatever they hold is left to lease expiry."""
        self._abandoned = True
        for task in self._tasks:
            task.cancel()

    async def _slot(self) -> None:
        turns = 0
        while True:
            try:
                attempt = await self._backlog.take()
                if attempt is None:
                    return
                await self._turn(attempt)
                turns += 1
                if turns % TURNS_WITHOUT_A_PAUSE == 0:
                    # A handler that never waits would otherwise keep the loop to itself.
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                if self._abandoned:
                    raise
                # An abort that came a moment after its attempt had ended.
                task = asyncio.current_task()
                if task is not None:
                    task.uncancel()

    async def _turn(self, attempt: Attempt) -> None:
        size = attempt.type.batch
        if size is None:
            if self._begin(attempt):
                attempt.task = asyncio.current_task()
                try:
                    ended = await self._execution.run(attempt)
                finally:
                    attempt.task = None
                    self.running.pop(id(attempt), None)
                self._end(attempt, ended)
            return
        batch = [attempt, *self._backlog.take_of_type(attempt.type.name, size - 1)]
        batch = [each for each in batch if self._begin(each)]
        if not batch:
            return
        stop = _StopWhenAllAborted(batch)
        try:
            results = await self._execution.run_batch(batch)
        finally:
            stop.over()
            for each in batch:
                self.running.pop(id(each), None)
        for each, ended in zip(batch, results, strict=True):
            self._end(each, ended)

    def _begin(self, attempt: Attempt) -> bool:
        if attempt.abort_reason is not None:
            self._holdings.drop(attempt)
            self._claimer.ended(attempt)
            return False
        now = self._clock.monotonic()
        attempt.started_at = now
        timeout = attempt.type.timeout_ms or 3 * self._lease_ms(attempt)
        attempt.timeout_at = now + timeout / 1000
        self.running[id(attempt)] = attempt
        self._started(attempt)
        return True

    def _end(self, attempt: Attempt, ended: Ended) -> None:
        if isinstance(ended.error, Busy):
            self._claimer.rest(attempt.type.name, ended.error.delay_ms / 1000)
        if ended.finish is None or ended.report is not None or attempt.settled:
            self._holdings.drop(attempt)
            self._recorded(attempt, ended)
        else:
            self._completer.submit(attempt, ended.finish)
        self._claimer.ended(attempt)


class _StopWhenAllAborted:
    """Cancels a batch only when none of its attempts may go on."""

    def __init__(self, batch: list[Attempt]) -> None:
        self._task = asyncio.current_task()
        self._left = len(batch)
        for attempt in batch:
            attempt.on_abort(self._one_less)

    def over(self) -> None:
        self._task = None

    def _one_less(self) -> None:
        self._left -= 1
        if self._left == 0 and self._task is not None:
            self._task.cancel()

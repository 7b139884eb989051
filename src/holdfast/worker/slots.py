"""Slots: long-lived coroutines that run one call at a time and hand its end to the completer.

Claimed attempts that no slot has taken yet. Small: a claim asks only for what will soon be started.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from holdfast.commands.finish import FinishReport
from holdfast.core.errors import Busy
from holdfast.core.records import Finish
from holdfast.worker.attempt import Attempt
from holdfast.worker.clock import Clock, all_ended
from holdfast.worker.context import Workplace
from holdfast.worker.executor import Ended, Execution

WOKEN = 2
"""So many slots are woken for new work, and as many again by each that finds some: quick handlers need no more."""

MOMENT_S = 0.5
"""What no slot has begun within this time goes back. Ten times as long as claims look ahead."""


class Backlog:
    """A queue of attempts for long-lived slots; taking from a filled one costs no turn of the loop.

    A type at its limit of concurrent calls is passed over until one of its calls is done.
    """

    def __init__(
        self, limit_of: Callable[[str], int | None], is_held_up: Callable[[], bool] = lambda: False
    ) -> None:
        """Nothing is given out while `is_held_up`; call `resume` when that is over."""
        self._limit_of = limit_of
        self._is_held_up = is_held_up
        self._ready: deque[Attempt] = deque()
        self._parked: dict[str, deque[Attempt]] = {}
        self._calls: dict[str, int] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready) + sum(len(each) for each in self._parked.values())

    def put(self, attempts: list[Attempt]) -> None:
        """Add attempts in the order of a claim; the more urgent overtake what still waits.

        After `close` they stay here until `close` is called again: a claim's answer may come late.
        """
        if not attempts:
            return
        last = self._ready[-1].claimed.priority if self._ready else attempts[0].claimed.priority
        self._ready.extend(attempts)
        if attempts[0].claimed.priority < last or any(each.claimed.crashes for each in attempts):
            self._ready = deque(sorted(self._ready, key=_urgency))
        self.filled.set()
        self._wake(WOKEN)

    def take_now(self) -> list[Attempt] | None:
        """Take the next call's attempts, several for a batch handler, if there are any and it may begin."""
        while self._ready and not self._is_held_up():
            attempt = self._ready.popleft()
            name = attempt.type.name
            limit = self._limit_of(name)
            calls = self._calls.get(name, 0)
            if limit is not None and calls >= max(1, limit):
                self._parked.setdefault(name, deque()).append(attempt)
                continue
            self._calls[name] = calls + 1
            if attempt.type.batch is None:
                return [attempt]
            return [attempt, *self._more_of(name, attempt.type.batch - 1)]
        return None

    async def take(self) -> list[Attempt] | None:
        """Wait for the next call's attempts; None when the backlog was closed."""
        while True:
            taken = self.take_now()
            if taken is not None:
                if self._ready:
                    self._wake(WOKEN)
                return taken
            if self._closed:
                return None
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                await future
            except asyncio.CancelledError:
                self._pass_on(future)
                raise

    def done(self, name: str) -> None:
        """Note that a call of this type's handler is over."""
        self._calls[name] -= 1
        parked = self._parked.get(name)
        if parked:
            self._ready.appendleft(parked.popleft())
            self._wake(1)

    def resume(self) -> None:
        """Give out again what was held up."""
        self._wake(WOKEN)

    def reconsider(self) -> None:
        """Look again at what was passed over, because limits have changed."""
        parked, self._parked = self._parked, {}
        for attempts in parked.values():
            self._ready.extend(attempts)
            self._wake(WOKEN)

    def take_older(self, received_before: float) -> list[Attempt]:
        """Take what has waited since then or longer, whatever keeps it waiting."""
        taken: list[Attempt] = []
        for queue in (self._ready, *self._parked.values()):
            old = [each for each in queue if each.received_at <= received_before]
            if old:
                kept = [each for each in queue if each.received_at > received_before]
                queue.clear()
                queue.extend(kept)
                taken += old
        return taken

    def close(self) -> list[Attempt]:
        """Give out nothing more; return what was never started."""
        self._closed = True
        self.reconsider()
        unstarted = list(self._ready)
        self._ready.clear()
        self._wake(len(self._waiting))
        return unstarted

    def _more_of(self, name: str, count: int) -> list[Attempt]:
        """Take what else is there of a batch handler's type; nobody waits for a batch to fill."""
        parked = self._parked.get(name, deque())
        taken = [parked.popleft() for _ in range(min(count, len(parked)))]
        kept: deque[Attempt] = deque()
        for attempt in self._ready:
            if attempt.type.name == name and len(taken) < count:
                taken.append(attempt)
            else:
                kept.append(attempt)
        self._ready = kept
        return taken

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1

    def _pass_on(self, future: asyncio.Future[None]) -> None:
        """A slot that was woken and cancelled in one moment leaves its turn to another."""
        if future in self._waiting:
            self._waiting.remove(future)
        elif self._ready:
            self._wake(1)


class Overdue:
    """Gives back what was claimed ahead and is not begun within a moment: another worker may have a slot for it."""

    def __init__(
        self, clock: Clock, backlog: Backlog, give_back: Callable[[Iterable[Attempt]], object]
    ) -> None:
        self._clock = clock
        self._backlog = backlog
        self._give_back = give_back

    async def run(self) -> None:
        """Look for ever, while anything waits."""
        while True:
            await self._backlog.filled.wait()
            await self._clock.sleep(MOMENT_S / 2)
            self._give_back(self._backlog.take_older(self._clock.monotonic() - MOMENT_S))
            if not self._backlog:
                self._backlog.filled.clear()


def _urgency(attempt: Attempt) -> tuple[bool, int]:
    """A job with crashes was claimed into a free slot and must not wait behind others."""
    return attempt.claimed.crashes == 0, attempt.claimed.priority


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

"""Watches the worker's loop from the heartbeat's thread: what the loop cannot do any more is done from there.

Watches the worker's own loop: whether it lags, handlers obey, hints still arrive; and sums up what it did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.core.records import Finish
from holdfast.storage.database import Link
from holdfast.worker.attempt import Attempt
from holdfast.worker.context import Workplace
from holdfast.worker.notifications import Hints
from holdfast.worker.options import Pace
from holdfast.worker.resolve_outcome import finish_of
from holdfast.worker.slots import Slots

LOOP_INTERVAL_S = 1.0
LAG_S = 1.0
SUMMARY_S = 10.0


class Watch:
    """Looks once a second. When no slot obeys any more, the process is of no use and is given up."""

    def __init__(
        self,
        place: Workplace,
        slots: Slots,
        hints: Hints,
        pace: Pace,
        look: Callable[[], None],
        all_stuck: Callable[[], None],
    ) -> None:
        self._place = place
        self._slots = slots
        self._hints = hints
        self._pace = pace
        self._look = look
        self._all_stuck = all_stuck
        self._told: set[Attempt] = set()

    async def run(self) -> None:
        """Watch for ever."""
        clock = self._place.clock
        while True:
            self._follow_hints()
            before = clock.monotonic()
            await clock.sleep(LOOP_INTERVAL_S)
            lag = clock.monotonic() - before - LOOP_INTERVAL_S
            if lag > LAG_S:
                self._place.telling.tell("loop_lagged", lag_ms=int(lag * 1000))
            self._report_stuck(clock.monotonic())
            self._place.telling.ask_again()
            if self._place.telling.tally.age(clock.monotonic()) >= SUMMARY_S:
                self._place.telling.summary(len(self._slots.running))

    def _follow_hints(self) -> None:
        were_alive, self._pace.hints_alive = self._pace.hints_alive, self._hints.are_alive
        if were_alive and not self._pace.hints_alive:
            # Whoever sleeps until a hint comes sleeps too long now.
            self._look()

    def _report_stuck(self, now: float) -> None:
        patience = self._place.options.stuck_after_ms / 1000
        stuck = {
            attempt: now - attempt.aborted_at
            for attempt in self._slots.running
            if attempt.aborted_at is not None and now - attempt.aborted_at > patience
        }
        for attempt in stuck.keys() - self._told:
            self._place.telling.stuck(attempt, stuck[attempt])
        self._told = set(stuck)
        self._place.counters.stuck = len(stuck)
        if len(stuck) >= self._place.options.slots:
            self._all_stuck()


PURPOSE = "reaper"
ANSWER_S = 2.0
"""A loop that does not answer for so long runs a handler that blocks it."""
WATCHDOG_INTERVAL_S = 5.0


class Watchdog:
    """A handler that blocks the loop keeps the worker from everything: from claiming, and from ending too.

    When the worker is asked to end, or when such a handler has been told to stop and does not, the jobs that have not
    begun are given back from here. If the loop is still blocked when the shutdown timeout is over, `when_hopeless` is
    called, for whoever may end the process.
    """

    def __init__(
        self,
        place: Workplace,
        link: Link,
        slots: Slots,
        to_loop: Callable[..., None],
        from_loop: Callable[..., None],
        stop: Callable[[], None],
    ) -> None:
        """`to_loop` and `from_loop` have something done on the worker's loop, and on the one that hosts this."""
        self.when_hopeless: Callable[[], None] = lambda: None
        self._place = place
        self._link = link
        self._slots = slots
        self._to_loop = to_loop
        self._from_loop = from_loop
        self._stop_worker = stop
        self._wake = asyncio.Event()
        self._answer = asyncio.Event()
        self._asked_at: float | None = None
        self._stopping = False

    def asked(self) -> None:
        """Note that the worker was asked to end. Called on its own loop."""
        if self._asked_at is None:
            self._asked_at = self._place.clock.monotonic()
        self._wake.set()

    def stop(self) -> None:
        """End soon. Called on its own loop."""
        self._stopping = True
        self._wake.set()
        self._answer.set()

    async def run(self) -> None:
        """Watch until told to stop."""
        clock = self._place.clock
        while not self._stopping:
            self._wake.clear()
            await clock.wait(
                self._wake, WATCHDOG_INTERVAL_S if self._asked_at is None else ANSWER_S
            )
            if self._asked_at is None and not self._has_stuck(clock.monotonic()):
                continue
            if not await self._loop_answers():
                await self._step_in()

    def _has_stuck(self, now: float) -> bool:
        """Whether a handler was told to stop, long ago."""
        patience = self._place.options.stuck_after_ms / 1000
        return any(
            each.aborted_at is not None and now - each.aborted_at > patience
            for each in list(self._slots.running)
        )

    async def _loop_answers(self) -> bool:
        self._answer.clear()
        self._to_loop(self._from_loop, self._answer.set)
        return await self._place.clock.wait(self._answer, ANSWER_S) or self._stopping

    async def _step_in(self) -> None:
        if self._asked_at is None:
            self._stop_worker()
            self.asked()
        assert self._asked_at is not None
        await self._give_back()
        left = self._asked_at + self._place.timings.shutdown_ms / 1000
        left -= self._place.clock.monotonic()
        self._answer.clear()
        self._to_loop(self._from_loop, self._answer.set)
        if left <= 0 or not await self._place.clock.wait(self._answer, left):
            self.when_hopeless()

    async def _give_back(self) -> None:
        """Give back what has not begun; told to stop, it does not begin should the loop go on."""
        place, now = self._place, self._place.clock.monotonic()
        finishes: dict[Attempt, Finish] = {}
        for attempt in place.holdings.attempts():
            if attempt.is_started or attempt.is_ending:
                continue
            attempt.abort("shutdown", now)
            if attempt.take_ending("heartbeat"):
                finishes[attempt] = finish_of(attempt, place.id, "release")
        if not finishes:
            return
        try:
            done = await self._link.run(place.store.jobs.finish(list(finishes.values())))
        except Exception as error:
            place.trouble.note(PURPOSE, error)
            return
        recorded = {each.id for each in done}
        for attempt, finish in finishes.items():
            if attempt.claimed.id in recorded:
                place.holdings.end([attempt])
                place.telling.accepted(attempt, finish)

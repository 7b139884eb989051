"""Watches the worker's own loop: whether it lags, handlers obey, hints still arrive; and sums up what it did."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.worker.attempt import Attempt
from holdfast.worker.hints import Hints
from holdfast.worker.pace import Pace
from holdfast.worker.slots import Slots
from holdfast.worker.workplace import Workplace

INTERVAL_S = 1.0
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
            await clock.sleep(INTERVAL_S)
            lag = clock.monotonic() - before - INTERVAL_S
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

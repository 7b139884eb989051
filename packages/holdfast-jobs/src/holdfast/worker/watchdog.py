"""Watches the worker's loop: from the loop itself, whether it lags or handlers are stuck; from outside, whether it is
blocked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.core.records import Finish
from holdfast.storage.database import Link
from holdfast.worker.attempt import Attempt
from holdfast.worker.background_loops import BackgroundLoop
from holdfast.worker.heartbeat import HeartbeatEvents
from holdfast.worker.notifications import WorkerHints
from holdfast.worker.options import PollBackoff
from holdfast.worker.resolve_outcome import make_finish
from holdfast.worker.slots import Slots
from holdfast.worker.worker_context import WorkerContext

LOOP_INTERVAL_S = 1.0
LAG_S = 1.0
SUMMARY_S = 10.0
WATCHDOG_INTERVAL_S = 5.0
ANSWER_S = 2.0
"""A loop that does not answer for so long is blocked by a handler."""


class LoopMonitor:
    """Checks once a second for lag, stuck handlers and lost hints, and emits the summary.

    When every slot is stuck, the process is of no use and is given up.
    """

    def __init__(
        self, context: WorkerContext, slots: Slots, hints: WorkerHints, backoff: PollBackoff
    ) -> None:
        self._context = context
        self._slots = slots
        self._hints = hints
        self._backoff = backoff
        self._reported: set[Attempt] = set()

    async def run(self) -> None:
        """Watch until cancelled."""
        clock = self._context.clock
        while True:
            self._follow_hints()
            before = clock.monotonic()
            await clock.sleep(LOOP_INTERVAL_S)
            lag = clock.monotonic() - before - LOOP_INTERVAL_S
            if lag > LAG_S:
                self._context.emitter.emit("loop_lagged", lag_ms=int(lag * 1000))
            self._report_stuck(clock.monotonic())
            self._context.emitter.refresh_wants()
            if self._context.emitter.tally.age(clock.monotonic()) >= SUMMARY_S:
                self._context.emitter.emit_summary(len(self._slots.running))

    def _follow_hints(self) -> None:
        were_alive, self._backoff.hints_alive = self._backoff.hints_alive, self._hints.are_alive
        if were_alive and not self._backoff.hints_alive:
            # A claimer that sleeps until a hint comes would sleep too long now.
            self._context.wakes.claims.set()

    def _report_stuck(self, now: float) -> None:
        stuck = self._slots.find_stuck(now)
        for attempt in stuck.keys() - self._reported:
            self._context.emitter.emit_stuck(attempt, stuck[attempt])
        self._reported = set(stuck)
        self._context.counters.stuck = len(stuck)
        if len(stuck) >= self._context.options.slots:
            self._context.stop.begin("all slots are stuck")


class Watchdog(BackgroundLoop):
    """Acts from the heartbeat's thread when a handler blocks the loop, which keeps the worker even from ending.

    When the worker is asked to end, or when such a handler ignores its abort signal, the jobs that have not started are
    given back from here. If the loop is still blocked when the shutdown timeout is over, `on_hopeless` is called, which
    may end the process.
    """

    def __init__(
        self, context: WorkerContext, link: Link, slots: Slots, events: HeartbeatEvents
    ) -> None:
        self.on_hopeless: Callable[[], None] = lambda: None
        super().__init__(context, link)
        self._slots = slots
        self._events = events
        self._answer = asyncio.Event()
        self._asked_at: float | None = None

    def expect_end(self) -> None:
        """Note that the worker was asked to end. Called on its own loop."""
        if self._asked_at is None:
            self._asked_at = self._context.clock.monotonic()
        self._wake.set()

    def stop(self) -> None:
        """End soon: wait for no answer any more."""
        super().stop()
        self._answer.set()

    async def run(self) -> None:
        """Watch until stopped."""
        clock = self._context.clock
        while not self._stopping.is_set():
            self._wake.clear()
            await clock.wait(
                self._wake, WATCHDOG_INTERVAL_S if self._asked_at is None else ANSWER_S
            )
            if self._asked_at is None and not self._slots.find_stuck(clock.monotonic()):
                continue
            if not await self._loop_answers(ANSWER_S):
                await self._step_in()

    async def _loop_answers(self, seconds: float) -> bool:
        self._answer.clear()
        threads = self._context.threads
        threads.to_loop(threads.to_background, self._answer.set)
        return await self._context.clock.wait(self._answer, seconds) or self._stopping.is_set()

    async def _step_in(self) -> None:
        if self._asked_at is None:
            stop = self._context.stop
            self._context.threads.to_loop(stop.begin, "the event loop is blocked")
            self.expect_end()
        assert self._asked_at is not None
        await self._release_unstarted()
        left = self._asked_at + self._context.timings.shutdown_ms / 1000
        left -= self._context.clock.monotonic()
        if left <= 0 or not await self._loop_answers(left):
            self.on_hopeless()

    async def _release_unstarted(self) -> None:
        """Give back what has not started; aborted, it does not start should the loop go on."""
        context, now = self._context, self._context.clock.monotonic()
        finishes: dict[Attempt, Finish] = {}
        for attempt in context.held_leases.attempts():
            if attempt.is_started or attempt.is_ending:
                continue
            attempt.abort("shutdown", now)
            if attempt.take_ending("heartbeat"):
                finishes[attempt] = make_finish(attempt, context.id, "release")
        if not finishes:
            return
        with context.health.report(self._link.purpose):
            done = await self._link.run(context.store.jobs.finish(list(finishes.values())))
            recorded = {each.id for each in done}
            released = [each for each in finishes if each.claimed.id in recorded]
            context.held_leases.remove(released)
            for attempt in released:
                context.emitter.emit_finished(attempt, finishes[attempt])
            self._events.announce_released({each.claimed.type for each in released})

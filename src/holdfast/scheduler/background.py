"""How long the background mode waits between ticks: short after work, doubling when idle, long after a failed tick.

Background mode: the worker streams and a loop repeats the tick; all it decides by time is when to tick again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core.error_text import clean_error, words_of
from holdfast.core.errors import CopiedDatabase, DatabaseBusy, DatabaseUnreachable
from holdfast.core.events import Observer, event
from holdfast.notify.base import Hint, Listener, Notifier, is_about_cycles
from holdfast.scheduler.tick import Tick
from holdfast.worker.background_loops import call_on
from holdfast.worker.clock import Clock, SystemClock
from holdfast.worker.worker import Worker, WorkerReport


@dataclass(frozen=True, slots=True)
class PaceOptions:
    """The pauses of the loop in milliseconds."""

    busy_ms: int = 250
    idle_min_ms: int = 1_000
    idle_max_ms: int = 30_000
    jitter_ms: int = 500
    error_ms: int = 30_000
    error_jitter_ms: int = 2_000


class LoopPace:
    """Remembers for how long nothing was processed. `random` is a number in [0, 1)."""

    def __init__(self, options: PaceOptions) -> None:
        self._options = options
        self._idle_ms = options.idle_min_ms

    def after_tick(self, processed: int, again_in_ms: int | None, random: float) -> float:
        """Return the pause in seconds after a tick; a runner that knows when it is due shortens it."""
        if processed:
            self._idle_ms = self._options.idle_min_ms
            pause_ms = self._options.busy_ms
        else:
            pause_ms = self._idle_ms
            self._idle_ms = min(self._idle_ms * 2, self._options.idle_max_ms)
        wait = pause_ms + self._options.jitter_ms * random
        if again_in_ms is not None:
            wait = min(wait, max(again_in_ms, self._options.busy_ms))
        return wait / 1000

    def after_error(self, random: float) -> float:
        """Return the pause in seconds after a tick that could not run."""
        return (self._options.error_ms + self._options.error_jitter_ms * random) / 1000


REACH_AGAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class BackgroundReport:
    """How the background mode ended."""

    reason: str
    ticks: int
    worker: WorkerReport
    abandoned: tuple[str, ...] = ()
    """The cycles and other runners that did not stop when told to."""

    @property
    def exit_code(self) -> int:
        """0 only when nothing was abandoned."""
        return 1 if self.abandoned else self.worker.exit_code


class Background:
    """Runs until stopped. The first tick comes at once; one tick at a time; a slow cycle delays nothing but itself."""

    def __init__(
        self,
        tick: Tick,
        worker: Worker,
        pace: PaceOptions | None = None,
        *,
        shutdown_s: float = 30.0,
        clock: Clock | None = None,
        notifier: Notifier | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.tick = tick
        self.worker = worker
        self._pace = LoopPace(pace or PaceOptions())
        self._shutdown_s = shutdown_s
        self._clock = clock or SystemClock()
        self._notifier = notifier
        self._observer = observer
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._stopping_now = asyncio.Event()
        self._reason = "asked"
        self._loop: asyncio.AbstractEventLoop | None = None
        tick.when_late = self._wake.set

    @property
    def holding(self) -> list[str]:
        """What runs now, in words: handlers with their jobs, and runners of the tick."""
        runners = dict.fromkeys([*self.tick.running, *self.tick.abandoned])
        return [*self.worker.holding, *(f"runner {each}" for each in runners)]

    def on_hopeless(self, act: Callable[[], None]) -> None:
        """Have something done, from another thread, when a handler still blocks the loop after the shutdown timeout."""
        self.worker.on_hopeless(act)

    def expect_end(self) -> None:
        """Note that it is to end, should its loop be too busy to hear of it. From any thread."""
        self.worker.expect_end()

    def stop(self, reason: str = "asked") -> None:
        """Start no tick and claim no job any more, and end when what runs has; the second call ends it now.

        From any thread and at any time.
        """
        self.worker.expect_end()
        if self._loop is None:
            self._stop(reason)
        else:
            call_on(self._loop, self._stop, reason)

    def _stop(self, reason: str) -> None:
        if self._stopping.is_set():
            self._stopping_now.set()
        else:
            self._reason = reason
            self._stopping.set()
        self._wake.set()
        self.tick.stop()
        self.worker.stop(reason)

    async def run(self) -> BackgroundReport:
        """Work until stopped, or until the worker ends by itself. Raises: CopiedDatabase; what the worker raises."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._admitted()
        except BaseException:
            await self.tick.close()
            raise
        listener = self._listen()
        ticking = asyncio.create_task(self._repeat(), name="holdfast ticks")
        working = asyncio.create_task(self.worker.run(), name="holdfast worker")
        try:
            await asyncio.wait({ticking, working}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._end(working)
            await self._close_tick(ticking)
            await asyncio.wait({working})
            if listener is not None:
                await asyncio.to_thread(listener.close)
        await ticking
        report = await working
        return BackgroundReport(self._reason, self.tick.count, report, tuple(self.tick.abandoned))

    async def _admitted(self) -> None:
        """Wait for the database, and see that it may be worked off, before anything is claimed."""
        while not self._stopping.is_set():
            try:
                await self.tick.check()
            except (DatabaseUnreachable, DatabaseBusy) as error:
                self._tell_failed(error)
                await self._clock.wait(self._stopping, REACH_AGAIN_S)
            else:
                return

    def _end(self, working: asyncio.Task[WorkerReport]) -> None:
        """Whatever ended first takes the other with it."""
        if not self._stopping.is_set():
            self._stop(working.result().reason if _succeeded(working) else "error")

    async def _close_tick(self, ticking: asyncio.Task[None]) -> None:
        """Let the running tick and what it began end, unless told to hurry, then end it."""
        over = asyncio.Event()
        ending = asyncio.create_task(self._ended(ticking))
        hurry = asyncio.create_task(self._stopping_now.wait())
        for each in (ending, hurry):
            each.add_done_callback(lambda _: over.set())
        await self._clock.wait(over, self._shutdown_s)
        for each in (ending, hurry):
            each.cancel()
        await self.tick.close()
        await asyncio.wait({ticking})

    async def _ended(self, ticking: asyncio.Task[None]) -> None:
        await asyncio.wait({ticking})
        await self.tick.finished()

    async def _repeat(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            pause = await self._one_tick()
            if not self._stopping.is_set():
                await self._clock.wait(self._wake, pause)

    async def _one_tick(self) -> float:
        """Run a tick, whatever comes of it; return the pause that follows."""
        try:
            summary = await self.tick.run()
        except CopiedDatabase:
            raise
        except asyncio.CancelledError:
            if self._stopping.is_set():
                return 0.0
            raise
        except Exception as error:
            self._tell_failed(error)
            return self._pace.after_error(self._clock.random())
        self.worker.counters.ticks += 1
        return self._pace.after_tick(
            summary.total_processed, self.tick.again_in_ms, self._clock.random()
        )

    def _tell_failed(self, error: Exception) -> None:
        if self._observer is not None:
            text = clean_error(type(error).__name__, words_of(error))
            self._observer.observe(event("tick_failed", worker=self.worker.id, error=text))

    def _listen(self) -> Listener | None:
        if self._notifier is None:
            return None
        loop = asyncio.get_running_loop()

        def on_hint(hint: Hint) -> None:
            if is_about_cycles(hint):
                call_on(loop, self._wake.set)

        return self._notifier.listen(on_hint)


def _succeeded(task: asyncio.Task[WorkerReport]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None

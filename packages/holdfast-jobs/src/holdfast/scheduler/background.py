"""Background mode: a worker runs, and a loop repeats the tick with a delay that depends on the last one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core.errors import (
    CopiedDatabase,
    DatabaseBusy,
    DatabaseUnreachable,
    NoConnection,
)
from holdfast.core.events import Observer, event
from holdfast.core.redaction import clean_error, words_of
from holdfast.notify.base import Hint, Listener, Notifier, is_about_cycles
from holdfast.scheduler.tick import Tick
from holdfast.worker.background_loops import call_on
from holdfast.worker.clock import Clock, SystemClock, ends_before
from holdfast.worker.worker import Worker, WorkerReport

log = logging.getLogger("holdfast.worker")


@dataclass(frozen=True, slots=True)
class LoopDelays:
    """The delays of the loop in milliseconds: after work, when idle, doubling up to a maximum, and after a failure."""

    busy_ms: int = 250
    idle_min_ms: int = 1_000
    idle_max_ms: int = 30_000
    jitter_ms: int = 500
    error_ms: int = 30_000
    error_jitter_ms: int = 2_000


class LoopBackoff:
    """The delay after each tick. `random` is a number in [0, 1)."""

    def __init__(self, delays: LoopDelays) -> None:
        self._delays = delays
        self._idle_ms = delays.idle_min_ms

    def after_tick(self, processed: int, next_in_ms: int | None, random: float) -> float:
        """Return the delay in seconds after a tick; a runner that knows when it is due shortens it."""
        if processed:
            self._idle_ms = self._delays.idle_min_ms
            delay_ms = self._delays.busy_ms
        else:
            delay_ms = self._idle_ms
            self._idle_ms = min(self._idle_ms * 2, self._delays.idle_max_ms)
        wait = delay_ms + self._delays.jitter_ms * random
        if next_in_ms is not None:
            wait = min(wait, max(next_in_ms, self._delays.busy_ms))
        return wait / 1000

    def after_error(self, random: float) -> float:
        """Return the delay in seconds after a tick that could not run."""
        return (self._delays.error_ms + self._delays.error_jitter_ms * random) / 1000


RECONNECT_S = 5.0


@dataclass(frozen=True, slots=True)
class BackgroundReport:
    """How the background mode ended."""

    reason: str
    ticks: int
    worker: WorkerReport
    abandoned: tuple[str, ...] = ()
    """The cycles and other runners that did not stop."""

    @property
    def exit_code(self) -> int:
        """0 only when nothing was abandoned."""
        return 1 if self.abandoned else self.worker.exit_code


class Background:
    """Runs until stopped. The first tick starts immediately; one tick at a time; a slow cycle delays only itself."""

    def __init__(
        self,
        tick: Tick,
        worker: Worker,
        delays: LoopDelays | None = None,
        *,
        shutdown_s: float = 30.0,
        clock: Clock | None = None,
        notifier: Notifier | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.tick = tick
        self.worker = worker
        self._backoff = LoopBackoff(delays or LoopDelays())
        self._shutdown_s = shutdown_s
        self._clock = clock or SystemClock()
        self._notifier = notifier
        self._observer = observer
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._stopping_now = asyncio.Event()
        self._reason = "asked"
        self._tick_closed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        tick.on_late_result = self._wake.set
        worker.end_companions = self._end_with_worker

    @property
    def holding(self) -> list[str]:
        """What is running, as text: handlers with their jobs, and runners of the tick."""
        runners = dict.fromkeys([*self.tick.running, *self.tick.abandoned])
        return [*self.worker.holding, *(f"runner {each}" for each in runners)]

    def answer(self, act: Callable[[], None]) -> None:
        """Call back once the worker's loop and its heartbeat have answered."""
        self.worker.answer(act)

    def on_hopeless(self, act: Callable[[], None]) -> None:
        """Call back, from another thread, when a handler still blocks the loop after the shutdown timeout."""
        self.worker.on_hopeless(act)

    def expect_end(self) -> None:
        """Expect a stop, in case the loop is too busy to process it. From any thread."""
        self.worker.expect_end()

    def stop(self, reason: str = "asked") -> None:
        """Start no more ticks and claims, and end when running work has; a second call ends it now.

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
            await self._wait_for_database()
        except BaseException:
            await self.tick.close()
            raise
        listener = self._listen()
        ticking = asyncio.create_task(self._repeat(), name="holdfast ticks")
        working = asyncio.create_task(self.worker.run(), name="holdfast worker")
        try:
            await asyncio.wait({ticking, working}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stop_other(working)
            await self._close_tick(ticking)
            await asyncio.wait({working})
            if listener is not None:
                await asyncio.to_thread(listener.close)
        await ticking
        report = await working
        return BackgroundReport(self._reason, self.tick.count, report, tuple(self.tick.abandoned))

    async def _wait_for_database(self) -> None:
        """Wait for the database, and check that it is not a copy, before anything is claimed."""
        while not self._stopping.is_set():
            try:
                await self.tick.check()
            except (DatabaseUnreachable, DatabaseBusy) as error:
                self._emit_failed(error)
                # Those that were started together are not to ask together.
                pause = RECONNECT_S * (0.5 + self._clock.random())
                await self._clock.wait(self._stopping, pause)
            else:
                return

    def _stop_other(self, working: asyncio.Task[WorkerReport]) -> None:
        """Whichever ended first stops the other."""
        if not self._stopping.is_set():
            has_failed = not working.done() or working.cancelled() or working.exception()
            self._stop("error" if has_failed else working.result().reason)

    async def _close_tick(self, ticking: asyncio.Task[None]) -> None:
        """Let the running tick and its runners end, unless stopped a second time, then close it."""
        ending = self._wait_until_idle(ticking)
        await ends_before(self._clock, ending, self._stopping_now, self._shutdown_s)
        await self.tick.close()
        self._tick_closed.set()
        await asyncio.wait({ticking})

    async def _end_with_worker(self, reason: str) -> int:
        """End the ticks of a worker that ends; return how many runners were abandoned."""
        if not self._stopping.is_set():
            self._stop(reason)
        await self._tick_closed.wait()
        return len(self.tick.abandoned)

    async def _wait_until_idle(self, ticking: asyncio.Task[None]) -> None:
        await asyncio.wait({ticking})
        await self.tick.wait_until_idle()

    async def _repeat(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            pause = await self._tick_once()
            if not self._stopping.is_set():
                await self._clock.wait(self._wake, pause)

    async def _tick_once(self) -> float:
        """Run a tick; return the delay that follows. Raises: CopiedDatabase."""
        try:
            summary = await self.tick.run()
        except CopiedDatabase:
            raise
        except asyncio.CancelledError:
            if self._stopping.is_set():
                return 0.0
            raise
        except Exception as error:
            self._emit_failed(error)
            return self._backoff.after_error(self._clock.random())
        self.worker.counters.ticks += 1
        return self._backoff.after_tick(
            summary.total_processed, self.tick.next_in_ms, self._clock.random()
        )

    def _emit_failed(self, error: Exception) -> None:
        if isinstance(error, NoConnection):
            self.worker.tell_shortage(error)
        elif self._observer is not None:
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


class EmbeddedWorker:
    """`async with app.worker(): …` runs the background mode during the block if OUTBOX_WORKER_ENABLED is set."""

    def __init__(
        self, enabled: bool, make: Callable[[], Background], is_default: bool = False
    ) -> None:
        """`is_default` says that nobody set it, so that a worker that is off may surprise."""
        self._enabled = enabled
        self._is_default = is_default
        self._make = make
        self._background: Background | None = None
        self._task: asyncio.Task[object] | None = None

    @property
    def is_running(self) -> bool:
        """Whether jobs are run here."""
        return self._task is not None and not self._task.done()

    async def __aenter__(self) -> EmbeddedWorker:
        if self._enabled:
            self._background = self._make()
            self._task = asyncio.create_task(
                self._background.run(), name="holdfast embedded worker"
            )
            self._task.add_done_callback(_log_failure)
        elif self._is_default:
            log.warning(
                "this process starts jobs but runs none, which is right if `holdfast worker` runs separately "
                "(then set OUTBOX_WORKER_ENABLED=false); to run jobs here, set OUTBOX_WORKER_ENABLED=true"
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let running handlers finish and release unstarted jobs. Raises: what ended the worker early."""
        if self._background is None or self._task is None:
            return
        self._background.stop("the application stops")
        await self._task


def _log_failure(task: asyncio.Task[object]) -> None:
    """Log what ended a worker at once: its application goes on and would raise it only at its own end."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the embedded worker has stopped; this process runs no more jobs: %s", error)

"""Background mode: a worker, and loops that repeat the runners, each with a timer of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.errors import CopiedDatabase, DatabaseBusy, DatabaseUnreachable, NoConnection
from holdfast.notify.base import Hint, Listener, Notifier, is_about_cycles
from holdfast.scheduler.tick import Passes
from holdfast.worker.clock import Clock, SystemClock, all_ended, ends_before
from holdfast.worker.wakes import call_on
from holdfast.worker.worker import Worker, WorkerReport

if TYPE_CHECKING:
    from holdfast.scheduler.assembly import Assembly

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

    def until_due(self, processed: int, next_in_ms: int | None, random: float) -> float | None:
        """Return the delay without polls: a moment after work, else until it is due; None if it does not say."""
        if processed:
            return self.after_tick(processed, next_in_ms, random)
        return None if next_in_ms is None else max(next_in_ms, self._delays.busy_ms) / 1000

    def after_error(self, random: float) -> float:
        """Return the delay in seconds after a tick that could not run."""
        return (self._delays.error_ms + self._delays.error_jitter_ms * random) / 1000


RECONNECT_S = 5.0
MAINTENANCE = ("reaper", "outbox", "retention")
"""These do little in the background, and share a loop so that an idle worker asks little."""


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


class RunnerLoop:
    """Repeats the passes of one runner, or of a few in order: at once, then when they are due.

    What may have changed in the database meanwhile is polled for by one loop, after a backoff, which wakes the others:
    their reads come together and are shared.
    """

    def __init__(
        self,
        names: Sequence[str],
        passes: Passes,
        worker: Worker,
        delays: LoopDelays,
        clock: Clock,
        others: Sequence[RunnerLoop] | None = None,
    ) -> None:
        """`others` are those that this loop wakes when it polls; None for a loop that is woken."""
        self.name = f"holdfast loop {names[0]}"
        self._names = names
        self._passes = passes
        self._worker = worker
        self._backoff = LoopBackoff(delays)
        self._clock = clock
        self._others = others
        self._is_idle = False
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Have the next pass begin now, or the loop end if the passes were stopped."""
        self._wake.set()

    def poll(self) -> None:
        """Have a loop that rests look; one that runs has just looked."""
        if self._is_idle:
            self._wake.set()

    async def run(self) -> None:
        """Repeat until the passes are stopped; one that is cancelled after that ends too. Raises: CopiedDatabase."""
        stopping = self._passes.stopping
        try:
            while not stopping.is_set():
                self._wake.clear()
                pause = await self._run_once()
                if stopping.is_set() or await self._rest(pause):
                    continue
                for each in self._others or ():
                    each.poll()
        except asyncio.CancelledError:
            if not stopping.is_set():
                raise

    async def _rest(self, pause: float | None) -> bool:
        """Wait so long; return whether the loop was woken before."""
        self._is_idle = True
        try:
            return await self._clock.wait(self._wake, pause)
        finally:
            self._is_idle = False

    async def _run_once(self) -> float | None:
        """Run a pass; return the delay that follows, None until the loop is woken."""
        try:
            summary, next_in_ms = await self._passes.run_pass(self._names)
        except CopiedDatabase:
            raise
        except Exception as error:
            report_failure(error, self._passes, self._worker)
            return self._backoff.after_error(self._clock.random())
        self._worker.counters.ticks += 1
        is_polling = self._others is not None
        after = self._backoff.after_tick if is_polling else self._backoff.until_due
        return after(summary.total_processed, next_in_ms, self._clock.random())


def report_failure(error: Exception, passes: Passes, worker: Worker) -> None:
    """Report that a pass could not run, as without a database."""
    if isinstance(error, NoConnection):
        worker.tell_shortage(error)
    else:
        passes.report_failure(error)


class Background:
    """Runs until stopped: a worker, and beside it a loop for each runner, so that a slow one delays only itself."""

    def __init__(
        self,
        passes: Passes,
        worker: Worker,
        delays: LoopDelays | None = None,
        *,
        shutdown_s: float = 30.0,
        clock: Clock | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self.worker = worker
        self._passes = passes
        self._shutdown_s = shutdown_s
        self._clock = clock or SystemClock()
        self._notifier = notifier
        together, *alone = group_runners(passes.names)
        given = passes, worker, delays or LoopDelays(), self._clock
        others = [RunnerLoop(names, *given) for names in alone]
        self._loops = [RunnerLoop(together, *given, others), *others]
        self._stopping_now = asyncio.Event()
        self._reason = "asked"
        self._have_loops_ended = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def holding(self) -> list[str]:
        """What is running, as text: handlers with their jobs, and runners."""
        runners = dict.fromkeys([*self._passes.running, *self._passes.abandoned])
        return [*self.worker.holding, *(f"runner {each}" for each in runners)]

    def stop(self, reason: str = "asked") -> None:
        """Start no more passes and claims, and end when running work has; a second call ends it now.

        From any thread and at any time.
        """
        self.worker.expect_end()
        if self._loop is None:
            self._stop(reason)
        else:
            call_on(self._loop, self._stop, reason)

    def _stop(self, reason: str) -> None:
        if self._passes.stopping.is_set():
            self._stopping_now.set()
        else:
            self._reason = reason
        self._passes.stop()
        for each in self._loops:
            each.wake()
        self.worker.stop(reason)

    async def run(self) -> BackgroundReport:
        """Work until stopped, or until the worker ends by itself. Raises: CopiedDatabase; what the worker raises."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._wait_for_database()
        except BaseException:
            await self._passes.close()
            raise
        self._passes.warn_unknown()
        listener = self._listen()
        loops = [asyncio.create_task(each.run(), name=each.name) for each in self._loops]
        working = asyncio.create_task(
            self.worker.run(self._end_with_worker), name="holdfast worker"
        )
        try:
            await asyncio.wait({*loops, working}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stop_other(working)
            await self._end_loops(loops)
            await asyncio.wait({working})
            if listener is not None:
                await asyncio.to_thread(listener.close)
        await asyncio.gather(*loops)
        report = await working
        return BackgroundReport(
            self._reason, self._passes.count, report, tuple(self._passes.abandoned)
        )

    async def _wait_for_database(self) -> None:
        """Wait for the database, and check that it is not a copy, before anything is claimed."""
        while not self._passes.stopping.is_set():
            try:
                await self._passes.check()
            except (DatabaseUnreachable, DatabaseBusy) as error:
                report_failure(error, self._passes, self.worker)
                # Those that were started together are not to ask together.
                pause = RECONNECT_S * (0.5 + self._clock.random())
                await self._clock.wait(self._passes.stopping, pause)
            else:
                return

    def _stop_other(self, working: asyncio.Task[WorkerReport]) -> None:
        """Whichever ended first stops the others."""
        if not self._passes.stopping.is_set():
            has_failed = not working.done() or working.cancelled() or working.exception()
            self._stop("error" if has_failed else working.result().reason)

    async def _end_loops(self, loops: Sequence[asyncio.Task[None]]) -> None:
        """Let running passes end, unless stopped a second time; cancel, then abandon, those that do not."""
        ending = all_ended(self._clock, loops, None)
        if not await ends_before(self._clock, ending, self._stopping_now, self._shutdown_s):
            for each in loops:
                each.cancel()
            await asyncio.wait(loops)
        await self._passes.close()
        self._have_loops_ended.set()

    async def _end_with_worker(self, reason: str) -> int:
        """End the loops beside a worker that ends; return how many runners were abandoned."""
        if not self._passes.stopping.is_set():
            self._stop(reason)
        await self._have_loops_ended.wait()
        return len(self._passes.abandoned)

    def _listen(self) -> Listener | None:
        if self._notifier is None:
            return None
        loop = asyncio.get_running_loop()

        def on_hint(hint: Hint) -> None:
            if is_about_cycles(hint):
                for each in self._loops:
                    call_on(loop, each.wake)

        return self._notifier.listen(on_hint)


def group_runners(names: Sequence[str]) -> list[list[str]]:
    """Return the runners of each loop: those of maintenance share one, every other has its own."""
    together = [name for name in names if name in MAINTENANCE]
    return [together, *([name] for name in names if name not in MAINTENANCE)]


class EmbeddedWorker:
    """`async with app.worker(): …` runs the background mode during the block if OUTBOX_WORKER_ENABLED is set."""

    def __init__(self, enabled: bool, assembly: Assembly, is_default: bool = False) -> None:
        """`is_default` says that nobody set it, so that a worker that is off may surprise."""
        self._enabled = enabled
        self._is_default = is_default
        self._assembly = assembly
        self._background: Background | None = None
        self._task: asyncio.Task[object] | None = None

    @property
    def is_running(self) -> bool:
        """Whether jobs are run here."""
        return self._task is not None and not self._task.done()

    async def __aenter__(self) -> EmbeddedWorker:
        if self._enabled:
            self._background = self._assembly.background(embedded=True)
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

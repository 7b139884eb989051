"""The outbox as a runner: a worker that drains within the tick's budget, or one that streams between ticks.

A worker inside a web application: off unless it was switched on, started and stopped with the application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType

from holdfast.scheduler.background import Background
from holdfast.scheduler.runner import Manner, RunnerContext, RunnerFailed, RunnerReport
from holdfast.worker.counters import Counters
from holdfast.worker.worker import Worker, WorkerReport

MakeWorker = Callable[[int, float, float], Worker]
"""Makes a worker that takes so many jobs, for so many seconds, and whose handlers have so many seconds in all."""

_NO_LIMIT = 10**9


class DrainingOutbox:
    """Works off what is due: takes jobs within its own budget, and lets them run for as long as the tick may take."""

    name = "outbox"
    max_ms: int | None = None
    manner: Manner = "lingering"

    def __init__(self, make_worker: MakeWorker) -> None:
        self._make_worker = make_worker

    async def run(self, context: RunnerContext) -> RunnerReport:
        now_ms = context.now_ms()
        taking_s, in_all_s = (
            (_NO_LIMIT if left_ms is None else left_ms) / 1000
            for left_ms in (context.budget.remaining_ms(now_ms), context.whole.remaining_ms(now_ms))
        )
        worker = self._make_worker(context.room(_NO_LIMIT), taking_s, in_all_s)
        working = asyncio.create_task(worker.run(), name="holdfast outbox worker")
        stopping = asyncio.create_task(_stop_when_told(worker, context.stopping))
        try:
            report = await asyncio.shield(working)
        except asyncio.CancelledError:
            await _stop_now(worker, working)
            context.tally.add(worker.counters.as_dict())
            context.counts.add(report_of(worker.counters.as_dict()))
            raise
        finally:
            stopping.cancel()
        context.tally.add(report.counters)
        if report.abandoned:
            context.counts.add(report_of(report.counters))
            held = ", ".join(worker.holding) or "a job whose outcome could not be written"
            raise RunnerFailed(f"abandoned {held}")
        return report_of(report.counters)


async def _stop_when_told(worker: Worker, stopping: asyncio.Event) -> None:
    await stopping.wait()
    worker.stop()


async def _stop_now(worker: Worker, working: asyncio.Task[WorkerReport]) -> None:
    worker.stop("budget")
    worker.stop("budget")
    await asyncio.wait({working})


class StreamingOutbox:
    """Reports what the background's worker did since the last tick."""

    name = "outbox"
    max_ms: int | None = None

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._told: Mapping[str, int] = counters.as_dict()

    async def run(self, context: RunnerContext) -> RunnerReport:
        before, self._told = self._told, self._counters.as_dict()
        return report_of({name: count - before[name] for name, count in self._told.items()})


def report_of(counters: Mapping[str, int]) -> RunnerReport:
    """Tell a worker's counters in the words of a runner's report."""
    return RunnerReport(
        processed=counters.get("processed", 0),
        updated=counters.get("snoozed", 0) + counters.get("cancelled", 0),
        skipped=counters.get("released", 0),
        errors=counters.get("retried", 0) + counters.get("dead_letters", 0),
    )


class EmbeddedWorker:
    """`async with app.worker(): …` runs the background mode beside the block when OUTBOX_WORKER_ENABLED says so."""

    def __init__(self, enabled: bool, make: Callable[[], Background]) -> None:
        self._enabled = enabled
        self._make = make
        self._background: Background | None = None
        self._task: asyncio.Task[object] | None = None

    @property
    def is_running(self) -> bool:
        """Whether jobs are being worked on here."""
        return self._task is not None and not self._task.done()

    async def __aenter__(self) -> EmbeddedWorker:
        if self._enabled:
            self._background = self._make()
            self._task = asyncio.create_task(
                self._background.run(), name="holdfast embedded worker"
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let running handlers end, give back what has not begun. Raises: what ended the worker before its time."""
        if self._background is None or self._task is None:
            return
        self._background.stop("the application stops")
        await self._task

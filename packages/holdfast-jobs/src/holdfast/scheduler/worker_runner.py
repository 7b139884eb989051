"""The outbox as a runner: a worker that drains within the tick's budget, or one that runs between ticks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from holdfast.scheduler.runner import Concurrency, RunnerContext, RunnerFailed, RunnerReport
from holdfast.worker.counters import Counters
from holdfast.worker.worker import Worker, WorkerReport

MakeDrainer = Callable[[int, float, float], Worker]
"""Makes a worker by its maximum of jobs, the seconds it may claim, and the seconds its handlers may take in total."""

_NO_LIMIT = 10**9


class DrainingOutbox:
    """Runs what is due: claims jobs within its own budget, and lets them use the tick's."""

    name = "outbox"
    max_ms: int | None = None
    concurrency: Concurrency = "lingering"

    def __init__(self, make_worker: MakeDrainer) -> None:
        self._make_worker = make_worker

    async def run(self, context: RunnerContext) -> RunnerReport:
        now_ms = context.now_ms()
        claim_s, total_s = (
            (_NO_LIMIT if left_ms is None else left_ms) / 1000
            for left_ms in (
                context.budget.remaining_ms(now_ms),
                context.tick_budget.remaining_ms(now_ms),
            )
        )
        worker = self._make_worker(context.room(_NO_LIMIT), claim_s, total_s)
        working = asyncio.create_task(worker.run(), name="holdfast outbox worker")
        stopping = asyncio.create_task(_stop_worker_on(worker, context.stopping))
        try:
            report = await asyncio.shield(working)
        except asyncio.CancelledError:
            await _stop_now(worker, working)
            context.worker_counters.add(worker.counters.as_dict())
            context.counts.add(report_of(worker.counters.as_dict()))
            raise
        finally:
            stopping.cancel()
            context.worker_error = worker.last_error
        context.worker_counters.add(report.counters)
        if report.abandoned:
            context.counts.add(report_of(report.counters))
            held = ", ".join(worker.holding) or "a job whose outcome could not be written"
            raise RunnerFailed(f"abandoned {held}")
        return report_of(report.counters)


async def _stop_worker_on(worker: Worker, stopping: asyncio.Event) -> None:
    await stopping.wait()
    worker.stop()


async def _stop_now(worker: Worker, working: asyncio.Task[WorkerReport]) -> None:
    worker.stop("budget")
    worker.stop("budget")
    await asyncio.wait({working})


class StreamingOutbox:
    """Reports what the background worker did since the last tick."""

    name = "outbox"
    max_ms: int | None = None

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._reported: Mapping[str, int] = counters.as_dict()

    async def run(self, context: RunnerContext) -> RunnerReport:
        before, self._reported = self._reported, self._counters.as_dict()
        return report_of({name: count - before[name] for name, count in self._reported.items()})


def report_of(counters: Mapping[str, int]) -> RunnerReport:
    """Return a worker's counters as a runner's report."""
    return RunnerReport(
        processed=counters.get("processed", 0),
        updated=counters.get("snoozed", 0) + counters.get("cancelled", 0),
        skipped=counters.get("released", 0),
        errors=counters.get("retried", 0) + counters.get("dead_letters", 0),
    )

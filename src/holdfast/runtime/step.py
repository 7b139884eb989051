"""One runner within a tick: run to its end or to the end of its budget, never twice at a time."""

from __future__ import annotations

import asyncio

from holdfast.core.cleaning import clean_error, words_of
from holdfast.runtime.runner import Runner, RunnerContext, RunnerReport
from holdfast.runtime.summary import RunnerResult, result
from holdfast.worker.clock import Clock, all_ended

CANCEL_GRACE_S = 5.0
"""How long a cancelled runner may take to write down what became of it."""


class Steps:
    """Runs runners, and remembers those that did not stop when they were told to."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stubborn: dict[str, asyncio.Task[RunnerReport]] = {}
        self._running: asyncio.Task[RunnerReport] | None = None

    def is_busy(self, name: str) -> bool:
        """Say whether an earlier run of this runner still goes on."""
        task = self._stubborn.get(name)
        if task is None or not task.done():
            return task is not None
        del self._stubborn[name]
        return False

    async def run(self, runner: Runner, context: RunnerContext) -> RunnerResult:
        """Run a runner; its failure, and its cancellation at the end of its budget, are results like others."""
        began = self._clock.monotonic()
        task = asyncio.create_task(_call(runner, context), name=f"holdfast {runner.name}")
        self._running = task
        try:
            note = await self._bounded(runner.name, task, context)
        except asyncio.CancelledError:
            task.cancel()
            await all_ended(self._clock, [task], CANCEL_GRACE_S)
            raise
        duration_ms = int((self._clock.monotonic() - began) * 1000)
        if note is None:
            return result(task.result(), duration_ms)
        context.counts.errors += 1
        return result(context.counts.report(), duration_ms, note, failed=True)

    async def _bounded(
        self, name: str, task: asyncio.Task[RunnerReport], context: RunnerContext
    ) -> str | None:
        """Wait for the runner; return why it failed, None when it did not."""
        left_ms = context.budget.remaining_ms(context.now_ms())
        left_s = None if left_ms is None else left_ms / 1000
        if not await all_ended(self._clock, [task], left_s):
            task.cancel()
            if not await all_ended(self._clock, [task], CANCEL_GRACE_S):
                self._stubborn[name] = task
            return f"cancelled after {left_ms} ms, the end of its budget"
        if task.cancelled():
            return "cancelled"
        error = task.exception()
        return None if error is None else clean_error(type(error).__name__, words_of(error))

    def interrupt(self) -> None:
        """Tell the runner that runs to stop now."""
        if self._running is not None:
            self._running.cancel()

    def close(self) -> None:
        """Tell whatever still runs once more to stop."""
        for task in self._stubborn.values():
            task.cancel()


async def _call(runner: Runner, context: RunnerContext) -> RunnerReport:
    return await runner.run(context)

"""One runner within a tick: run to its end or to the end of its time, never twice at once in a process."""

from __future__ import annotations

import asyncio

from holdfast.core.cleaning import clean_error, words_of
from holdfast.runtime.runner import Runner, RunnerContext, RunnerFailed, RunnerReport
from holdfast.runtime.summary import RunnerResult, result
from holdfast.worker.clock import Clock, all_ended

CANCEL_GRACE_S = 5.0
"""How long a cancelled runner may take to write down what became of it."""


class Steps:
    """Runs runners, and remembers what did not stop when it was told to."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[str, asyncio.Task[RunnerReport]] = {}
        self._stubborn: dict[str, list[asyncio.Future[object]]] = {}

    def is_busy(self, name: str) -> bool:
        """Say whether an earlier run of this runner still goes on."""
        return name in self._running or name in self.stubborn

    @property
    def stubborn(self) -> list[str]:
        """The runners of which something goes on that was told to stop."""
        self._stubborn = {
            name: left
            for name, futures in self._stubborn.items()
            if (left := [each for each in futures if not each.done()])
        }
        return list(self._stubborn)

    async def run(
        self, runner: Runner, context: RunnerContext, limit_ms: int | None
    ) -> RunnerResult:
        """Run a runner; its failure, and its cancellation at the end of its time, are results like others."""
        began = self._clock.monotonic()
        task = asyncio.create_task(_call(runner, context), name=f"holdfast {runner.name}")
        self._running[runner.name] = task
        try:
            note = await self._bounded(task, limit_ms)
        except asyncio.CancelledError:
            task.cancel()
            await all_ended(self._clock, [task], CANCEL_GRACE_S)
            raise
        finally:
            del self._running[runner.name]
            left = [*context.left_behind, task]
            self._stubborn[runner.name] = [each for each in left if not each.done()]
        duration_ms = int((self._clock.monotonic() - began) * 1000)
        if note is None:
            return result(task.result(), duration_ms)
        if self._stubborn[runner.name]:
            note = f"{note}; it did not stop and was abandoned"
        context.counts.errors += 1
        return result(context.counts.report(), duration_ms, note, failed=True)

    async def _bounded(self, task: asyncio.Task[RunnerReport], limit_ms: int | None) -> str | None:
        """Wait for the runner; return why it failed, None when it did not."""
        limit_s = None if limit_ms is None else limit_ms / 1000
        if not await all_ended(self._clock, [task], limit_s):
            task.cancel()
            await all_ended(self._clock, [task], CANCEL_GRACE_S)
            return f"cancelled after {limit_ms} ms, the end of its budget"
        if task.cancelled():
            return "cancelled"
        error = task.exception()
        if isinstance(error, RunnerFailed):
            return str(error)
        return None if error is None else clean_error(type(error).__name__, words_of(error))

    def interrupt(self) -> None:
        """Tell the runners that run to stop now."""
        for task in self._running.values():
            task.cancel()

    def close(self) -> None:
        """Tell whatever still runs once more to stop."""
        for futures in self._stubborn.values():
            for each in futures:
                each.cancel()


async def _call(runner: Runner, context: RunnerContext) -> RunnerReport:
    return await runner.run(context)

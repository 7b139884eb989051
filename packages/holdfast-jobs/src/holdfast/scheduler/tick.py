"""The tick: one pass over all runners, started in order, for `holdfast tick` and run-once."""

from __future__ import annotations

import asyncio

from holdfast.scheduler.passes import CANCEL_GRACE_S, Passes
from holdfast.scheduler.runner import TickSkipped, TickSummary
from holdfast.worker.clock import all_ended


class Tick(Passes):
    """Runs one tick at a time; the reaper always comes first."""

    next_in_ms: int | None = None
    _current: asyncio.Task[TickSummary] | None = None

    async def run(self) -> TickSummary:
        """Run a tick, or join the one that runs. Raises: CopiedDatabase, DatabaseUnreachable, DatabaseBusy."""
        if self._current is None:
            self._current = asyncio.create_task(self._run(), name="holdfast tick")
        return await asyncio.shield(self._current)

    async def run_once(self) -> TickSummary | TickSkipped:
        """Run a tick unless one runs already."""
        return TickSkipped() if self._current is not None else await self.run()

    async def close(self, timeout_s: float = 0.0) -> None:
        """Wait for the tick that runs, at most this long, then cancel it, then abandon what does not stop."""
        running = [] if self._current is None else [self._current]
        if not await all_ended(self._clock, running, timeout_s):
            for task in running:
                task.cancel()
            await all_ended(self._clock, running, 2 * CANCEL_GRACE_S)
        await super().close()

    async def _run(self) -> TickSummary:
        try:
            self.warn_unknown()
            summary, self.next_in_ms = await self.run_pass(self.names)
            return summary
        finally:
            self._current = None

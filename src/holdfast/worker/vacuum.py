"""Vacuums dead rows as soon as there are many: the server's own autovacuum comes once a minute."""

from __future__ import annotations

from holdfast.storage.database import Link
from holdfast.worker.background_loops import BackgroundLoop
from holdfast.worker.worker_context import WorkerContext

EVERY_S = 0.5
LONGEST_S = 60.0
COST_FACTOR = 25
"""Two runs are so many times their own cost apart: a large table takes long."""

JOBS_BETWEEN = 1_000
"""Each process checks after so many jobs of its own, so that a fleet of any size checks about as often."""

FEW_DEAD = 5_000
"""Not worth a run; it costs less than a microsecond per dead row, and less the more rows at once."""


class Vacuum(BackgroundLoop):
    """A background loop. An idle worker queries nothing, and of several that try at once one vacuums."""

    def __init__(self, context: WorkerContext, link: Link) -> None:
        super().__init__(context, link)
        self._pause = EVERY_S
        self._seen = 0

    async def run(self) -> None:
        """Check after every so many jobs until stopped."""
        while not await self._context.clock.wait(self._stopping, self._pause):
            ended = self._context.counters.processed
            if ended - self._seen < JOBS_BETWEEN:
                continue
            self._seen = ended
            try:
                await self._vacuum()
            except Exception as error:
                self._pause = LONGEST_S
                self._context.health.report_error(self._link.purpose, error)
            else:
                self._context.health.report_ok(self._link.purpose)

    async def _vacuum(self) -> None:
        clock = self._context.clock
        began = clock.monotonic()
        swept = await self._link.run(self._context.store.server_stats.sweep(FEW_DEAD))
        if swept is None:
            self._pause = EVERY_S
            return
        pause = max(EVERY_S, COST_FACTOR * (clock.monotonic() - began))
        if swept.left > swept.dead // 2:
            # An old snapshot still sees them; trying again at once would be in vain.
            pause = max(pause, 2 * self._pause)
        self._pause = min(LONGEST_S, pause)

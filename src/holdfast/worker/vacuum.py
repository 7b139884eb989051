"""Has dead rows removed as soon as there are many: the server's own rounds come once a minute."""

from __future__ import annotations

import asyncio

from holdfast.storage.database import Link
from holdfast.worker.context import Workplace

PURPOSE = "reaper"

EVERY_S = 0.5
LONGEST_S = 60.0
COST_FACTOR = 25
"""So many times its own cost lies between two sweeps: a large table's takes long."""

ENDED = 1_000
"""Each process looks after so many jobs of its own, so that a fleet of any size looks about as often."""

FEW_DEAD = 5_000
"""Not worth a sweep; it costs less than a microsecond per dead row, the more rows at once the less."""


class Sweeper:
    """A task of the background worker. An idle one asks nothing, and of several that ask at once one sweeps."""

    def __init__(self, place: Workplace, link: Link) -> None:
        self._place = place
        self._link = link
        self._stop = asyncio.Event()
        self._pause = EVERY_S
        self._seen = 0

    def stop(self) -> None:
        """End after the present sweep. Called on its own loop."""
        self._stop.set()

    async def run(self) -> None:
        """Look after every so many jobs until told to stop."""
        while not await self._place.clock.wait(self._stop, self._pause):
            ended = self._place.counters.processed
            if ended - self._seen < ENDED:
                continue
            self._seen = ended
            try:
                await self._sweep()
            except Exception as error:
                self._pause = LONGEST_S
                self._place.trouble.note(PURPOSE, error)
            else:
                self._place.trouble.over(PURPOSE)

    async def _sweep(self) -> None:
        clock = self._place.clock
        began = clock.monotonic()
        swept = await self._link.run(self._place.store.server_stats.sweep(FEW_DEAD))
        if swept is None:
            self._pause = EVERY_S
            return
        pause = max(EVERY_S, COST_FACTOR * (clock.monotonic() - began))
        if swept.left > swept.dead // 2:
            # Somebody's old snapshot still sees them; asking again at once would be in vain.
            pause = max(pause, 2 * self._pause)
        self._pause = min(LONGEST_S, pause)

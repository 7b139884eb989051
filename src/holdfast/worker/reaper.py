"""Takes back what dead workers held, on a timer of its own, for all types."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.core.model import Instant
from holdfast.ops.reap import ReapReport, reap_leases
from holdfast.storage.database import Link
from holdfast.storage.port import Store
from holdfast.storage.statement import Op
from holdfast.worker.workplace import Workplace

PURPOSE = "reaper"

Run = Callable[[Op[ReapReport]], Awaitable[ReapReport]]
Found = Callable[[ReapReport], None]


async def reap_all(run: Run, store: Store, batch: int, poison: int, found: Found) -> int:
    """Take back every expired lease, each page in a transaction of its own; return how many jobs came back."""
    after: tuple[Instant, str] | None = None
    count = 0
    while True:
        report = await run(reap_leases(store, batch, poison, after))
        if report.page.reaped:
            count += len(report.page.reaped)
            found(report)
        if report.page.leases < batch:
            return count
        after = report.page.last


class Reaper:
    """The reaper as a task of the background worker; independent of free slots."""

    def __init__(self, place: Workplace, link: Link, found: Found) -> None:
        self._place = place
        self._link = link
        self._found = found
        self._interval = place.timings.reaper_interval_ms / 1000
        self._stop = asyncio.Event()
        self._calm_since = float("-inf")

    def stop(self) -> None:
        """End after the present run. Called on its own loop."""
        self._stop.set()

    async def run(self) -> None:
        """Reap at once, then at every interval, a little apart from other replicas."""
        clock = self._place.clock
        while not self._stop.is_set():
            try:
                if await self._is_calm():
                    await self._reap()
                self._place.trouble.over(PURPOSE)
            except Exception as error:
                self._place.trouble.note(PURPOSE, error)
            await clock.wait(self._stop, self._interval * (0.9 + clock.random() * 0.1))

    async def _is_calm(self) -> bool:
        """Whether the database has been there for an interval.

        Workers that lost it with us need the time to renew or to give back what they hold; reaped at once, it would be
        counted as a crash although nobody died.
        """
        now = self._place.clock.monotonic()
        if self._place.trouble.unreachable_at > self._calm_since:
            await self._link.run(self._place.store.schema.clock())
            self._calm_since = now
            return False
        return now - self._calm_since >= self._interval * 0.9

    async def _reap(self) -> None:
        place, options = self._place, self._place.options
        began = place.clock.monotonic()
        run, batch, poison = self._link.run_atomic, options.reaper_batch, options.poison_limit
        count = await reap_all(run, place.store, batch, poison, self._found)
        place.telling.reaper_ran(count, place.clock.monotonic() - began)

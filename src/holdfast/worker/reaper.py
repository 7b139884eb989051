"""Takes back what dead workers held, on a timer of its own, for all types."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.core.model import Instant
from holdfast.ops.reap import ReapReport, fleet_fell_silent, reap_leases
from holdfast.storage.database import Link
from holdfast.storage.port import Store
from holdfast.storage.statement import Op
from holdfast.worker.clock import Clock
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


class Guard:
    """Whether the database has been there for an interval, as far as this process and the fleet can tell.

    Workers that lost it need the time to renew or to give back what they hold; reaped at once, it would be counted as a
    crash although nobody died.
    """

    def __init__(self, store: Store, clock: Clock, interval_s: float, worker: str) -> None:
        self.interval_s = interval_s
        self._store = store
        self._clock = clock
        self._worker = worker
        self._calm_since = float("-inf")
        self._is_new = True

    async def is_calm(
        self, link: Link, unreachable_at: float = float("-inf"), now: Instant | None = None
    ) -> bool:
        """Say whether what has expired by now was abandoned; `unreachable_at` is when we last missed the database."""
        asked_at = self._clock.monotonic()
        if unreachable_at > self._calm_since:
            await link.run(self._store.schema.clock())
            self._calm_since, self._is_new = asked_at, False
            return False
        if self._is_new:
            # A process that has just begun knows of no outage, but the silence of all others would be one's trace.
            silent = await link.run(
                fleet_fell_silent(self._store, self._quiet_ms, self._worker, now)
            )
            self._is_new = False
            if silent:
                self._calm_since = asked_at
                return False
        return asked_at - self._calm_since >= self.interval_s * 0.9

    @property
    def _quiet_ms(self) -> int:
        return int(self.interval_s * 2_000)


class Reaper:
    """The reaper as a task of the background worker; independent of free slots."""

    def __init__(self, place: Workplace, link: Link, found: Found) -> None:
        self._place = place
        self._link = link
        self._found = found
        self._interval = place.timings.reaper_interval_ms / 1000
        self._guard = Guard(place.store, place.clock, self._interval, place.id)
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """End after the present run. Called on its own loop."""
        self._stop.set()

    async def run(self) -> None:
        """Reap at once, then at every interval, a little apart from other replicas."""
        clock = self._place.clock
        while not self._stop.is_set():
            try:
                if await self._guard.is_calm(self._link, self._place.trouble.unreachable_at):
                    await self._reap()
                self._place.trouble.over(PURPOSE)
            except Exception as error:
                self._place.trouble.note(PURPOSE, error)
            await clock.wait(self._stop, self._interval * (0.9 + clock.random() * 0.1))

    async def _reap(self) -> None:
        place, options = self._place, self._place.options
        began = place.clock.monotonic()
        run, batch, poison = self._link.run_atomic, options.reaper_batch, options.poison_limit
        count = await reap_all(run, place.store, batch, poison, self._found)
        place.telling.reaper_ran(count, place.clock.monotonic() - began)

"""Takes back what dead workers held, on a timer of its own, for all types."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.core.errors import DatabaseBusy, DatabaseUnreachable
from holdfast.core.model import Instant, Reaped
from holdfast.ops.blockers import FanIn
from holdfast.ops.reap import reap_leases
from holdfast.storage.database import Link
from holdfast.storage.port import Store
from holdfast.worker.clock import Clock

Found = Callable[[list[Reaped], FanIn], None]


async def reap_all(link: Link, store: Store, batch: int, poison: int, found: Found) -> int:
    """Take back every expired lease, page by page; return how many jobs were freed or failed."""
    after: tuple[Instant, str] | None = None
    count = 0
    while True:
        report = await link.run_atomic(reap_leases(store, batch, poison, after))
        if report.page.reaped:
            count += len(report.page.reaped)
            found(report.page.reaped, report.fan_in)
        if report.page.leases < batch:
            return count
        after = report.page.last


class Reaper:
    """The reaper as a task of the background worker; independent of free slots."""

    def __init__(
        self,
        link: Link,
        store: Store,
        clock: Clock,
        interval_ms: int,
        batch: int,
        poison: int,
        found: Found,
        ran: Callable[[int, float], None],
        trouble: Callable[[str, BaseException | None], None],
    ) -> None:
        self._link = link
        self._store = store
        self._clock = clock
        self._interval = interval_ms / 1000
        self._batch = batch
        self._poison = poison
        self._found = found
        self._ran = ran
        self._trouble = trouble
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """End after the present run."""
        self._stop.set()

    async def run(self) -> None:
        """Reap at once, then at every interval, a little apart from other replicas."""
        while not self._stop.is_set():
            began = self._clock.monotonic()
            try:
                count = await reap_all(
                    self._link, self._store, self._batch, self._poison, self._found
                )
                self._ran(count, self._clock.monotonic() - began)
                self._trouble("reaper", None)
            except (DatabaseUnreachable, DatabaseBusy) as error:
                self._trouble("reaper", error)
            wait = self._interval * (0.9 + self._clock.random() * 0.1)
            await self._clock.wait(self._stop, wait)

"""Takes back what dead workers held, on a timer of its own, for all types.

Gives back jobs that a claim took and nobody here knows of, because its answer was lost.

Delivers events that were published before their handler subscribed, or while it did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from holdfast.commands.reap import ReapReport, fleet_fell_silent, reap_leases
from holdfast.commands.start import FAN_OUT_BATCH, Delivery, deliver_waiting, subscribe_handlers
from holdfast.core.records import Instant, JobRef, Subscription
from holdfast.storage.database import Link
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.worker.clock import Clock
from holdfast.worker.context import Workplace
from holdfast.worker.options import Pace

PURPOSE = "reaper"


class Returns:
    """A loop that sleeps until there is something to give back; hosted by the heartbeat's thread."""

    def __init__(
        self, place: Workplace, link: Link, released: Callable[[Sequence[JobRef]], None]
    ) -> None:
        self._place = place
        self._link = link
        self._released = released
        self._pace = Pace(place.options)
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()

    def nudge(self) -> None:
        """Look soon. Called on its own loop."""
        self._wake.set()

    def stop(self) -> None:
        """End when nothing is left to give back. Called on its own loop."""
        self._stopping.set()
        self._wake.set()

    async def run(self) -> None:
        """Give back until told to stop; an unreachable database is tried again."""
        holdings = self._place.holdings
        while True:
            await self._wake.wait()
            self._wake.clear()
            while tokens := holdings.take_unanswered():
                if not await self._give_back(tokens):
                    await self._pause()
            if self._stopping.is_set():
                return

    async def _pause(self) -> None:
        """Wait before the next try; the word to end is a reason to try once more at once."""
        clock = self._place.clock
        seconds = self._pace.error_s(clock.random())
        if self._stopping.is_set():
            await clock.sleep(seconds)
        else:
            await clock.wait(self._stopping, seconds)

    async def _give_back(self, tokens: list[str]) -> bool:
        place = self._place
        try:
            released = await self._link.run(place.store.leases.release(tokens))
        except BaseException as error:
            place.holdings.unanswered(tokens)
            if not isinstance(error, Exception):
                raise
            place.trouble.note(PURPOSE, error)
            return False
        place.trouble.over(PURPOSE)
        self._pace.found(len(released))
        if released:
            self._released(released)
        return True


class Latecomers:
    """Subscribes a worker's handlers before its first claim, then looks for waiting events with each heartbeat."""

    def __init__(
        self,
        place: Workplace,
        link: Link,
        make_id: Callable[[], str],
        delivered: Callable[[Delivery], None],
    ) -> None:
        self._place = place
        self._link = link
        self._make_id = make_id
        self._delivered = delivered
        self._stop = asyncio.Event()
        self._subscriptions = [
            Subscription(each.event, each.name.removeprefix(f"{each.event}/"))
            for each in place.types.values()
            if each.event is not None
        ]

    async def subscribe(self, link: Link) -> None:
        """Register the handlers and deliver what waited for them. Raises: whatever the database says."""
        if self._subscriptions:
            op = subscribe_handlers(self._place.store, self._subscriptions, self._make_id)
            for delivery in await link.run_atomic(op):
                self._tell(delivery)
            await self._deliver(link)

    def stop(self) -> None:
        """End after the present look. Called on its own loop."""
        self._stop.set()

    async def run(self) -> None:
        """Deliver what waits until told to stop."""
        clock, interval = self._place.clock, self._place.timings.heartbeat_ms / 1000
        while self._subscriptions and not await clock.wait(self._stop, interval):
            try:
                await self._deliver(self._link)
            except Exception as error:
                self._place.trouble.note(PURPOSE, error)
            else:
                self._place.trouble.over(PURPOSE)

    async def _deliver(self, link: Link) -> None:
        """Deliver batch after batch, so that a long wait is made good at once."""
        for event in sorted({each.event for each in self._subscriptions}):
            count = FAN_OUT_BATCH
            while count == FAN_OUT_BATCH:
                op = deliver_waiting(self._place.store, event, self._make_id)
                delivery = await link.run_atomic(op)
                count = delivery.count
                self._tell(delivery)

    def _tell(self, delivery: Delivery) -> None:
        if delivery.count:
            self._delivered(delivery)


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

"""Delivers events that were published before their handler subscribed, or while it did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.ops.publish import FAN_OUT_BATCH, Delivery, deliver_waiting, subscribe_handlers
from holdfast.storage.database import Link
from holdfast.storage.records import Subscription
from holdfast.worker.workplace import Workplace

PURPOSE = "reaper"


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

"""Customers: a thread that places orders at a rate, each in one transaction of the shop's own connection."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from holdfast.demo import tables
from holdfast.demo.shop import place_order

EVERY_HEAVY = 5
TROUBLE_S = 1.0

_ITEMS = ("lamp", "chair", "kettle", "book", "bicycle", "blanket", "radio", "globe")


class Customers:
    """Places what was wished for, one order after the other, until told to stop."""

    def __init__(self, url: str, per_second: float, report: Callable[[str], None]) -> None:
        """Take the shop's address, the rate, and where trouble is told."""
        self._url = url
        self._pause_s = 1 / per_second
        self._report = report
        self._wished = 0
        self._placed = 0
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._shop, name="customers", daemon=True)
        self._thread.start()

    @property
    def wished(self) -> int:
        """How many orders are still to be placed."""
        with self._changed:
            return self._wished

    def wish(self, orders: int) -> None:
        """Have so many more orders placed."""
        with self._changed:
            self._wished += orders
            self._changed.notify()

    def stop(self) -> None:
        """Place nothing more; an order that has begun is finished."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def close(self) -> None:
        """Stop, and wait for the end."""
        self.stop()
        self._thread.join()

    def _shop(self) -> None:
        while not self._closing:
            try:
                with tables.connect(self._url) as connection:
                    self._place_orders(connection)
            except Exception as error:
                # The database may be locked or away for a while; the order was not placed, so it is tried again.
                self._report(f"  could not place an order, retrying: {error}")
                self._rest(TROUBLE_S)

    def _place_orders(self, connection: tables.Connection) -> None:
        due = time.monotonic()
        while self._next(due):
            due = max(due, time.monotonic() - self._pause_s) + self._pause_s
            self._placed += 1
            heavy = self._placed % EVERY_HEAVY == 0
            place_order(connection, random.choice(_ITEMS), random.randint(500, 50_000), heavy)
            with self._changed:
                self._wished -= 1

    def _next(self, due: float) -> bool:
        """Wait until the next order is wished for and due; False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._wished > 0 or self._closing)
        self._rest(due - time.monotonic())
        return not self._closing

    def _rest(self, seconds: float) -> None:
        """Wait, unless the shop closes."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing, max(0.0, seconds))

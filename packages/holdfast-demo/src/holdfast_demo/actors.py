"""The shop's actors: customers, a thread that places orders, and the worker, a process that is killed and replaced."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.cli.child_process import ProcessGroup
from holdfast.cli.orphan_guard import OrphanGuard
from holdfast_demo import tables
from holdfast_demo.local_application import clean_environment
from holdfast_demo.shop import PAYMENT_VARIABLE, URL_VARIABLE, app, payment_ms, place_order
from holdfast_demo.tables import SCHEMA

APPLICATION = "holdfast_demo.shop:app"
SLOTS = 4
REAPER_INTERVAL_MS = 500
EVERY_HEAVY = 5
RETRY_S = 1.0

_ITEMS = ("lamp", "chair", "kettle", "book", "bicycle", "blanket", "radio", "globe")


class Customers:
    """Places the requested orders one after the other, until stopped, each in one transaction of the shop's own."""

    def __init__(self, url: str, per_second: float, on_error: Callable[[str], None]) -> None:
        self._url = url
        self._pause_s = 1 / per_second
        self._on_error = on_error
        self._requested = 0
        self._placed = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="customers", daemon=True)
        self._thread.start()

    @property
    def open_requests(self) -> int:
        """How many orders are still to be placed."""
        with self._changed:
            return self._requested

    def request(self, orders: int) -> None:
        """Place this many more orders."""
        with self._changed:
            self._requested += orders
            self._changed.notify()

    def stop(self) -> None:
        """Place nothing more; an order in progress is finished."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def close(self) -> None:
        """Stop, and wait for the thread."""
        self.stop()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            try:
                with tables.connect(self._url) as connection:
                    self._place_orders(connection)
            except Exception as error:
                # The database may be locked or unreachable for a while; the order was not placed, so it is retried.
                self._on_error(f"  could not place an order, retrying: {error}")
                self._wait(RETRY_S)

    def _place_orders(self, connection: tables.Connection) -> None:
        due = time.monotonic()
        while self._wait_for_next(due):
            due = max(due, time.monotonic() - self._pause_s) + self._pause_s
            self._placed += 1
            heavy = self._placed % EVERY_HEAVY == 0
            place_order(connection, random.choice(_ITEMS), random.randint(500, 50_000), heavy)
            with self._changed:
                self._requested -= 1

    def _wait_for_next(self, due: float) -> bool:
        """Wait until the next order is requested and due; False once stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._requested > 0 or self._stopping)
        self._wait(due - time.monotonic())
        return not self._stopping

    def _wait(self, seconds: float) -> None:
        """Wait, or return early when stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, max(0.0, seconds))


class WorkerProcess(ProcessGroup):
    """At most one worker at a time, numbered from 1. None outlives the demo."""

    def __init__(self, url: str, lease_ms: int, log: Path, guard: OrphanGuard) -> None:
        super().__init__(guard)
        own = {
            URL_VARIABLE: url,
            PAYMENT_VARIABLE: str(payment_ms),
            "HOLDFAST_SCHEMA": SCHEMA,
            "OUTBOX_LEASE_DURATION_MS": str(lease_ms),
            "OUTBOX_REAPER_INTERVAL_MS": str(REAPER_INTERVAL_MS),
        }
        self._environment = clean_environment(own)
        self._log = log
        self._number = 0

    @property
    def name(self) -> str:
        """The current worker's name, the prefix of its id."""
        return f"w-{self._number}"

    def start(self) -> None:
        """Start the next worker."""
        self._number += 1
        words = ["holdfast", "worker", APPLICATION, "--slots", str(SLOTS), "--name", self.name]
        with self._log.open("ab") as log:
            self.run(words, self._environment, log)

    def worker_id(self) -> str | None:
        """Return the current worker's id, None until it has registered."""
        workers = app.database.read(app.database.store.workers.page(20))
        mine = (each.id for each in workers if each.pid == self.pid and each.name == self.name)
        return next(mine, None)

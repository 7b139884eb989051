"""What happens in the shop: orders are placed, a worker is killed and replaced, and the books are checked.

All figures come from the database: the shop's own tables, the queue and its waits.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from holdfast.core.cycle import CycleRecord
from holdfast.core.duration import pluralize
from holdfast.core.instants import Instant
from holdfast.core.records import Held, JobRecord
from holdfast.core.schedule import parse_schedule
from holdfast.core.statistics import QueueTotals
from holdfast.storage.operation import run
from holdfast.storage.store.pagination import JobQuery
from holdfast_demo import tables
from holdfast_demo.actors import SLOTS, Customers, WorkerProcess
from holdfast_demo.shop import CHARGE, app

NOTES = 6
MORE = 100
RATE_OVER_S = 5.0

_COUNTED = 10_000
_WAITS_OF = 200
# Types that wait only for a worker: from creation to start is their whole wait.
_PLAIN_TYPES = ("order.placed/mail_receipt", "order.ship", "stock.reserve")


@dataclass(frozen=True, slots=True)
class Ledger:
    """The shop's own books."""

    orders: int
    paid: int
    paid_twice: int
    unpaid: int
    in_payment: int
    shipped: int
    mailed: int
    paid_lately: int

    @property
    def per_second(self) -> float:
        """Recent payments per second."""
        return self.paid_lately / RATE_OVER_S


@dataclass(frozen=True, slots=True)
class DemoFigures:
    """All figures, of one snapshot."""

    ledger: Ledger
    queue: QueueTotals
    charges_open: int
    p95_wait_ms: float | None
    next_cycle: tuple[str, float] | None

    @property
    def is_drained(self) -> bool:
        """Whether all jobs have finished."""
        return self.queue.live == 0

    @property
    def wait(self) -> str:
        """The 95th percentile of the wait, formatted."""
        ms = self.p95_wait_ms
        if ms is None:
            return "-"
        return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"

    @property
    def lost(self) -> int:
        """Unpaid orders without a job that is live or waits to be redriven."""
        return max(0, self.ledger.unpaid - self.charges_open)


def read_figures(connection: tables.Connection) -> DemoFigures:
    """Read the shop's own tables and the queue."""
    store = app.database.store
    query = JobQuery(limit=_WAITS_OF, states=("completed",), types=_PLAIN_TYPES)
    with tables.snapshot(connection) as executor:
        row = tables.execute(connection, "ledger", since=time.time() - RATE_OVER_S)
        queue, types = run(store.workers.totals(_COUNTED), executor)
        jobs = run(store.jobs.page(query), executor)
        cycles = run(store.cycles.page(), executor)
        now = run(store.schema.clock(), executor)
    assert row is not None
    charges_open = sum(each.live + each.failed for each in types if each.type == CHARGE)
    return DemoFigures(
        Ledger(*row), queue, charges_open, p95_wait_ms(jobs), _next_cycle(cycles, now)
    )


def _next_cycle(cycles: list[CycleRecord], now: Instant) -> tuple[str, float] | None:
    """Return which cycle runs next, and in how many seconds; None before a worker has registered it."""
    due = [(parse_schedule(each.schedule, each.zone).next_after(now), each.name) for each in cycles]
    if not due:
        return None
    at, name = min(due)
    return name, (at - now) / 1_000_000


def p95_wait_ms(jobs: list[JobRecord]) -> float | None:
    """Return the 95th percentile of the wait from creation to start, of first attempts."""
    waits = sorted(
        (each.started_at - each.created_at) / 1000
        for each in jobs
        if each.started_at is not None and each.attempt == 1
    )
    if not waits:
        return None
    return max(0.0, waits[min(len(waits) - 1, int(len(waits) * 0.95))])


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the command."""

    orders: int
    rate: float
    kill: bool
    exit: bool
    lease_ms: int
    headless: bool
    port: int | None
    is_endless: bool = False


class Recovery:
    """The jobs that a killed worker's leases still hold, until others have them, by the database's own clock."""

    def __init__(self, name: str, worker: str) -> None:
        self.name = name
        self.held: list[Held] = app.database.read(app.database.store.leases.held(worker))
        self._worker = worker
        self._died_at = _clock()

    def left_s(self) -> float:
        """Return the seconds until the leases expire, 0 when they have."""
        leases = app.database.read(app.database.store.leases.page(100, self._worker))
        ends = max((each.expires_at for each in leases), default=0)
        return max(0, ends - _clock()) / 1_000_000

    def recovered_after_s(self) -> float | None:
        """Return the seconds it took once every job was recovered, None before."""
        statuses = app.database.read(app.database.store.jobs.lease_status(self.held))
        if any(each.lease == "held" for each in statuses):
            return None
        return (_clock() - self._died_at) / 1_000_000


def _clock() -> Instant:
    return app.database.read(app.database.store.schema.clock())


class Story:
    """The running shop; `step` reads and advances it, the actions change it."""

    def __init__(
        self,
        options: DemoOptions,
        worker: WorkerProcess,
        customers: Customers,
        connection: tables.Connection,
    ) -> None:
        self.options = options
        self.worker = worker
        self.notes: deque[str] = deque(maxlen=NOTES)
        self.recoveries: list[Recovery] = []
        self.recovered = 0
        self.gateway_is_down = False
        self.is_paused = False
        self.recent_notes: deque[str] = deque(maxlen=NOTES)
        self.actions: Mapping[str, Callable[[], None]] = {
            "kill": self.kill,
            "gateway": self.toggle_gateway,
            "pause": self.toggle_pause,
            "order": lambda: self.order(MORE),
        }
        self._requests: SimpleQueue[str] = SimpleQueue()
        self._customers = customers
        self._connection = connection
        self._kill_pending = options.kill
        self.has_noted_end = False
        self._open_orders = customers.open_requests
        self.figures = read_figures(connection)
        self.total = self.figures.ledger.orders
        self._paid_before = self.figures.ledger.paid

    @property
    def is_settled(self) -> bool:
        """Whether every order was placed and every job has finished."""
        quiet = not self.recoveries and not self._kill_pending
        return quiet and self._open_orders == 0 and self.figures.is_drained

    @property
    def running(self) -> int:
        """How many jobs run now; a worker holds some more that wait for a slot, and a dead one holds those it had."""
        lost = sum(len(each.held) for each in self.recoveries)
        return min(SLOTS, max(0, self.figures.queue.running - lost))

    @property
    def due(self) -> int:
        """How many jobs wait for a slot, claimed or not."""
        queue = self.figures.queue
        lost = sum(len(each.held) for each in self.recoveries)
        return queue.due + max(0, queue.running - lost - SLOTS)

    @property
    def is_sound(self) -> bool:
        """Whether every order is paid, exactly once."""
        ledger = self.figures.ledger
        return ledger.unpaid == 0 and ledger.paid_twice == 0

    def step(self) -> None:
        """Read the books, run requested actions, replace a dead worker, and follow the recovery of killed ones."""
        self.refresh()
        if self.options.is_endless and self._open_orders < self.options.rate:
            # Whenever the worker is killed, it is in the middle of something.
            self.order(math.ceil(self.options.rate))
        self._run_requests()
        code = self.worker.poll()
        if code is not None:
            self.note(f"{self.worker.name} exited with code {code}; starting another one")
            self.worker.start()
        self._follow_recoveries()
        if self._kill_pending and self._should_kill():
            self.kill()
        self._note_end()

    def request(self, action: str) -> None:
        """Run an action at the next step; from any thread."""
        self._requests.put(action)

    def state(self) -> dict[str, Any]:
        """Return what the shop's page shows; from any thread."""
        figures = self.figures
        ledger = figures.ledger
        return {
            "total": self.total,
            "paid": ledger.paid,
            "per_second": ledger.per_second,
            "lost": figures.lost,
            "paid_twice": ledger.paid_twice,
            "shipped": ledger.shipped,
            "mailed": ledger.mailed,
            "recovered": self.recovered,
            "worker": self.worker.name,
            "gateway_is_down": self.gateway_is_down,
            "is_paused": self.is_paused,
            "recovering": [
                {"worker": each.name, "jobs": len(each.held), "seconds": each.left_s()}
                for each in list(self.recoveries)
            ],
            "notes": list(self.recent_notes),
        }

    def _run_requests(self) -> None:
        while True:
            try:
                action = self._requests.get_nowait()
            except Empty:
                return
            self.actions[action]()

    def refresh(self) -> None:
        """Read the books and the queue."""
        # Read first: an order that is placed while the books are read is not in them, and must still count as open.
        self._open_orders = self._customers.open_requests
        self.figures = read_figures(self._connection)

    def order(self, number: int) -> None:
        """Place more orders."""
        self.has_noted_end = False
        self.total += number
        self._open_orders += number
        self._customers.request(number)

    def kill(self) -> None:
        """Kill the worker with SIGKILL, in the middle of its jobs, and start another one."""
        worker = self.worker.worker_id()
        if worker is None:
            self.note("no worker has started yet")
            return
        self._kill_pending = False
        self.has_noted_end = False
        name, payments = self.worker.name, self.figures.ledger.in_payment
        self.worker.kill()
        recovery = Recovery(name, worker)
        self.worker.start()
        if not recovery.held:
            self.note(f"{name} killed; it held no jobs. {self.worker.name} started")
            return
        self.recoveries.append(recovery)
        self.note(
            f"{name} killed in the middle of {pluralize(payments, 'payment')}; it held "
            f"{pluralize(len(recovery.held), 'job')}. {self.worker.name} started"
        )

    def toggle_gateway(self) -> None:
        """Make the payment gateway fail, or work again."""
        self.gateway_is_down = not self.gateway_is_down
        with tables.transaction(self._connection):
            tables.execute(self._connection, "set_gateway", is_on=int(self.gateway_is_down))
        state = "is down: payments fail and are retried" if self.gateway_is_down else "works again"
        self.note(f"the payment gateway {state}")

    def toggle_pause(self) -> None:
        """Pause every job type, or resume them, from the worker's next heartbeat on."""
        self.is_paused = not self.is_paused
        set_paused(self.is_paused)
        word = "paused" if self.is_paused else "resumed"
        self.note(f"{word}; takes effect at the worker's next heartbeat")

    def note(self, text: str) -> None:
        """Add a note to the screen and the page."""
        self.notes.append(text)
        self.recent_notes.append(text)

    def verdict(self) -> str:
        """Return how many orders were lost or paid twice, by the shop's own tables."""
        ledger = self.figures.ledger
        return f"{self.figures.lost} lost · {ledger.paid_twice} paid twice"

    def summary(self) -> str:
        """Return how many orders are paid, and the verdict."""
        ledger, dead = self.figures.ledger, self.figures.queue.failed
        rest = f" · {pluralize(dead, 'dead letter')}" if dead else ""
        return f"{ledger.paid} of {ledger.orders} orders paid · {self.verdict()}{rest}"

    def _should_kill(self) -> bool:
        ledger = self.figures.ledger
        enough = ledger.paid - self._paid_before >= self.options.orders // 4
        return enough and ledger.in_payment > 0

    def _follow_recoveries(self) -> None:
        for recovery in list(self.recoveries):
            seconds = recovery.recovered_after_s()
            if seconds is None:
                continue
            self.recoveries.remove(recovery)
            self.recovered += len(recovery.held)
            self.refresh()
            jobs = pluralize(len(recovery.held), "job")
            self.note(f"{jobs} recovered after {seconds:.1f} s · {self.verdict()}")

    def _note_end(self) -> None:
        if self.has_noted_end or not self.is_settled or not self.figures.ledger.orders:
            return
        self.has_noted_end = True
        self.note(self.summary())


def set_paused(paused: bool) -> None:
    """Pause or resume every job type of the shop."""
    for each in app.registry:
        app.database.run(app.database.store.workers.set_type(each.name, paused=paused, by="demo"))

"""What happens in the shop: orders are placed, a worker is killed and replaced, and the books are checked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from holdfast.demo import tables
from holdfast.demo.figures import read_figures
from holdfast.demo.placing import Customers
from holdfast.demo.recovery import Recovery
from holdfast.demo.shop import app
from holdfast.demo.staff import WorkerProcess

NOTES = 6
MORE = 100


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What was asked of the demo."""

    orders: int
    rate: float
    kill: bool
    exit: bool
    lease_ms: int
    headless: bool
    port: int | None


class Story:
    """The shop in motion; `step` looks at it, the other methods do something to it."""

    def __init__(
        self,
        plan: DemoOptions,
        staff: WorkerProcess,
        customers: Customers,
        connection: tables.Connection,
    ) -> None:
        """Take the shop's people and the connection its books are read through."""
        self.plan = plan
        self.staff = staff
        self.notes: deque[str] = deque(maxlen=NOTES)
        self.recoveries: list[Recovery] = []
        self.recovered = 0
        self.gateway_is_down = False
        self.is_paused = False
        self.told: deque[str] = deque(maxlen=NOTES)
        self.actions: Mapping[str, Callable[[], None]] = {
            "kill": self.kill,
            "gateway": self.turn_gateway,
            "pause": self.turn_pause,
            "order": lambda: self.order(MORE),
        }
        self._wishes: SimpleQueue[str] = SimpleQueue()
        self._customers = customers
        self._connection = connection
        self._still_to_kill = plan.kill
        self.told_end = False
        self._wished = customers.wished
        self.figures = read_figures(connection)
        self.total = self.figures.ledger.orders
        self._paid_before = self.figures.ledger.paid

    @property
    def is_settled(self) -> bool:
        """Whether all that was to happen has happened, and nothing is left to do."""
        quiet = not self.recoveries and not self._still_to_kill
        return quiet and self._wished == 0 and self.figures.is_drained

    @property
    def is_sound(self) -> bool:
        """Whether every order is paid, exactly once."""
        ledger = self.figures.ledger
        return ledger.unpaid == 0 and ledger.paid_twice == 0

    def step(self) -> None:
        """Look at the books; do what was wished for, replace a worker that died, follow those that were killed."""
        self.look()
        self._grant_wishes()
        code = self.staff.has_ended()
        if code is not None:
            self.note(f"{self.staff.name} exited with code {code}; starting another one")
            self.staff.hire()
        self._follow_recoveries()
        if self._still_to_kill and self._is_time_to_kill():
            self.kill()
        self._tell_settled()

    def wish(self, action: str) -> None:
        """Have an action done at the next step; from any thread."""
        self._wishes.put(action)

    def state(self) -> dict[str, Any]:
        """Return what a page shows; from any thread."""
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
            "worker": self.staff.name,
            "gateway_is_down": self.gateway_is_down,
            "is_paused": self.is_paused,
            "recovering": [
                {"worker": each.name, "jobs": len(each.held), "seconds": each.left_s()}
                for each in list(self.recoveries)
            ],
            "notes": list(self.told),
        }

    def _grant_wishes(self) -> None:
        while True:
            try:
                action = self._wishes.get_nowait()
            except Empty:
                return
            self.actions[action]()

    def look(self) -> None:
        """Read the books and the queue."""
        # Asked before: an order that is placed while the books are read is not in them, and still wished for.
        self._wished = self._customers.wished
        self.figures = read_figures(self._connection)

    def order(self, number: int) -> None:
        """Have more orders placed."""
        self.told_end = False
        self.total += number
        self._wished += number
        self._customers.wish(number)

    def kill(self) -> None:
        """Kill the worker hard, in the middle of what it does, and let another one begin."""
        worker = self.staff.worker_id()
        if worker is None:
            self.note("no worker has started yet")
            return
        self._still_to_kill = False
        self.told_end = False
        name, payments = self.staff.name, self.figures.ledger.in_payment
        self.staff.kill()
        recovery = Recovery(name, worker)
        self.staff.hire()
        if not recovery.held:
            self.note(f"{name} killed; it held no jobs. {self.staff.name} started")
            return
        self.recoveries.append(recovery)
        self.note(
            f"{name} killed in the middle of {_count(payments, 'payment')}; it held "
            f"{_count(len(recovery.held), 'job')}. {self.staff.name} started"
        )

    def turn_gateway(self) -> None:
        """Let the payment gateway fail, or work again."""
        self.gateway_is_down = not self.gateway_is_down
        with tables.transaction(self._connection):
            tables.execute(self._connection, tables.TURN_GATEWAY, is_on=int(self.gateway_is_down))
        state = "is down: payments fail and are retried" if self.gateway_is_down else "works again"
        self.note(f"the payment gateway {state}")

    def turn_pause(self) -> None:
        """Pause every job type, or resume them; the worker learns of it at its next heartbeat."""
        self.is_paused = not self.is_paused
        set_paused(self.is_paused)
        word = "paused" if self.is_paused else "resumed"
        self.note(f"{word}; takes effect at the worker's next heartbeat")

    def note(self, text: str) -> None:
        """Remember something worth telling."""
        self.notes.append(text)
        self.told.append(text)

    def verdict(self) -> str:
        """Say what the shop's own tables say."""
        ledger = self.figures.ledger
        return f"{self.figures.lost} lost · {ledger.paid_twice} paid twice"

    def summary(self) -> str:
        """Say how many orders are paid, and the verdict."""
        ledger, dead = self.figures.ledger, self.figures.queue.failed
        rest = f" · {_count(dead, 'dead letter')}" if dead else ""
        return f"{ledger.paid} of {ledger.orders} orders paid · {self.verdict()}{rest}"

    def _is_time_to_kill(self) -> bool:
        ledger = self.figures.ledger
        enough = ledger.paid - self._paid_before >= self.plan.orders // 4
        return enough and ledger.in_payment > 0

    def _follow_recoveries(self) -> None:
        for recovery in list(self.recoveries):
            result = recovery.look()
            if result is None:
                continue
            self.recoveries.remove(recovery)
            self.recovered += result.jobs
            self.look()
            jobs = _count(result.jobs, "job")
            self.note(f"{jobs} recovered after {result.seconds:.1f} s · {self.verdict()}")

    def _tell_settled(self) -> None:
        if self.told_end or not self.is_settled or not self.figures.ledger.orders:
            return
        self.told_end = True
        self.note(self.summary())


def set_paused(paused: bool) -> None:
    """Pause or resume every job type of the shop."""
    for each in app.registry:
        app.database.run(app.database.store.workers.set_type(each.name, paused=paused, by="demo"))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

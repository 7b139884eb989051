"""What happens: invoices are issued through the API, a worker is killed and replaced, and the books are checked."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from apps.harness.command import LocalProcesses
from apps.harness.narrator import Narrator
from apps.invoicing.local.books import Books, Made, Place, Progress, read_progress
from sqlalchemy import Engine

from holdfast import Holdfast, JobInfo
from holdfast_streams import add_streams
from invoicing.seed import BUSINESSES, Business

AT_ONCE = 4
REQUEST_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What the story is asked to do."""

    invoices: int
    kill: bool


class Desk:
    """One business at work: it issues and sends invoices and writes its expenses, all through the API."""

    def __init__(self, address: str, business: Business) -> None:
        """Take the API's address; the business has a token of its own."""
        self._address = address
        self._business = business
        self._customers: list[str] = []

    def open(self) -> None:
        """Learn who the customers are."""
        self._customers = [each["id"] for each in self._call("GET", "/customers")]

    def issue(self, number: int) -> UUID:
        """Issue an invoice and have it sent."""
        offers = self._business.offers
        lines = [
            {"description": text, "quantity": 1 + number % 4, "unitPrice": price, "taxRate": rate}
            for text, price in (offers[number % len(offers)], offers[(number + 1) % len(offers)])
            for rate in (self._business.tax_rate,)
        ]
        customer = self._customers[number % len(self._customers)]
        made = self._call("POST", "/invoices", {"customerId": customer, "lines": lines})
        self._call("POST", f"/invoices/{made['id']}/send")
        return UUID(made["id"])

    def spend(self, number: int) -> UUID:
        """Write an expense."""
        day = datetime.now(UTC).date() - timedelta(days=number % 200)
        expense = {
            "description": self._business.costs[number % len(self._business.costs)],
            "spentOn": day.isoformat(),
            "net": 1_000 + 137 * number,
            "tax": 190 + 26 * number,
        }
        return UUID(self._call("POST", "/expenses", expense)["id"])

    def _call(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            self._address + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._business.token}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as answer:
            return json.load(answer)


class Recovery:
    """The jobs that a killed worker held, until others have them."""

    def __init__(self, jobs: Holdfast, name: str, worker: str) -> None:
        """Read what the worker of this name and id held when it died."""
        self.name = name
        self.held = held_by(jobs, worker)
        self._jobs = jobs
        self._died = time.monotonic()

    def recovered_after_s(self) -> float | None:
        """Return the seconds it took once every job was recovered, None before."""
        for each in self.held:
            now = self._jobs.jobs.get(each.id)
            if now.state == "running" and now.fence == each.fence:
                return None
        return time.monotonic() - self._died


def held_by(jobs: Holdfast, worker: str) -> list[JobInfo]:
    """Return the jobs that a worker has claimed."""
    running = jobs.jobs.list("state:running", limit=200).items
    return [each for each in running if each.worker == worker]


class Story:
    """Tells what happens line by line; `play` returns whether everything happened once."""

    def __init__(
        self,
        plan: Plan,
        processes: LocalProcesses,
        engine: Engine,
        jobs: Holdfast,
        say: Callable[[str], None],
    ) -> None:
        """Take the running application and where the lines go."""
        self._plan = plan
        self.narrator = Narrator(processes, say)
        self._processes = processes
        self._engine = engine
        self._jobs = jobs
        self._say = say
        self._kill_pending = plan.kill
        self._recoveries: list[Recovery] = []
        self._interrupted: set[UUID] = set()
        self.seconds = 0.0
        """From the first request to the last e-mail."""

    def play(self, address: str, place: Place, victim: str) -> bool:
        """Issue, follow, kill, check."""
        count, expenses = self._plan.invoices, max(3, self._plan.invoices // 4)
        self._say(f"issuing {count} invoices and {expenses} expenses through the API")
        desks = [Desk(address, each) for each in BUSINESSES]
        for desk in desks:
            desk.open()
        # The API answers now; how long it took to start is no part of the rate.
        started = time.monotonic()
        pool = ThreadPoolExecutor(AT_ONCE)
        try:
            spent = [pool.submit(desks[each % len(desks)].spend, each) for each in range(expenses)]
            issued = [pool.submit(desks[each % len(desks)].issue, each) for each in range(count)]
            self._follow(lambda: [each.result() for each in issued if each.done()], victim)
        finally:
            pool.shutdown(cancel_futures=True)
        self.seconds = time.monotonic() - started
        if count:
            rate = count / self.seconds
            self._say(f"{count} invoices rendered and mailed in {self.seconds:.1f} s, {rate:.1f}/s")
        made = Made(
            [each.result() for each in issued], [each.result() for each in spent], self._interrupted
        )
        return self._check(place, made)

    def _follow(self, issued: Callable[[], list[UUID]], victim: str) -> None:
        """Watch until every invoice has been mailed and nothing is left to do."""
        while True:
            progress = read_progress(self._engine, issued())
            self.narrator.look(partial(self._figures, progress))
            self._follow_recoveries()
            if self._kill_pending and progress.sent >= self._plan.invoices // 4:
                victim = self._kill(victim)
            is_done = progress.sent + progress.failed >= self._plan.invoices
            if is_done and not self._recoveries and self._is_drained():
                return
            self.narrator.pause()

    def _is_drained(self) -> bool:
        left = self._jobs.jobs.list("state:pending,running,blocked", limit=1).items
        return not left and not any(add_streams(self._jobs).lag().values())

    def _kill(self, name: str) -> str:
        """Kill a worker that holds jobs, and start another one; return the one to kill next."""
        mine = (each.id for each in self._jobs.workers.list() if each.name == name)
        worker = next(mine, None)
        if worker is None or not held_by(self._jobs, worker):
            return name
        # What it holds may end while it is looked for.
        self._processes.freeze(name, True)
        if not held_by(self._jobs, worker):
            self._processes.freeze(name, False)
            return name
        self._processes.kill(name)
        recovery = Recovery(self._jobs, name, worker)
        successor = self._processes.start_worker()
        if not recovery.held:
            self._say(f"{name} killed; it held no jobs. {successor} started")
            return successor
        self._kill_pending = False
        self._recoveries.append(recovery)
        self._interrupted |= {each.chain_id for each in recovery.held}
        types = Counter(each.type for each in recovery.held)
        held = ", ".join(f"{number} {type}" for type, number in types.items())
        self._say(f"{name} killed (-9) while it held {held}; {successor} started")
        return successor

    def _follow_recoveries(self) -> None:
        for each in list(self._recoveries):
            seconds = each.recovered_after_s()
            if seconds is not None:
                self._recoveries.remove(each)
                self._say(f"the jobs of {each.name} were recovered after {seconds:.1f} s")

    def _figures(self, progress: Progress) -> str:
        of = self._plan.invoices
        return f"PDFs {progress.ready}/{of} · e-mails {progress.sent}/{of}"

    def _check(self, place: Place, made: Made) -> bool:
        books = Books(self._engine, self._jobs, place, made)
        missed = "no worker could be killed in the middle of a job; issue more invoices"
        not_killed = missed if self._kill_pending else None
        return self.narrator.close_books(books.faults, books.summary, not_killed)

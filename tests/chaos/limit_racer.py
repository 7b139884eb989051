"""One process of a race for limited jobs, `python -m tests.chaos.limit_racer URL RACE`; it tells what it held when.

A claimer claims, ends, gives back and abandons jobs; a producer starts them in transactions that stay open for a while;
an operator locks rows and lets them go, which on SQLite locks out every writer. `planted` is a mistake in how limits
are kept that a race must find.
"""

import os
import random
import sys
import time
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.partitions import LimitedClaim, SignalMark, partition_id
from holdfast.core.records import ClaimedJob, Finish, LeaseClass, NewJob
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import run
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.store.pagination import JobQuery
from holdfast_costs.settlement import settle
from tests.support.limit_checks import Bounds, Settlement, Start, cost_of
from tests.support.limit_plants import Planted, planted

Part = Literal["claimer", "producer", "operator"]

MARKS = tuple(SignalMark(priority) for priority in range(10))


class Race(msgspec.Struct):
    """What one process is told. Every producer has so many keys of its own."""

    part: Part
    seed: int
    bounds: Bounds
    keys: int = 20
    types: tuple[str, ...] = ("mail",)
    jobs: int = 600
    lease_ms: int = 400
    planted: Planted = ""


class Span(msgspec.Struct, tag=True):
    """How long a claimer held a job of a partition by its own belief, on the clock that all processes share.

    A key has one producer, whose ids sort in the order of its starts. The database's times need not: its clock may be
    set back between a job that has begun and the next one's start.
    """

    gate: str
    begins: float
    ends: float
    id: str = ""
    cost: int = 1


class Racer:
    """A process at work."""

    def __init__(self, database: Database, race: Race) -> None:
        self.database, self.store, self.race = database, database.store, race
        self.random = random.Random(race.seed)
        self.name = f"racer-{race.seed}"
        self.left, self.pending = race.jobs, list[NewJob]()

    def produce(self) -> None:
        """Start jobs, some in transactions that stay open while others commit."""
        while self.left > 0:
            if not self._has_committed():
                number = min(self.left, self.random.randint(1, 4))
                self.pending = self.pending or [self._job() for _ in range(number)]
                with self.database.transaction() as tx:
                    for job in self.pending:
                        run(self.store.jobs.insert([job]), tx)
                    if self.random.random() < 0.3:
                        time.sleep(self.random.random() * 0.03)
            self.left -= len(self.pending)
            self.pending = []

    def _has_committed(self) -> bool:
        """Whether a start that ended with an error took place all the same."""
        ids = [each.id for each in self.pending]
        return bool(ids and self.database.read(self.store.jobs.get(ids)))

    def _job(self) -> NewJob:
        id, type = new_id(), self.random.choice(self.race.types)
        key = f"{self.race.seed}-{self.random.randrange(self.race.keys)}"
        gate = partition_id(type, key)
        ordered = self.race.bounds.ordered
        priority = 5 if ordered else self.random.randrange(10)
        place: dict[str, Any] = {"gate": gate, "ordered": ordered}
        if self.race.bounds.weighed:
            place["cost"] = cost_of(id)
        return NewJob(id, id, type, f'"{key}"', priority=priority, **place)

    def operate(self) -> None:
        """Lock rows of others for a moment."""
        while True:
            ids = self.database.read(self.store.jobs.page(JobQuery(20, states=("pending",))))
            with self.database.transaction() as tx:
                run(self.store.jobs.lock([each.id for each in ids]), tx)
                time.sleep(0.02)
            time.sleep(0.02)

    def claim(self) -> None:
        """Claim and end until stopped."""
        while True:
            sent_at = time.monotonic()
            answer = self.database.run(self.store.jobs.claim_limited(self._look()))
            got_at = time.monotonic()
            if not answer.jobs:
                self.database.run(self.store.leases.reap(50, 1_000))
                time.sleep(0.02)  # a claimer that finds nothing leaves the processor to others
                continue
            _tell(
                Start(each.id, each.gate or "", each.claimed_at, each.token) for each in answer.jobs
            )
            if self.random.random() < 0.4:
                # Held for a while, so that others look meanwhile.
                time.sleep(self.random.random() * 0.02)
            if self._is_charged:
                self._settle(answer.jobs)
            self._end(answer.jobs, sent_at, got_at)

    @property
    def _is_charged(self) -> bool:
        return self.race.bounds.weighed and self.race.bounds.rate is not None

    def _settle(self, jobs: list[ClaimedJob]) -> None:
        """Say of some that they spent less, and of some of these that it was less still."""
        for job in self.random.sample(jobs, len(jobs) // 3):
            spent = cost_of(job.id)
            for _ in range(self.random.randint(1, 3)):
                spent = self.random.randint(0, spent)
                self._spend(job, spent)

    def _spend(self, job: ClaimedJob, spent: int) -> None:
        """Say what a job spent to the checkers before the database: this process may be killed in between."""
        bounds = self.race.bounds
        _tell([Settlement(job.id, job.token, spent)])
        line = msgspec.structs.replace(bounds.line(job.type), id=job.gate or "")
        rules = [line, *bounds.shared(job.type)]
        self.database.run(settle(self.store, job, spent, rules))

    def _look(self) -> LimitedClaim:
        race, bounds = self.race, self.race.bounds
        type = self.random.choice(race.types)
        return LimitedClaim(
            worker=self.name,
            type=type,
            limit=self.random.choice((1, 3, 10, 30)),
            lease=LeaseClass(new_id(), race.lease_ms, 0, 10, 50),
            per_key=bounds.line(type),
            shared=bounds.shared(type),
            ordered=bounds.ordered,
            holds=bounds.holds,
            marks=MARKS,
            window=self.random.choice((20, 200)),
            partitions=self.random.choice((5, 40)),
            allow_crashed=self.random.random() < 0.7,
            per_round=bounds.batch.size if bounds.batch else 1,
            batch=bounds.batch,
            calls=bounds.calls,
            max_cost=bounds.max_cost,
        )

    def _end(self, jobs: list[ClaimedJob], sent_at: float, got_at: float) -> None:
        finishes, spans = [], []
        until = sent_at + self.race.lease_ms / 1000
        for job in jobs:
            chance = self.random.random()
            cost = cost_of(job.id) if self.race.bounds.weighed else 1
            span = Span(job.gate or "", got_at, min(time.monotonic(), until), job.id, cost)
            spans.append(span)
            if chance < 0.02:
                span.ends = max(got_at, min(time.monotonic(), until))
                continue
            kind: Literal["complete", "retry", "release"] = "complete"
            if chance < 0.1:
                kind = "retry" if chance < 0.06 else "release"
            if kind == "release" and self._is_charged:
                # What was not begun is given all of it back, as workers do.
                self._spend(job, 0)
            finishes.append(
                Finish(
                    job.id,
                    job.token,
                    kind,
                    self.name,
                    job.chain_id,
                    job.claimed_at,
                    gate=job.gate,
                    delay_ms=5,
                )
            )
        _tell(span for span in spans if span.ends > span.begins)
        alike = [each for each in finishes if each.kind == "complete"]
        others = [each for each in finishes if each.kind != "complete"]
        for batch in (alike, others):
            if batch:
                self.database.run(self.store.jobs.finish(batch))


def _tell(told: Iterable[Start | Span | Settlement]) -> None:
    os.write(1, b"".join(msgspec.json.encode(each) + b"\n" for each in told))


def main() -> None:
    """Take part until the work is done, or until killed."""
    url, text = sys.argv[1:]
    race = msgspec.json.decode(text, type=Race)
    with planted(race.planted):
        database: Database = (
            PostgresDatabase(url, pool_size=2)
            if url.startswith("postgresql")
            else SqliteDatabase(url)
        )
        racer = Racer(database, race)
        parts = {"claimer": racer.claim, "producer": racer.produce, "operator": racer.operate}
        while True:
            try:
                parts[race.part]()
                return
            except HoldfastError:
                time.sleep(0.01)  # a server that restarts refuses for a moment


if __name__ == "__main__":
    main()

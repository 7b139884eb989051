"""One process of a race for limited jobs, `python -m tests.chaos.limit_racer URL RACE`; it tells what it held when.

A claimer claims, ends, gives back and abandons jobs; a producer starts them in transactions that stay open for a while;
an operator locks rows and lets them go. `planted` is a mistake in the protocol that a race must find.
"""

import os
import random
import sys
import time
from collections.abc import Mapping
from typing import Literal

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.gates import GateRule, LimitedClaim, WakeupMark, gate_id
from holdfast.core.records import ClaimedJob, Finish, LeaseClass, NewJob
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import run
from holdfast.storage.postgres import store as postgres_store
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.store.pagination import JobQuery

Part = Literal["claimer", "producer", "operator"]
Planted = Literal["", "no freshness check", "older turn accepted"]

TYPE = "mail"
MARKS = tuple(WakeupMark(priority) for priority in range(10))


class Race(msgspec.Struct):
    """What one process is told."""

    part: Part
    seed: int
    keys: int = 20
    allowed: int = 2
    jobs: int = 600
    lease_ms: int = 400
    ordered: bool = False
    planted: Planted = ""


class Span(msgspec.Struct):
    """How long a claimer held a job of a gate by its own belief, on the clock that all processes share.

    A key has one producer, whose ids sort in the order of its starts. The database's times need not: its clock may be
    set back between a job that has begun and the next one's start.
    """

    gate: str
    begins: float
    ends: float
    id: str = ""


def plant(mistake: Planted) -> None:
    """Break the claim of this process."""
    if not mistake:
        return
    load = vars(postgres_store)["load_statements"]

    def broken(package: str) -> Mapping[str, str]:
        texts = dict(load(package))
        text = texts["limit_claim"]
        newest = "order by n.turn desc limit 1)\n        for update skip locked"
        assert "where has_changed and place is not null" in text
        assert newest in text
        text = text.replace("where has_changed and place is not null", "where false")
        served = "from judged j cross join clock where j.has_changed"
        text = text.replace(served, f"{served} on conflict do nothing")
        if mistake == "older turn accepted":
            by_snapshot = "where g.ctid = (select n.ctid from holdfast.gate n where n.id = a.id and n.turn > 0 "
            any_turn = (
                "where g.id = a.id and g.turn > 0 order by g.turn limit 1 for update skip locked"
            )
            text = text.replace(by_snapshot + newest, any_turn)
        return {**texts, "limit_claim": text}

    vars(postgres_store)["load_statements"] = broken


class Racer:
    """A process at work."""

    def __init__(self, database: Database, race: Race) -> None:
        self.database, self.store, self.race = database, database.store, race
        self.random = random.Random(race.seed)
        self.name = f"racer-{race.seed}"

    def produce(self) -> None:
        """Start jobs, some in transactions that stay open while others commit."""
        left = self.race.jobs
        while left > 0:
            number = min(left, self.random.randint(1, 4))
            with self.database.transaction() as tx:
                for _ in range(number):
                    id, key = new_id(), f"{self.race.seed}-{self.random.randrange(self.race.keys)}"
                    job = NewJob(
                        id, id, TYPE, "{}", gate=gate_id(TYPE, key), ordered=self.race.ordered
                    )
                    run(self.store.jobs.insert([job]), tx)
                if self.random.random() < 0.3 and self.store.dialect == "postgresql":
                    time.sleep(self.random.random() * 0.03)
            left -= number

    def operate(self) -> None:
        """Lock rows of others for a moment."""
        while True:
            ids = self.database.run(self.store.jobs.page(JobQuery(20, states=("pending",))))
            with self.database.transaction() as tx:
                run(self.store.jobs.lock([each.id for each in ids]), tx)
                time.sleep(0.02 if self.store.dialect == "postgresql" else 0.0)
            time.sleep(0.02)

    def claim(self) -> None:
        """Claim and end until stopped."""
        while True:
            sent_at = time.monotonic()
            answer = self.database.run(self.store.limits.claim(self._look()))
            got_at = time.monotonic()
            if not answer.jobs:
                self.database.run(self.store.leases.reap(50, 1_000))
                time.sleep(0.005)
                continue
            if self.random.random() < 0.4:
                time.sleep(self.random.random() * 0.02)
            self._end(answer.jobs, sent_at, got_at)

    def _look(self) -> LimitedClaim:
        race = self.race
        return LimitedClaim(
            worker=self.name,
            type=TYPE,
            limit=self.random.choice((1, 3, 10, 30)),
            lease=LeaseClass(new_id(), race.lease_ms, 0, 10, 50),
            line=GateRule(TYPE, race.allowed),
            ordered=race.ordered,
            holds=race.ordered,
            marks=MARKS,
            window=self.random.choice((20, 200)),
            gates=self.random.choice((5, 40)),
        )

    def _end(self, jobs: list[ClaimedJob], sent_at: float, got_at: float) -> None:
        finishes, spans = [], []
        until = sent_at + self.race.lease_ms / 1000
        for job in jobs:
            chance = self.random.random()
            span = Span(job.gate or "", got_at, min(time.monotonic(), until), job.id)
            spans.append(span)
            if chance < 0.02:
                span.ends = max(got_at, min(time.monotonic(), until))
                continue
            kind: Literal["complete", "retry", "release"] = "complete"
            if chance < 0.1:
                kind = "retry" if chance < 0.06 else "release"
            finishes.append(
                Finish(job.id, job.token, kind, self.name, job.chain_id, gate=job.gate, delay_ms=5)
            )
        for span in spans:
            if span.ends > span.begins:
                os.write(1, msgspec.json.encode(span) + b"\n")
        alike = [each for each in finishes if each.kind == "complete"]
        others = [each for each in finishes if each.kind != "complete"]
        for batch in (alike, others):
            if batch:
                self.database.run(self.store.jobs.finish(batch))


def main() -> None:
    """Take part until the work is done, or until killed."""
    url, text = sys.argv[1:]
    race = msgspec.json.decode(text, type=Race)
    plant(race.planted)
    database: Database = (
        PostgresDatabase(url, pool_size=2) if url.startswith("postgresql") else SqliteDatabase(url)
    )
    racer = Racer(database, race)
    act = {"claimer": racer.claim, "producer": racer.produce, "operator": racer.operate}[race.part]
    while True:
        try:
            act()
            return
        except HoldfastError:
            time.sleep(0.01)


if __name__ == "__main__":
    main()

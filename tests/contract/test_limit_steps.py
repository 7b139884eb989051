"""Whatever happens to jobs with limits: after every step nothing is broken, and in the end all is done."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.core.gates import BatchRule, GateRule, LimitedClaim, LinedUp, WakeupMark, gate_id
from holdfast.core.ids import IdMaker
from holdfast.core.records import ClaimedJob, Ending, Finish, LeaseClass, NewJob
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
from tests.support.limit_checks import LimitChecker, PostgresLimitChecker, SqliteLimitChecker

TYPE = "mail"
STEPS = 250
SECOND = 1_000_000
MARKS = tuple(WakeupMark(priority) for priority in range(10))


class Fleet:
    """Jobs of a few keys and all that workers and operators do to them, one step after the other."""

    def __init__(
        self,
        database: Database,
        checker: LimitChecker,
        seed: int,
        allowed: int,
        ordered: str | None,
        batch: BatchRule | None = None,
    ) -> None:
        self.run = database.run
        self.store = database.store
        self.checker = checker
        self.random = random.Random(seed)
        self.allowed, self.ordered, self.batch = allowed, ordered, batch
        self.now = 1_760_000_000_000_000
        self.held: dict[str, ClaimedJob] = {}
        self.started: list[str] = []
        self.runs: defaultdict[str, list[str]] = defaultdict(list)
        self.ids = IdMaker(lambda: self.now // 1000, self.random.randbytes)

    def check(self, what: str) -> None:
        """Refuse to go on when something is broken."""
        broken = self.checker.broken(self.allowed, self.ordered == "hold", self.now)
        assert not broken, f"after {what}: {broken}"

    def step(self) -> None:
        """Do one thing."""
        act = self.random.choice(self.acts())
        act()
        self.check(act.__name__)
        self.now += self.random.choice((0, 1_000, 50_000, SECOND))

    def acts(self) -> list[Callable[[], None]]:
        """All that may happen, some of it more often."""
        return [
            *([self.start] * 4),
            *([self.claim] * 5),
            *([self.finish] * 5),
            self.start_unlined,
            self.line_up,
            self.reap,
            self.release,
            self.end,
            self.trigger,
            self.redrive,
            self.drop,
            self.sweep,
        ]

    def job(self, lined: bool) -> NewJob:
        """Make a job of any key; some are planned, some urgent."""
        id = self.ids.next()
        key = self.random.choice("abc")
        at = self.random.choice((None, None, self.now + SECOND))
        priority = 5 if self.ordered else self.random.choice((5, 5, 2))
        place: dict[str, Any] = {}
        if lined:
            place = {"gate": gate_id(TYPE, key), "ordered": self.ordered is not None}
        return NewJob(id, id, TYPE, f'"{key}"', at=at, priority=priority, **place)

    def start(self) -> None:
        jobs = [self.job(True) for _ in range(self.random.randint(1, 4))]
        self.started += sorted(self.run(self.store.jobs.insert(jobs, now=self.now)))

    def start_unlined(self) -> None:
        self.started += self.run(self.store.jobs.insert([self.job(False)], now=self.now))

    def line_up(self) -> None:
        found = self.run(self.store.limits.unlined(TYPE, 10))
        moves = [
            LinedUp(each.id, gate_id(TYPE, each.input.strip('"')), each.available_at)
            for each in found
        ]
        if moves:
            self.run(self.store.limits.line_up(moves, self.ordered is not None, self.now))

    def claim(self) -> None:
        claim = LimitedClaim(
            worker="w",
            type=TYPE,
            limit=self.random.randint(1, 6),
            lease=LeaseClass(self.ids.next(), 5_000, 3, 100, 400),
            line=GateRule(TYPE, self.allowed),
            shared=self.random.choice(((), (GateRule("@all", 5),))),
            ordered=self.ordered is not None,
            holds=self.ordered == "hold",
            marks=MARKS,
            window=self.random.choice((2, 50)),
            gates=self.random.choice((1, 50)),
            turn=self.batch.size if self.batch else 1,
            batch=self.batch,
            calls=self.random.randint(1, 3),
        )
        for job in self.run(self.store.limits.claim(claim, self.now)).jobs:
            self.held[job.id] = job
            self.runs[job.gate or ""].append(job.id)
            if self.ordered:
                assert not self.checker.ahead(job.id), "a job passed another in its line"

    def finish(self) -> None:
        if not self.held:
            return
        kinds = ["complete", "complete", "complete", "retry", "snooze", "release", "fail", "cancel"]
        batch = self.random.sample(
            sorted(self.held), self.random.randint(1, min(3, len(self.held)))
        )
        alike = self.random.random() < 0.5
        finishes = []
        for id in batch:
            job = self.held.pop(id)
            kind: Any = "complete" if alike else self.random.choice(kinds)
            fields: dict[str, Any] = {
                "gate": job.gate,
                "delay_ms": self.random.choice((0, 300, 1_500)),
            }
            finishes.append(Finish(id, job.token, kind, "w", job.chain_id, self.now, **fields))
        self.run(self.store.jobs.finish(finishes, now=self.now))

    def reap(self) -> None:
        self.now += 6 * SECOND
        self.run(self.store.leases.reap(100, 3, now=self.now))

    def release(self) -> None:
        tokens = sorted({job.token for job in self.held.values()})
        if tokens:
            self.run(self.store.leases.release([self.random.choice(tokens)], now=self.now))

    def end(self) -> None:
        if self.started:
            state: Any = self.random.choice(("cancelled", "completed", "failed"))
            id = self.random.choice(self.started)
            self.run(self.store.jobs.end([Ending(id, state)], self.now))

    def trigger(self) -> None:
        if self.started:
            self.run(self.store.jobs.trigger(self.random.sample(self.started, 1), self.now))

    def redrive(self) -> None:
        self.run(self.store.jobs.redrive(self.started, self.random.choice((0, 500)), self.now))

    def drop(self) -> None:
        if self.started:
            self.run(self.store.chains.delete(self.random.sample(self.started, 1), self.now))

    def sweep(self) -> None:
        self.now += 70 * SECOND
        self.run(self.store.limits.sweep("", self.now))

    def settle(self) -> None:
        """Let everything end."""
        for _ in range(400):
            self.line_up()
            self.reap()
            self.redrive()
            self.claim()
            for job in self.held.values():
                finish = Finish(job.id, job.token, "complete", "w", job.chain_id, gate=job.gate)
                self.run(self.store.jobs.finish([finish], now=self.now))
            self.held.clear()
            self.check("settling")
            if self.run(self.store.workers.totals(100, self.now))[0].live == 0:
                return
        raise AssertionError("something waits for ever")


@pytest.fixture(params=["postgres", "sqlite"])
def stores(request: pytest.FixtureRequest) -> Iterator[tuple[Database, Any]]:
    """A fresh database of each kind, and what checks it."""
    database: Database
    checker: LimitChecker
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        database, checker = PostgresDatabase(url), PostgresLimitChecker(url)
    else:
        path = request.getfixturevalue("sqlite_url").removeprefix("sqlite:///")
        database, checker = SqliteDatabase(path), SqliteLimitChecker(path)
    yield database, checker
    checker.close()
    database.close()


@pytest.mark.parametrize(
    ("seed", "allowed", "ordered", "batch"),
    [
        (1, 1, None, None),
        (2, 3, None, None),
        (3, 1, "hold", None),
        (4, 1, "skip", None),
        (5, 4, None, BatchRule(3, 2_000)),
    ],
)
def test_nothing_is_broken_after_any_step_and_all_ends(
    stores: tuple[Database, Any],
    seed: int,
    allowed: int,
    ordered: str | None,
    batch: BatchRule | None,
) -> None:
    fleet = Fleet(*stores, seed, allowed, ordered, batch)
    for _ in range(STEPS):
        fleet.step()
    fleet.settle()
    assert sum(map(len, fleet.runs.values())) > 100


def test_small_keys_end_within_the_first_five_hundred_beside_twenty_thousand_jobs(
    stores: tuple[Database, Any],
) -> None:
    database, _ = stores
    store, run = database.store, database.run

    def start(key: str, number: int) -> None:
        ids = [new_id() for _ in range(number)]
        run(store.jobs.insert([NewJob(id, id, TYPE, "{}", gate=gate_id(TYPE, key)) for id in ids]))

    for _ in range(20):
        start("large", 1_000)
    for key in range(20):
        start(f"small {key}", 20)
    ended = small = 0
    while small < 400:
        lease = LeaseClass(new_id(), 60_000, 3, 100, 400)
        claim = LimitedClaim("w", TYPE, 30, lease, GateRule(TYPE), marks=MARKS, gates=66)
        jobs = run(store.limits.claim(claim)).jobs
        assert jobs
        finishes = [
            Finish(job.id, job.token, "complete", "w", job.chain_id, 0, "null", gate=job.gate)
            for job in jobs
        ]
        run(store.jobs.finish(finishes, [lease.token]))
        ended += len(jobs)
        small += sum(job.gate != gate_id(TYPE, "large") for job in jobs)
    assert ended <= 500

"""Whatever happens to jobs with limits: after every step nothing is broken, and in the end all is done."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import msgspec
import pytest

from holdfast.core.ids import IdMaker
from holdfast.core.partitions import (
    BatchRule,
    LimitedClaim,
    PartitionRule,
    QueuedJob,
    SignalMark,
    partition_id,
)
from holdfast.core.records import ClaimedJob, Ending, Finish, LeaseClass, NewJob
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast_costs.settlement import settle
from tests.support.limit_checks import (
    COSTS,
    Bounds,
    LimitChecker,
    PostgresLimitChecker,
    Settlement,
    SqliteLimitChecker,
    Start,
    cost_of,
)
from tests.support.limit_plants import planted

TYPE = "mail"
TYPES = (TYPE, "text")
STEPS = 250
SECOND = 1_000_000
MARKS = tuple(SignalMark(priority) for priority in range(10))


class Fleet:
    """Jobs of a few keys and all that workers and operators do to them, one step after the other.

    Claims are told to hold the same bounds that are checked, unless told others.
    """

    def __init__(
        self,
        database: Database,
        checker: LimitChecker,
        seed: int,
        bounds: Bounds,
        told: Bounds | None = None,
    ) -> None:
        self.run = database.run
        self.store = database.store
        self.checker = checker
        self.random = random.Random(seed)
        self.bounds, self.told = bounds, told or bounds
        self.now = 1_760_000_000_000_000
        self.held: dict[str, ClaimedJob] = {}
        self.started: list[str] = []
        self.starts: list[Start] = []
        self.settlements: list[Settlement] = []
        self.oversized: list[str] = []
        self.runs: defaultdict[str, list[str]] = defaultdict(list)
        self.ids = IdMaker(lambda: self.now // 1000, self.random.randbytes)

    def check(self, what: str) -> None:
        """Refuse to go on when something is broken."""
        broken = self.checker.broken(self.bounds, now=self.now)
        broken += [*self.bounds.crowded(self.starts, self.settlements), *self.oversized]
        assert not broken, f"after {what}: {broken}"

    def step(self) -> None:
        """Do one thing."""
        act = self.random.choice(self.acts())
        act()
        self.check(act.__name__)
        self.now += self.random.choice((0, 1_000, 50_000, SECOND))

    def walk(self) -> None:
        """Do many things."""
        for _ in range(STEPS):
            self.step()

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
            *([self.spend] * 3 * self.bounds.weighed),
        ]

    def spend(self) -> None:
        """Let an attempt say that it spent less; one that lost its job is not heard."""
        if not self.held:
            return
        job = self.held[self.random.choice(sorted(self.held))]
        type = (job.gate or "").partition("#")[0]
        line = msgspec.structs.replace(self.told.line(type), id=job.gate or "")
        spent = self.random.randint(0, cost_of(job.id))
        rules = [line, *self.told.shared(type)]
        if self.run(settle(self.store, job, spent, rules, self.now)):
            self.settlements.append(Settlement(job.id, job.token, spent))

    def job(self, lined: bool) -> NewJob:
        """Make a job of any key; some are planned, some urgent."""
        id, type = self.ids.next(), self.random.choice(TYPES)
        key = self.random.choice("abc")
        at = self.random.choice((None, None, self.now + SECOND))
        priority = 5 if self.bounds.ordered else self.random.choice((5, 5, 2))
        place: dict[str, Any] = {}
        if lined:
            place = {"gate": partition_id(type, key), "ordered": self.bounds.ordered}
            place |= {"cost": cost_of(id)} if self.bounds.weighed else {}
        return NewJob(id, id, type, f'"{key}"', at=at, priority=priority, **place)

    def start(self) -> None:
        jobs = [self.job(True) for _ in range(self.random.randint(1, 4))]
        self.started += sorted(self.run(self.store.jobs.insert(jobs, now=self.now)))

    def start_unlined(self) -> None:
        self.started += self.run(self.store.jobs.insert([self.job(False)], now=self.now))

    def line_up(self) -> None:
        for type in TYPES:
            found = self.run(self.store.limits.unqueued(type, 10))
            moves = [
                QueuedJob(
                    each.id,
                    partition_id(type, each.input.strip('"')),
                    each.available_at,
                    cost_of(each.id) if self.bounds.weighed else None,
                )
                for each in found
            ]
            if moves:
                self.run(self.store.limits.enqueue(moves, self.bounds.ordered, self.now))

    def claim(self) -> None:
        told, type = self.told, self.random.choice(TYPES)
        claim = LimitedClaim(
            worker="w",
            type=type,
            limit=self.random.randint(1, 6),
            lease=LeaseClass(self.ids.next(), 5_000, 3, 100, 400),
            per_key=told.line(type),
            shared=told.shared(type),
            ordered=told.ordered,
            holds=told.holds,
            marks=MARKS,
            window=self.random.choice((2, 50)),
            partitions=self.random.choice((1, 50)),
            allow_crashed=self.random.random() < 0.8,
            per_round=told.batch.size if told.batch else 1,
            batch=told.batch,
            calls=self.random.randint(1, 3),
            max_cost=told.max_cost,
        )
        jobs = self.run(self.store.jobs.claim_limited(claim, self.now)).jobs
        for job in jobs:
            self.held[job.id] = job
            self.runs[job.gate or ""].append(job.id)
            if self.bounds.ordered:
                assert not self.checker.ahead(job.id), "a job passed another in its line"
        starts = [Start(job.id, job.gate or "", self.now, job.token) for job in jobs]
        self.starts += starts
        asked = msgspec.structs.replace(self.bounds, calls=claim.calls)
        self.oversized += asked.oversized(starts)

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
            finishes.append(
                Finish(id, job.token, kind, "w", job.chain_id, job.claimed_at, **fields)
            )
        self.run(self.store.jobs.finish(finishes, now=self.now))

    def completion(self, job: ClaimedJob) -> Finish:
        """The end of a job that went well."""
        at = job.claimed_at
        return Finish(job.id, job.token, "complete", "w", job.chain_id, at, gate=job.gate)

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
                finish = self.completion(job)
                self.run(self.store.jobs.finish([finish], now=self.now))
            self.held.clear()
            self.check("settling")
            if self.run(self.store.workers.totals(100, self.now))[0].live == 0:
                return
        raise AssertionError("something waits for ever")


Kind = Literal["postgres", "sqlite"]
KINDS: tuple[Kind, ...] = ("postgres", "sqlite")


@contextmanager
def opened(kind: Kind, request: pytest.FixtureRequest) -> Iterator[tuple[Database, LimitChecker]]:
    """A fresh database, and what checks it."""
    database: Database
    checker: LimitChecker
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")
        database, checker = PostgresDatabase(url), PostgresLimitChecker(url)
    else:
        path = request.getfixturevalue("sqlite_url").removeprefix("sqlite:///")
        database, checker = SqliteDatabase(path), SqliteLimitChecker(path)
    yield database, checker
    checker.close()
    database.close()


@pytest.fixture(params=KINDS)
def stores(request: pytest.FixtureRequest) -> Iterator[tuple[Database, LimitChecker]]:
    """A fresh database of each kind, and what checks it."""
    with opened(request.param, request) as made:
        yield made


@pytest.mark.parametrize(
    ("seed", "bounds"),
    [
        (1, Bounds(allowed=1)),
        (2, Bounds(allowed=3, total=5)),
        (3, Bounds(allowed=1, ordered=True, holds=True)),
        (4, Bounds(allowed=1, ordered=True)),
        (5, Bounds(allowed=4, batch=BatchRule(3, 2_000))),
        (6, Bounds(allowed=2, rate=3, period_ms=8_000)),
        (7, Bounds(rate=4, period_ms=9_000, counted="type")),
        (8, Bounds(total=4, rate=5, period_ms=9_000, counted="name")),
        (9, Bounds(total=6, batch=BatchRule(4, 3_000))),
        (10, Bounds(allowed=12, weighed=True)),
        (11, Bounds(allowed=9, total=20, weighed=True)),
        (12, Bounds(allowed=20, rate=14, period_ms=8_000, weighed=True)),
        (13, Bounds(rate=66, period_ms=60_000, counted="type", weighed=True)),
        (14, Bounds(total=15, rate=25, period_ms=9_000, counted="name", weighed=True)),
        (15, Bounds(allowed=12, batch=BatchRule(3, 2_000), weighed=True)),
    ],
)
def test_nothing_is_broken_after_any_step_and_all_ends(
    stores: tuple[Database, LimitChecker], seed: int, bounds: Bounds
) -> None:
    fleet = Fleet(*stores, seed, bounds)
    fleet.walk()
    fleet.settle()
    assert sum(map(len, fleet.runs.values())) > 100
    if bounds.rate is not None:
        lower = msgspec.structs.replace(bounds, rate=bounds.rate - (COSTS if bounds.weighed else 1))
        assert lower.crowded(fleet.starts, fleet.settlements), "the rate was never reached"


@pytest.mark.parametrize(
    ("bounds", "higher", "found"),
    [
        (Bounds(allowed=1), {"allowed": 2}, "more than allowed run"),
        (Bounds(total=3), {"total": 4}, "more than allowed run in all"),
        (Bounds(rate=3, period_ms=9_000), {"rate": 4}, "too many starts"),
        (Bounds(rate=3, period_ms=9_000, counted="type"), {"rate": 4}, "too many starts"),
        (Bounds(rate=3, period_ms=9_000, counted="name"), {"rate": 4}, "too many starts"),
        (Bounds(batch=BatchRule(3)), {"batch": BatchRule(4)}, "too large a batch"),
        (Bounds(allowed=9, weighed=True), {"allowed": 10}, "more than allowed run"),
        (Bounds(total=9, weighed=True), {"total": 10}, "more than allowed run in all"),
        (Bounds(rate=9, period_ms=9_000, weighed=True), {"rate": 10}, "too many starts"),
        (
            Bounds(rate=8, period_ms=20_000, counted="name", weighed=True),
            {"rate": 9},
            "too many starts",
        ),
    ],
)
def test_a_limit_that_is_one_too_high_is_found(
    stores: tuple[Database, LimitChecker], bounds: Bounds, higher: dict[str, Any], found: str
) -> None:
    fleet = Fleet(*stores, 1, bounds, msgspec.structs.replace(bounds, **higher))
    with pytest.raises(AssertionError, match=f"after claim: .*{found}: "):
        fleet.walk()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("counted", ["key", "type", "name"])
def test_starts_that_are_forgotten_early_are_found_as_too_many(
    kind: Kind, counted: Any, request: pytest.FixtureRequest
) -> None:
    with planted("starts forgotten early"), opened(kind, request) as made:
        fleet = Fleet(*made, 1, Bounds(rate=3, period_ms=9_000, counted=counted))
        with pytest.raises(AssertionError, match=r"after claim: \[.too many starts: "):
            fleet.walk()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("counted", ["key", "type", "name"])
def test_costs_that_are_forgotten_early_are_found_as_too_many_starts(
    kind: Kind, counted: Any, request: pytest.FixtureRequest
) -> None:
    with planted("costs forgotten early"), opened(kind, request) as made:
        bounds = Bounds(rate=7, period_ms=20_000, counted=counted, weighed=True)
        with pytest.raises(AssertionError, match=r"after claim: \[.too many starts: "):
            Fleet(*made, 1, bounds).walk()


@pytest.mark.parametrize("kind", KINDS)
def test_running_costs_that_are_not_counted_are_found_as_more_than_allowed(
    kind: Kind, request: pytest.FixtureRequest
) -> None:
    with (
        planted("running costs not counted"),
        opened(kind, request) as made,
        pytest.raises(AssertionError, match=r"after claim: \[.more than allowed run: "),
    ):
        Fleet(*made, 2, Bounds(allowed=7, weighed=True)).walk()


def test_small_keys_end_within_the_first_five_hundred_beside_twenty_thousand_jobs(
    stores: tuple[Database, Any],
) -> None:
    database, _ = stores
    store, run = database.store, database.run

    def start(key: str, number: int) -> None:
        ids = [new_id() for _ in range(number)]
        run(
            store.jobs.insert(
                [NewJob(id, id, TYPE, "{}", gate=partition_id(TYPE, key)) for id in ids]
            )
        )

    for _ in range(20):
        start("large", 1_000)
    for key in range(20):
        start(f"small {key}", 20)
    ended = small = 0
    while small < 400:
        lease = LeaseClass(new_id(), 60_000, 3, 100, 400)
        claim = LimitedClaim("w", TYPE, 30, lease, PartitionRule(TYPE), marks=MARKS, partitions=66)
        jobs = run(store.jobs.claim_limited(claim)).jobs
        assert jobs
        finishes = [
            Finish(job.id, job.token, "complete", "w", job.chain_id, 0, "null", gate=job.gate)
            for job in jobs
        ]
        run(store.jobs.finish(finishes, [lease.token]))
        ended += len(jobs)
        small += sum(job.gate != partition_id(TYPE, "large") for job in jobs)
    assert ended <= 500


def test_an_urgent_job_that_is_tried_again_is_not_forgotten_behind_one_that_does_not_fit(
    stores: tuple[Database, LimitChecker],
) -> None:
    fleet = Fleet(*stores, 1, Bounds(allowed=10, weighed=True))

    def start(cost: int, priority: int) -> str:
        id = fleet.ids.next()
        job = NewJob(id, id, TYPE, '"a"', priority=priority, gate=f"{TYPE}#a", cost=cost)
        fleet.run(fleet.store.jobs.insert([job], now=fleet.now))
        return id

    def claim() -> list[ClaimedJob]:
        lease = LeaseClass(fleet.ids.next(), 50_000, 3, 100, 400)
        line = fleet.bounds.line(TYPE)
        claim = LimitedClaim("w", TYPE, 6, lease, line, marks=MARKS, max_cost=10)
        fleet.now += 1_000
        return fleet.run(fleet.store.jobs.claim_limited(claim, fleet.now)).jobs

    long, urgent = start(cost=5, priority=5), start(cost=3, priority=2)
    held = {each.id: each for each in claim()}
    assert set(held) == {long, urgent}
    start(cost=6, priority=5)
    job = held[urgent]
    end = Finish(urgent, job.token, "retry", "w", urgent, job.claimed_at, gate=job.gate)
    end = msgspec.structs.replace(end, delay_ms=1_500)
    fleet.run(fleet.store.jobs.finish([end], now=fleet.now))
    assert claim() == [], "one waits for its time, and the other for more room than there is"
    fleet.now += 2 * SECOND
    fleet.check("waiting")
    assert [each.id for each in claim()] == [urgent]

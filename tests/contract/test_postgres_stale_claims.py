"""Claims that meet at a partition, one by an older snapshot, one while it is locked; planted mistakes are found."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from holdfast.core.partitions import LimitedClaim, SignalMark, partition_id
from holdfast.core.records import LeaseClass, NewJob
from holdfast.storage.id_generator import new_id
from holdfast.storage.postgres.database import PostgresDatabase
from tests.support.limit_checks import Bounds, PostgresLimitChecker
from tests.support.limit_plants import Planted, planted
from tests.support.until import until

TYPE = "mail"
MARKS = tuple(SignalMark(priority) for priority in range(10))
LATE = "late"
WAIT = "case when :worker = 'late' then pg_advisory_xact_lock_shared(7) end"


class Claims:
    """Claimers at one database, and what checks it from outside."""

    def __init__(self, url: str, bounds: Bounds) -> None:
        self.url, self.bounds = url, bounds
        self.database = PostgresDatabase(url)
        self.store = self.database.store
        self.checker = PostgresLimitChecker(url)

    def start(self, key: str, priority: int = 5, cost: int | None = None, ago_s: int = 0) -> None:
        """Start a job, by default now."""
        id, gate = new_id(), partition_id(TYPE, key)
        job = NewJob(id, id, TYPE, f'"{key}"', priority=priority, gate=gate, cost=cost)
        past = self.database.read(self.store.schema.clock()) - ago_s * 1_000_000
        self.database.run(self.store.jobs.insert([job], now=past if ago_s else None))

    def start_used(self, key: str) -> None:
        """Start a job whose partition is there already: it was claimed and given back."""
        self.start(key)
        (job,) = self.database.run(self.store.jobs.claim_limited(self.look())).jobs
        self.database.run(self.store.leases.release([job.token]))

    def look(self, worker: str = "prompt") -> LimitedClaim:
        """One poll of the partitions, for one job."""
        lease = LeaseClass(new_id(), 60_000, 3, 100, 400)
        line, shared = self.bounds.line(TYPE), self.bounds.shared(TYPE)
        most = self.bounds.max_cost
        return LimitedClaim(worker, TYPE, 1, lease, line, shared, marks=MARKS, max_cost=most)

    def claim(self, worker: str = "prompt") -> int:
        """Look once; return how many jobs it brought."""
        return len(self.database.run(self.store.jobs.claim_limited(self.look(worker))).jobs)

    @contextmanager
    def late_claims_wait(self) -> Iterator[None]:
        """Keep late claims, which have their snapshots, from going on."""
        with psycopg.connect(self.url, autocommit=True) as other:
            other.execute("select pg_advisory_lock(7)")
            yield

    def is_waiting(self) -> bool:
        """Whether a claim has its snapshot and waits."""
        with psycopg.connect(self.url, autocommit=True) as other:
            waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
            found = other.execute(waiting).fetchone()
            return bool(found and found[0])

    def broken(self) -> set[str]:
        """What does not hold, without looking at how partitions are kept."""
        return {each.partition(":")[0] for each in self.checker.broken(self.bounds, inside=False)}

    def close(self) -> None:
        """Give the connections up."""
        self.checker.close()
        self.database.close()


@pytest.mark.parametrize(
    ("mistake", "bounds", "found"),
    [
        ("", Bounds(allowed=1), set()),
        ("", Bounds(total=1), set()),
        ("no freshness check", Bounds(allowed=1), {"more than allowed run"}),
        ("no freshness check", Bounds(total=1), {"more than allowed run in all"}),
    ],
)
async def test_a_claim_by_an_older_snapshot_grants_nothing(
    postgres_url: str, mistake: Planted, bounds: Bounds, found: set[str]
) -> None:
    with planted(mistake, WAIT), closing(Claims(postgres_url, bounds)) as claims:
        claims.start_used("a")
        claims.start("b")
        with claims.late_claims_wait():
            late = asyncio.create_task(asyncio.to_thread(claims.claim, LATE))
            await until(lambda: asyncio.to_thread(claims.is_waiting))
            claims.start("a", priority=2)
            assert claims.claim() == 1
        await late
        assert claims.broken() == found


@pytest.mark.parametrize(
    ("mistake", "bounds", "found"),
    [
        ("", Bounds(allowed=1), set()),
        ("", Bounds(total=1), set()),
        ("older turn accepted", Bounds(allowed=1), {"more than allowed run"}),
        ("older turn accepted", Bounds(total=1), {"more than allowed run in all"}),
    ],
)
def test_a_claim_that_finds_the_gate_locked_grants_nothing(
    postgres_url: str, mistake: Planted, bounds: Bounds, found: set[str]
) -> None:
    with planted(mistake), closing(Claims(postgres_url, bounds)) as claims:
        claims.start_used("a")
        assert claims.claim() == 1
        claims.start("a")
        with psycopg.connect(postgres_url) as other:
            other.execute("select from holdfast.gate where turn > 0 for update")
            claims.claim()
        assert claims.broken() == found


def test_a_light_job_behind_a_heavy_and_more_urgent_one_is_not_taken_for_forgotten(
    postgres_url: str,
) -> None:
    with closing(Claims(postgres_url, Bounds(allowed=9, weighed=True))) as claims:
        claims.start("a", cost=3)
        assert claims.claim() == 1
        claims.start("a", cost=1, ago_s=5)
        claims.start("a", priority=2, cost=7)
        assert claims.claim() == 0
        assert claims.broken() == set()

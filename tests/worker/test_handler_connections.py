"""A worker whose server has no connection to spare for its handlers' transactions: it works with what it has."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql

from holdfast.commands.explain import look_around, why
from holdfast.core.lease import Lease
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.worker.handler_connections import HandlerConnections
from holdfast.worker.job import Job
from holdfast.worker.options import WorkerOptions
from holdfast.worker.worker import Worker
from tests.storage.roles import LimitedRole, limited_role
from tests.support.manual_clock import ManualClock
from tests.support.until import until
from tests.worker.workshop import Workshop

QUICK = WorkerOptions(idle_min_ms=20, idle_max_ms=100, idle_jitter_ms=10)


@pytest.fixture
def role(worker_url: str) -> Iterator[LimitedRole]:
    """A role that may do what the tables' owner may, in two sessions."""
    with limited_role(worker_url, 2) as limited:
        with psycopg.connect(worker_url, autocommit=True) as owner:
            names = map(sql.Identifier, (owner.info.user, limited.name))
            owner.execute(sql.SQL("grant {} to {}").format(*names))
        yield limited


@pytest_asyncio.fixture
async def few(role: LimitedRole) -> AsyncIterator[PostgresDatabase]:
    """The database as that role reaches it."""
    database = PostgresDatabase(role.url)
    yield database
    await database.close_async()


@asynccontextmanager
async def at_work(
    workshop: Workshop, database: PostgresDatabase, options: WorkerOptions = QUICK
) -> AsyncIterator[Worker]:
    """A worker on the few connections; the workshop itself has as many as it likes."""
    worker = Worker(database, workshop.types, options, observer=workshop.events)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running


async def tries(workshop: Workshop, job_id: str) -> tuple[str, int]:
    """The state of a job and its counted attempts."""
    job = await workshop.job(job_id)
    return job.state, job.attempt


def handle_all(workshop: Workshop, database: PostgresDatabase) -> None:
    """Handlers that need a connection in each of the ways there are, and one that needs none."""

    async def atomic(job: Job[Any]) -> None:
        await job.tx.execute("select 1")

    def threaded(job: Job[Any]) -> None:
        job.tx.execute("select 1")

    async def staged(job: Job[Any]) -> None:
        async with job.prepare() as tx:
            await tx.execute("select 1")
        async with job.complete() as completion:
            await completion.tx.execute("select 1")

    def own(job: Job[Any]) -> None:
        with database.transaction() as tx:
            tx.execute("select 1")
            job.complete(tx=tx)

    async def plain(job: Job[Any]) -> None:
        pass

    workshop.handle("atomic", atomic, atomic=True)
    workshop.handle("threaded", threaded, atomic=True)
    workshop.handle("staged", staged)
    workshop.handle("own", own)
    workshop.handle("plain", plain)


async def test_two_connections_are_enough_for_every_kind_of_handler(
    postgres_workshop: Workshop, few: PostgresDatabase
) -> None:
    workshop = postgres_workshop
    handle_all(workshop, few)
    ids = [each for name in workshop.types for each in await workshop.start(name, count=10)]
    async with at_work(workshop, few):
        await workshop.events.seen("job_completed", len(ids))
    assert {await tries(workshop, each) for each in ids} == {("completed", 1)}
    assert len(workshop.events.of("connections_short")) == 1
    assert not workshop.events.of("database_unreachable")


async def test_a_worker_with_a_single_connection_claims_no_atomic_job_until_it_has_another(
    postgres_workshop: Workshop, few: PostgresDatabase, role: LimitedRole
) -> None:
    workshop = postgres_workshop
    handle_all(workshop, few)
    role.allow(1)
    atomic = await workshop.start_one("atomic")
    async with at_work(workshop, few):
        # The first one shows that there is no connection for it.
        await workshop.events.seen("job_snoozed", job_id=atomic)
        for _ in range(3):
            plain = await workshop.start_one("plain")
            await workshop.events.seen("job_completed", job_id=plain)
        assert await tries(workshop, atomic) == ("pending", 0)
        assert len(workshop.events.of("job_started", job_id=atomic)) == 1
        role.allow(2)
        await workshop.events.seen("job_completed", job_id=atomic)
    assert await tries(workshop, atomic) == ("completed", 1)


async def test_a_job_that_waits_for_a_connection_says_so(
    postgres_workshop: Workshop, few: PostgresDatabase, role: LimitedRole
) -> None:
    workshop = postgres_workshop
    handle_all(workshop, few)
    role.allow(1)
    job_id = await workshop.start_one("atomic")

    async def is_said() -> bool:
        job = await workshop.job(job_id)
        around = await workshop.run(look_around(workshop.store, job))
        return "connection" in why(job, around)

    lease = Lease("3s")
    async with at_work(workshop, few, WorkerOptions(lease=lease, idle_max_ms=100)):
        await until(is_said)
        role.allow(2)
        await workshop.events.seen("job_completed", job_id=job_id)


async def test_the_lease_of_a_long_transaction_is_renewed_on_the_only_other_connection(
    postgres_workshop: Workshop, few: PostgresDatabase
) -> None:
    workshop = postgres_workshop
    release = asyncio.Event()

    async def long(job: Job[Any]) -> None:
        await release.wait()

    workshop.handle("long", long, atomic=True)
    job_id = await workshop.start_one("long")
    lease = Lease("3s")
    async with at_work(workshop, few, WorkerOptions(lease=lease, idle_max_ms=100)) as worker:
        await workshop.events.seen("job_started", job_id=job_id)
        beats = worker.counters.heartbeats
        # A lease is renewed three times before it is over; five are more than one lease.
        await until(lambda: worker.counters.heartbeats > beats + 5)
        release.set()
        await workshop.events.seen("job_completed", job_id=job_id)
    assert not workshop.events.of("lease_lost")
    assert await tries(workshop, job_id) == ("completed", 1)


async def test_a_handler_whose_own_driver_gets_no_connection_costs_no_attempt(
    postgres_workshop: Workshop, few: PostgresDatabase, role: LimitedRole
) -> None:
    workshop = postgres_workshop

    def own_driver(job: Job[Any]) -> None:
        with psycopg.connect(role.url) as connection:
            connection.execute("select 1")
            job.complete(tx=connection)

    workshop.handle("driver", own_driver)
    role.allow(1)
    job_id = await workshop.start_one("driver")
    async with at_work(workshop, few):
        await workshop.events.seen("job_snoozed", job_id=job_id)
        role.allow(2)
        await workshop.events.seen("job_completed", job_id=job_id)
    assert await tries(workshop, job_id) == ("completed", 1)


async def test_a_worker_at_a_full_server_says_so_once_and_joins_when_there_is_room(
    postgres_workshop: Workshop, few: PostgresDatabase, role: LimitedRole
) -> None:
    workshop = postgres_workshop
    handle_all(workshop, few)
    role.allow(0)
    job_id = await workshop.start_one("atomic")
    async with at_work(workshop, few):
        await workshop.events.seen("connections_short")
        role.allow(3)
        await workshop.events.seen("job_completed", job_id=job_id)
    assert len(workshop.events.of("connections_short")) <= 2
    assert not workshop.events.of("database_unreachable")


def test_as_many_jobs_with_a_driver_of_their_own_are_tried_as_had_a_connection() -> None:
    clock = ManualClock()
    database = SimpleNamespace(connections_in_hand=1, make_room=lambda: None)
    driver = SimpleNamespace(name="driver", atomic=False)
    held = [SimpleNamespace(type=driver, ended_at=None) for _ in range(3)]
    parts: tuple[Any, ...] = (
        database,
        {"driver": driver},
        SimpleNamespace(attempts=lambda: held),
        clock,
        SimpleNamespace(emit=lambda *_, **__: None),
    )
    connections = HandlerConnections(*parts)
    assert connections.room_of("driver") == math.inf
    connections.note_error("driver", psycopg.OperationalError("sorry, too many clients already"))
    held.clear()
    assert connections.room_of("driver") == 2
    clock.advance(1)
    assert connections.room_of("driver") == 3
    held.append(SimpleNamespace(type=driver, ended_at=None))
    connections.note_error("driver", psycopg.OperationalError("sorry, too many clients already"))
    held.clear()
    assert connections.room_of("driver") == 0
    clock.advance(1)
    assert connections.room_of("driver") == 1

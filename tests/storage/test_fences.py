"""Fences grow on whatever server the rows come to, and where a server does not report which one it is."""

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from holdfast.core.records import ClaimedJob, NewJob
from holdfast.storage.id_generator import new_id
from holdfast.storage.postgres.database import PostgresDatabase
from tests.chaos.test_lost_claims import claim_on
from tests.storage.roles import limited_role

CLOCK_BITS = 42
ROOM = 16
IDENTITY = "select system_id, timeline, fence_base from holdfast.identity"
REFUSE = """
revoke execute on function pg_current_wal_lsn() from public;
revoke execute on function pg_control_system() from public;
grant usage on schema holdfast to public;
grant select, insert, update, delete on all tables in schema holdfast to public
"""


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[PostgresDatabase]:
    made = PostgresDatabase(postgres_url)
    made.migrate()
    yield made
    await made.close_async()


@pytest.fixture
def connection(postgres_url: str) -> Any:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


async def claim_a_job(database: PostgresDatabase) -> ClaimedJob:
    """Start a job and claim it."""
    job_id = new_id()
    await database.run_async(database.store.jobs.insert([NewJob(job_id, job_id, "work", "{}")]))
    link = database.link("claim")
    try:
        return await claim_on(link, database)
    finally:
        await link.close()


async def test_above_the_clock_is_the_timeline(
    database: PostgresDatabase, connection: Connection[Any]
) -> None:
    (timeline,) = connection.execute("select timeline_id from pg_control_checkpoint()").fetchall()
    job = await claim_a_job(database)
    assert job.fence >> CLOCK_BITS == timeline[0]
    assert job.fence & ((1 << CLOCK_BITS) - 1) == job.claimed_at // 1_000


async def test_on_another_server_fences_begin_above_those_of_the_last(
    database: PostgresDatabase, connection: Connection[Any]
) -> None:
    # As a dump brings it that was taken on another server, after six promotions.
    connection.execute("update holdfast.identity set system_id = system_id + 1, timeline = 7")
    database.migrate()
    assert connection.execute(IDENTITY).fetchall()[0][2] == 0
    await database.run_async(database.store.schema.adopt(new_id()))
    expected = 7 + ROOM
    assert connection.execute(IDENTITY).fetchall()[0][2] == expected
    job = await claim_a_job(database)
    (timeline,) = connection.execute("select holdfast.timeline()").fetchall()[0]
    assert job.fence >> CLOCK_BITS == expected + timeline
    await database.run_async(database.store.schema.adopt(new_id()))
    assert connection.execute(IDENTITY).fetchall()[0][2] == expected


async def test_a_server_that_does_not_report_its_timeline_gives_fences_by_its_clock(
    database: PostgresDatabase, connection: Connection[Any], postgres_url: str
) -> None:
    connection.execute(REFUSE)
    before = connection.execute(IDENTITY).fetchall()
    with limited_role(postgres_url, 10) as role:
        plain = PostgresDatabase(role.url)
        await plain.run_async(plain.store.schema.note_server())
        assert connection.execute(IDENTITY).fetchall() == before
        job = await claim_a_job(plain)
        assert job.fence == job.claimed_at // 1_000
        await plain.close_async()

"""A database in memory keeps the same meaning inside one process."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from holdfast.core.errors import ConnectionClosed, DatabaseBusy
from holdfast.storage.operation import run, run_async
from holdfast.storage.sqlite.database import SqliteDatabase
from tests.storage.sqlite.scene import claim_of, finish_of, new_job


@pytest.fixture
def database() -> Iterator[SqliteDatabase]:
    made = SqliteDatabase(":memory:", busy_timeout_ms=100)
    made.migrate()
    yield made
    made.close()


def test_a_job_lives_its_whole_life_in_memory(database: SqliteDatabase) -> None:
    jobs, job = database.store.jobs, new_job()
    with database.transaction() as transaction:
        run(jobs.insert([job]), transaction)
    (claimed,) = database.run(jobs.claim(claim_of()))
    assert database.run(jobs.finish([finish_of(claimed, output="1")]))
    (record,) = database.read(jobs.get([job.id]))
    assert (record.state, record.output) == ("completed", "1")
    assert database.url == "sqlite:///:memory:"


async def test_both_colours_see_the_same_rows(database: SqliteDatabase) -> None:
    jobs, first, second = database.store.jobs, new_job(), new_job()
    async with database.transaction_async() as transaction:
        await run_async(jobs.insert([first]), transaction)
    await asyncio.to_thread(database.run, jobs.insert([second]))
    found = await database.read_async(jobs.get([first.id, second.id]))
    assert [each.id for each in found] == sorted([first.id, second.id])


def test_others_wait_for_an_open_transaction_up_to_the_limit(database: SqliteDatabase) -> None:
    jobs = database.store.jobs
    with database.transaction() as transaction:
        run(jobs.insert([new_job()]), transaction)
        with pytest.raises(DatabaseBusy):
            database.run(jobs.insert([new_job()]))
        with pytest.raises(DatabaseBusy):
            database.read(jobs.get([]))
    assert database.run(jobs.insert([new_job()]))


def test_each_database_in_memory_is_its_own(database: SqliteDatabase) -> None:
    job = new_job()
    database.run(database.store.jobs.insert([job]))
    other = SqliteDatabase(":memory:")
    other.migrate()
    assert other.read(other.store.jobs.get([job.id])) == []
    other.close()


async def test_closing_leaves_no_thread_and_refuses_what_comes_after() -> None:
    before = threading.enumerate()
    database = SqliteDatabase(":memory:")
    database.migrate()
    await database.run_async(database.store.jobs.insert([new_job()]))
    await database.read_async(database.store.jobs.get([]))
    async with database.transaction_async() as transaction:
        await transaction.execute("select 1")
    await database.close_async()
    assert [each.name for each in threading.enumerate() if each not in before] == []
    with pytest.raises(ConnectionClosed):
        database.run(database.store.jobs.get([]))
    with pytest.raises(ConnectionClosed):
        database.read(database.store.jobs.get([]))

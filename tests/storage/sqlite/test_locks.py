"""The file has one write lock: whoever waits for it waits politely, and readers wait for nobody."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.core.errors import DatabaseBusy
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.store.pagination import JobQuery
from tests.storage.sqlite.scene import job_ids, locked, new_job


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    """A thread beside the test's own."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def test_an_operation_waits_for_a_transaction_of_somebody_else(
    database: SqliteDatabase, path: Path, thread: ThreadPoolExecutor
) -> None:
    job = new_job()
    with locked(path) as theirs:
        waiting = thread.submit(database.run, database.store.jobs.insert([job]))
        theirs.execute("create table orders (id integer)")
        assert job_ids(path) == set()
        theirs.execute("commit")
    assert waiting.result() == {job.id}


def test_a_reader_waits_for_no_writer(database: SqliteDatabase, path: Path) -> None:
    job = new_job()
    database.run(database.store.jobs.insert([job]))
    with locked(path) as theirs:
        theirs.execute("delete from holdfast_job")
        assert [each.id for each in database.read(database.store.jobs.get([job.id]))] == [job.id]


def test_a_lock_held_for_longer_than_the_limit_is_a_typed_error(path: Path) -> None:
    database = SqliteDatabase(path, busy_timeout_ms=0)
    database.migrate()
    try:
        with locked(path):
            with pytest.raises(DatabaseBusy):
                database.run(database.store.jobs.insert([new_job()]))
            with pytest.raises(DatabaseBusy), database.transaction() as transaction:
                transaction.execute("create table orders (id integer)")
        assert database.run(database.store.jobs.insert([new_job()]))
    finally:
        database.close()


async def test_a_link_waits_as_long_as_its_statements_may_take(
    database: SqliteDatabase, path: Path
) -> None:
    link = database.link("heartbeat", statement_timeout_ms=0)
    with locked(path), pytest.raises(DatabaseBusy):
        await link.run(database.store.jobs.insert([new_job()]))
    assert await link.run_atomic(database.store.jobs.insert([new_job()]))
    await link.close()
    assert link.purpose == "heartbeat"


def test_a_read_that_takes_too_long_is_ended(database: SqliteDatabase) -> None:
    database.run(database.store.jobs.insert([new_job() for _ in range(10_000)]))
    nothing = JobQuery(limit=10, key_like="%never%")
    with pytest.raises(DatabaseBusy, match="time limit"):
        database.read(database.store.jobs.page(nothing), timeout_ms=0)
    assert database.read(database.store.jobs.page(nothing), timeout_ms=60_000) == []


def test_reading_cannot_write(database: SqliteDatabase, path: Path) -> None:
    with pytest.raises(Exception, match="readonly"):
        database.read(database.store.jobs.insert([new_job()]))
    assert job_ids(path) == set()


async def test_an_async_read_runs_beside_the_loop(database: SqliteDatabase) -> None:
    job = new_job()
    await database.run_async(database.store.jobs.insert([job]))
    found = await database.read_async(database.store.jobs.get([job.id]))
    assert [each.state for each in found] == ["pending"]

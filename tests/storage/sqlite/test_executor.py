"""Statements on users' own connections: their settings do not matter, and their errors are told in our words."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.errors import ConnectionClosed, DatabaseBusy, WrongDatabase
from holdfast.storage.operation import run
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.sqlite.transaction import SqliteExecutor
from tests.storage.sqlite.scene import job_ids, locked, new_job


@pytest.fixture
def theirs(database: SqliteDatabase, path: Path) -> Iterator[sqlite3.Connection]:
    """A connection as users open it."""
    connection = sqlite3.connect(path, timeout=0)
    yield connection
    connection.close()


def test_a_write_begins_the_transaction_and_leaves_its_end_to_the_user(
    database: SqliteDatabase, theirs: sqlite3.Connection, path: Path
) -> None:
    job = new_job()
    assert run(database.store.jobs.insert([job]), SqliteExecutor(theirs)) == {job.id}
    assert theirs.in_transaction
    assert job_ids(path) == set()
    theirs.rollback()
    assert job_ids(path) == set()
    run(database.store.jobs.insert([job]), SqliteExecutor(theirs))
    theirs.commit()
    assert job_ids(path) == {job.id}


def test_row_and_text_factories_do_not_matter(
    database: SqliteDatabase, theirs: sqlite3.Connection
) -> None:
    theirs.row_factory = sqlite3.Row
    theirs.text_factory = bytes
    job = new_job(key="Ключ")
    run(database.store.jobs.insert([job]), SqliteExecutor(theirs))
    (record,) = run(database.store.jobs.get([job.id]), SqliteExecutor(theirs))
    assert (record.id, record.key, record.continued) == (job.id, "Ключ", False)
    assert theirs.row_factory is sqlite3.Row
    assert theirs.text_factory is bytes


def test_a_closed_connection_is_a_typed_error(
    database: SqliteDatabase, theirs: sqlite3.Connection
) -> None:
    theirs.close()
    with pytest.raises(ConnectionClosed):
        run(database.store.jobs.insert([new_job()]), SqliteExecutor(theirs))


def test_another_database_is_a_typed_error(database: SqliteDatabase) -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(WrongDatabase):
        run(database.store.jobs.insert([new_job()]), SqliteExecutor(connection))
    connection.close()


def test_a_locked_file_is_a_typed_error(
    database: SqliteDatabase, theirs: sqlite3.Connection, path: Path
) -> None:
    with locked(path), pytest.raises(DatabaseBusy, match="job_insert"):
        run(database.store.jobs.insert([new_job()]), SqliteExecutor(theirs))


def test_a_lock_is_also_taken_by_a_transaction_that_has_only_read(
    database: SqliteDatabase, theirs: sqlite3.Connection, path: Path
) -> None:
    job = new_job()
    database.run(database.store.jobs.insert([job]))
    theirs.execute("begin")
    theirs.execute("select count(*) from holdfast_job").fetchone()
    assert run(database.store.jobs.lock([job.id, new_job().id]), SqliteExecutor(theirs)) == {job.id}
    with pytest.raises(sqlite3.OperationalError, match="locked"), locked(path, wait_s=0):
        pass

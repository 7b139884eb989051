"""One PostgreSQL database object serves many threads and tasks and leaves nothing behind."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from holdfast.core.errors import DatabaseBusy, NoTransaction, UnusableUrl
from holdfast.core.records import NewJob
from holdfast.storage.operation import run, run_async
from holdfast.storage.postgres.connection import STATEMENT_TIMEOUT_MS
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.postgres.pool import PooledAsyncConnection
from holdfast.storage.postgres.psycopg_internals import PoolConnection
from tests.support.until import until

THREADS = 16
NIL = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def restless() -> Iterator[None]:
    """Let threads interrupt each other as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("restless")
def test_threads_that_come_first_together_share_one_pool(postgres_url: str) -> None:
    before = set(threading.enumerate())
    database = PostgresDatabase(postgres_url)
    together = threading.Barrier(THREADS)

    def ask(_: int) -> int:
        together.wait()
        return database.run(database.store.schema.clock())

    with ThreadPoolExecutor(THREADS) as threads:
        assert len(list(threads.map(ask, range(THREADS)))) == THREADS
    database.close()
    assert set(threading.enumerate()) <= before, "a second pool was never closed"


async def limit_of(database: PostgresDatabase) -> str:
    """Ask a transaction of the caller's own how long its statements may take."""
    async with database.transaction_async() as transaction:
        cursor = await transaction.execute("show statement_timeout")
        row = await cursor.fetchone()
    assert row is not None
    return str(row[0])


async def test_the_limit_of_a_question_is_not_that_of_the_next_users_transaction(
    postgres_url: str,
) -> None:
    database = PostgresDatabase(postgres_url, pool_size=1)
    usual = f"{STATEMENT_TIMEOUT_MS // 1000}s"
    assert await limit_of(database) == usual
    await database.read_async(database.store.schema.clock(), timeout_ms=1234)
    assert await limit_of(database) == usual
    await database.close_async()


LEAVES = (
    "set work_mem = '77MB'",
    "select set_config('statement_timeout', '1234', false)",
    "set role pg_monitor",
    "create temporary table left_behind (n integer)",
)
FINDS = """
select pg_backend_pid(), current_setting('work_mem') = '77MB', current_setting('statement_timeout'),
       current_user = 'pg_monitor', to_regclass('pg_temp.left_behind') is not null
"""
NOTHING = (False, f"{STATEMENT_TIMEOUT_MS // 1000}s", False, False)


def test_what_a_caller_left_in_its_session_is_not_met_by_the_next(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url, pool_size=1)
    with database.transaction() as transaction:
        pid = transaction.connection.info.backend_pid
        for statement in LEAVES:
            transaction.execute(statement)
    with database.transaction() as transaction:
        assert transaction.execute(FINDS).fetchone() == (pid, *NOTHING)
    database.close()


async def test_the_next_async_caller_does_not_meet_it_either(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url, pool_size=1)
    async with database.transaction_async() as transaction:
        pid = transaction.connection.info.backend_pid
        for statement in LEAVES:
            await transaction.execute(statement)
    await database.read_async(database.store.schema.clock(), timeout_ms=5678)
    async with database.transaction_async() as transaction:
        cursor = await transaction.execute(FINDS)
        assert await cursor.fetchone() == (pid, *NOTHING)
    await database.close_async()


@pytest.mark.parametrize("prepare", [True, False], ids=["direct", "as if pooled"])
async def test_a_question_ends_at_its_limit_and_the_next_one_is_answered(
    postgres_url: str, prepare: bool
) -> None:
    database = PostgresDatabase(postgres_url, pool_size=1, prepare=prepare)
    with psycopg.connect(postgres_url) as blocker:
        blocker.execute("lock table holdfast.identity in access exclusive mode")
        with pytest.raises(DatabaseBusy):
            await database.read_async(database.store.schema.identity(), timeout_ms=50)
    await database.read_async(database.store.schema.identity())
    await database.close_async()


async def test_an_asker_who_is_gone_as_its_limit_is_set_leaves_it_to_no_transaction(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = PostgresDatabase(postgres_url, pool_size=1)
    assert await limit_of(database) == f"{STATEMENT_TIMEOUT_MS // 1000}s"

    async def answered_too_late(connection: PooledAsyncConnection, *given: Any) -> Any:
        await PoolConnection.wait(connection, *given)
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(PooledAsyncConnection, "wait", answered_too_late)
        with pytest.raises(asyncio.CancelledError):
            await database.read_async(database.store.schema.clock(), 50)
    assert await limit_of(database) == f"{STATEMENT_TIMEOUT_MS // 1000}s"
    await database.close_async()


async def test_a_question_whose_asker_is_gone_is_cancelled_at_the_server(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url, pool_size=1)
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"

    with (
        psycopg.connect(postgres_url) as blocker,
        psycopg.connect(postgres_url, autocommit=True) as observer,
    ):
        blocker.execute("lock table holdfast.identity in access exclusive mode")
        before = await database.read_async(database.store.schema.clock())
        asker = asyncio.create_task(database.read_async(database.store.schema.identity()))
        await until(lambda: observer.execute(waiting).fetchone() == (1,))
        asker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asker
        assert observer.execute(waiting).fetchone() == (0,)
        assert await database.read_async(database.store.schema.clock()) > before
    await database.close_async()


@pytest.mark.parametrize("word", ["commit", "rollback"])
def test_a_transaction_that_its_caller_ended_takes_nothing_more(
    postgres_url: str, word: str
) -> None:
    database = PostgresDatabase(postgres_url, pool_size=1)

    def end_by_hand(write_on: bool) -> None:
        with database.transaction() as transaction:
            transaction.execute(word)
            transaction.execute("select 1")
            if write_on:
                run(database.store.jobs.insert([NewJob(NIL, NIL, "work", "{}")]), transaction)

    for write_on in (True, False):
        with pytest.raises(NoTransaction, match="ended inside its block"):
            end_by_hand(write_on)
    assert database.read(database.store.jobs.get([NIL])) == []
    database.close()


@pytest.mark.parametrize("word", ["commit", "rollback"])
async def test_an_async_transaction_that_its_caller_ended_takes_nothing_more(
    postgres_url: str, word: str
) -> None:
    database = PostgresDatabase(postgres_url, pool_size=1)

    async def end_by_hand(write_on: bool) -> None:
        async with database.transaction_async() as transaction:
            await transaction.execute(word)
            await transaction.execute("select 1")
            if write_on:
                writing = database.store.jobs.insert([NewJob(NIL, NIL, "work", "{}")])
                await run_async(writing, transaction)

    for write_on in (True, False):
        with pytest.raises(NoTransaction, match="ended inside its block"):
            await end_by_hand(write_on)
    assert await database.read_async(database.store.jobs.get([NIL])) == []
    await database.close_async()


def test_what_is_wrong_with_a_url_is_said_in_one_line() -> None:
    with pytest.raises(UnusableUrl) as refusal:
        PostgresDatabase("postgresql://127.0.0.1/x?colour=blue")
    assert refusal.value.message.endswith('invalid URI query parameter: "colour"')

"""The lock of a singleton cycle: held by one, lost with its connection, and no burden for the server meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast.core.errors import DatabaseUnreachable
from holdfast.storage.postgres.database import PostgresDatabase

KEY = "worker:scheduler:cleanup"

_SESSION = """
select pid, state, backend_xid, backend_xmin, query from pg_stat_activity
 where application_name = 'holdfast singleton' and datname = current_database()
"""
_HELD = """
select count(*) from pg_locks
 where locktype = 'advisory' and granted and database = (select oid from pg_database where datname = current_database())
   and (classid::bigint << 32 | objid::bigint) = hashtextextended('worker:scheduler:cleanup', 0)
"""


@pytest.fixture
def database(postgres_url: str) -> Iterator[PostgresDatabase]:
    """A database of the test's own."""
    made = PostgresDatabase(postgres_url)
    yield made
    made.close()


@pytest.fixture
def watcher(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection that looks at the others."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


async def test_one_of_two_replicas_gets_the_lock_and_the_other_after_it(
    database: PostgresDatabase, watcher: psycopg.Connection[Any]
) -> None:
    mine, theirs = database.singleton(KEY), database.singleton(KEY)
    assert await mine.acquire()
    assert watcher.execute(_HELD).fetchone() == (1,)
    assert not await theirs.acquire()
    await mine.ping()
    await mine.release()
    assert await theirs.acquire()
    await theirs.release()


async def test_the_locks_session_holds_neither_xid_nor_xmin(
    database: PostgresDatabase, watcher: psycopg.Connection[Any]
) -> None:
    lock = database.singleton(KEY)
    assert await lock.acquire()
    for _ in range(2):
        (row,) = watcher.execute(_SESSION).fetchall()
        assert row[1:4] == ("idle in transaction", None, None)
        await lock.ping()
    await lock.release()


async def test_the_lock_outlives_the_servers_timeouts_for_idle_sessions(
    postgres_url: str, watcher: psycopg.Connection[Any]
) -> None:
    name = watcher.info.dbname
    known = (
        "select name from pg_settings where name in ('transaction_timeout', 'idle_session_timeout')"
    )
    timeouts = [row[0] for row in watcher.execute(known)]
    for setting in ("idle_in_transaction_session_timeout", *timeouts):
        watcher.execute(
            psycopg.sql.SQL("alter database {} set {} = '150ms'").format(
                psycopg.sql.Identifier(name), psycopg.sql.Identifier(setting)
            )
        )
    lock = PostgresDatabase(postgres_url).singleton(KEY)
    assert await lock.acquire()
    watcher.execute("select pg_sleep(0.4)")
    await lock.ping()
    await lock.release()


async def test_a_killed_connection_is_noticed_by_the_next_ping_and_frees_the_lock(
    database: PostgresDatabase, watcher: psycopg.Connection[Any]
) -> None:
    mine, theirs = database.singleton(KEY), database.singleton(KEY)
    assert await mine.acquire()
    (row,) = watcher.execute(_SESSION).fetchall()
    watcher.execute("select pg_terminate_backend(%s, 5000)", [row[0]])
    with pytest.raises(DatabaseUnreachable):
        await mine.ping()
    with pytest.raises(DatabaseUnreachable):
        await mine.ping()
    assert await theirs.acquire()
    await mine.release()
    await theirs.ping()
    await theirs.release()


async def test_an_unreachable_server_is_told_from_a_lock_that_is_taken() -> None:
    lock = PostgresDatabase("postgresql://nobody@127.0.0.1:1/nothing").singleton(KEY)
    with pytest.raises(DatabaseUnreachable):
        await lock.acquire()


async def test_cycles_of_two_schemas_in_one_database_do_not_exclude_each_other(
    database: PostgresDatabase, postgres_url: str
) -> None:
    mine, theirs = database.singleton(KEY), PostgresDatabase(postgres_url, "other").singleton(KEY)
    assert await mine.acquire()
    assert await theirs.acquire()
    for each in (mine, theirs):
        await each.release()

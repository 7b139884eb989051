"""After the server ended its sessions the next callers are served at once, and what the pool says of itself is true."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from holdfast.core.errors import DatabaseUnreachable
from holdfast.storage.postgres import pool, shortage
from holdfast.storage.postgres.database import POOL_SIZE, PostgresDatabase
from tests.storage.roles import limited_role
from tests.support.postgres import StartPostgres
from tests.support.until import until

# Psycopg's pool needed 10 s and then raised.
SOON_S = 5
RETRY_S = 6
SESSIONS = """
select count(*) from pg_stat_activity where application_name = 'holdfast client' and datname = current_database()
"""
# With the time for them to be gone: one that ends while it is used is another matter.
END_ALL = """
select pg_terminate_backend(pid, 10000) from pg_stat_activity
 where application_name = 'holdfast client' and datname = current_database()
"""


def use_all(database: PostgresDatabase) -> None:
    """Have every connection of the pool opened and given back."""
    together = threading.Barrier(POOL_SIZE)

    def hold(_: int) -> None:
        with database.transaction():
            together.wait(60)

    with ThreadPoolExecutor(POOL_SIZE) as threads:
        list(threads.map(hold, range(POOL_SIZE)))


async def use_all_async(database: PostgresDatabase) -> None:
    together = asyncio.Barrier(POOL_SIZE)

    async def hold() -> None:
        async with database.transaction_async():
            await together.wait()

    await asyncio.gather(*(hold() for _ in range(POOL_SIZE)))


def ask_from_all_threads(database: PostgresDatabase) -> float:
    """Have as many callers as there are connections ask at once; return how long the last of them took."""
    begun = time.monotonic()
    with ThreadPoolExecutor(POOL_SIZE) as threads:
        asked = [
            threads.submit(database.run, database.store.schema.clock()) for _ in range(POOL_SIZE)
        ]
        assert all(each.result() for each in asked)
    return time.monotonic() - begun


async def ask_from_all_tasks(database: PostgresDatabase) -> float:
    begun = time.monotonic()
    clock = database.store.schema.clock
    assert all(await asyncio.gather(*(database.run_async(clock()) for _ in range(POOL_SIZE))))
    return time.monotonic() - begun


async def test_a_pool_in_use_is_back_as_soon_as_the_server_is(
    private_postgres: StartPostgres,
) -> None:
    server = private_postgres()
    database = PostgresDatabase(server.url)
    use_all(database)
    await use_all_async(database)
    server.restart("immediate")
    assert ask_from_all_threads(database) < SOON_S
    assert await ask_from_all_tasks(database) < SOON_S
    # And those who ask while it is away need not ask again.
    server.stop("immediate")
    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(ask_from_all_threads, database)
        asking_too = asyncio.create_task(ask_from_all_tasks(database))
        # All of them try in vain for a while, more than once.
        await asyncio.sleep(1)
        await asyncio.to_thread(server.start)
        back = time.monotonic()
        await asking_too
        await asyncio.wrap_future(asking)
    assert time.monotonic() - back < SOON_S
    await database.close_async()


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_callers_do_not_notice_that_the_idle_sessions_were_ended(
    postgres_url: str, colour: str
) -> None:
    database = PostgresDatabase(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for _ in range(3):
            if colour == "sync":
                use_all(database)
            else:
                await use_all_async(database)
            ended = connection.execute(END_ALL).fetchall()
            assert len(ended) >= POOL_SIZE
            if colour == "sync":
                assert ask_from_all_threads(database) < SOON_S
            else:
                assert await ask_from_all_tasks(database) < SOON_S
    await database.close_async()


async def test_a_pool_whose_connections_are_all_in_use_says_so(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "WAIT_S", 0.1)
    database = PostgresDatabase(postgres_url, pool_size=1)
    with database.transaction(), pytest.raises(DatabaseUnreachable, match="all 1 connections"):
        database.run(database.store.schema.clock())
    async with database.transaction_async():
        with pytest.raises(DatabaseUnreachable, match="all 1 connections"):
            await database.run_async(database.store.schema.clock())
    assert database.run(database.store.schema.clock())
    assert await database.run_async(database.store.schema.clock())
    await database.close_async()


@pytest.fixture
def few_connections(postgres_url: str) -> Iterator[str]:
    """The address for a role that the server allows three sessions."""
    with limited_role(postgres_url, 3) as role:
        yield role.url


async def test_a_pool_that_the_server_gives_less_than_its_size_shares_what_it_has(
    few_connections: str,
) -> None:
    database = PostgresDatabase(few_connections)
    ask_from_all_threads(database)
    database.close()
    await ask_from_all_tasks(database)
    await database.close_async()


async def test_who_gets_no_connection_at_all_learns_the_server_s_reason(
    few_connections: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "WAIT_S", 0.3)
    others = [psycopg.connect(few_connections) for _ in range(3)]
    database = PostgresDatabase(few_connections)
    with pytest.raises(DatabaseUnreachable) as caught:
        database.run(database.store.schema.clock())
    assert "too many connections" in caught.value.message
    assert "max_connections" in caught.value.help
    for each in others:
        each.close()
    assert await database.run_async(database.store.schema.clock())
    await database.close_async()


async def test_a_connection_that_comes_back_goes_to_the_caller_that_waited_longest(
    few_connections: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long that nobody looks for one by itself.
    monkeypatch.setattr(pool, "RETRY_S", RETRY_S)
    database = PostgresDatabase(few_connections)
    others = [psycopg.connect(few_connections) for _ in range(2)]
    served: list[int] = []

    def ask(number: int) -> None:
        with database.transaction():
            served.append(number)

    async def ask_async(number: int) -> None:
        async with database.transaction_async():
            served.append(number)

    waiting: list[asyncio.Future[None]] = []
    async with database.transaction_async():
        for number in range(6):
            asking = asyncio.to_thread(ask, number) if number % 2 else ask_async(number)
            waiting.append(asyncio.ensure_future(asking))
            await until(lambda: len(database._group._waiters) == len(waiting))
        began = time.monotonic()
    await asyncio.gather(*waiting)
    assert served == list(range(6))
    assert time.monotonic() - began < RETRY_S
    for each in others:
        each.close()
    await database.close_async()


async def test_a_caller_that_is_gone_leaves_the_connection_it_was_given_to_the_next(
    few_connections: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "RETRY_S", RETRY_S)
    database = PostgresDatabase(few_connections)
    others = [psycopg.connect(few_connections) for _ in range(2)]
    clock = database.store.schema.clock
    async with database.transaction_async():
        first = asyncio.create_task(database.run_async(clock()))
        await until(lambda: len(database._group._waiters) == 1)
        second = asyncio.create_task(asyncio.to_thread(database.run, clock()))
        await until(lambda: len(database._group._waiters) == 2)
        began = time.monotonic()
    first.cancel()
    assert await second
    assert time.monotonic() - began < RETRY_S
    assert first.cancelled() or await asyncio.gather(first, return_exceptions=True)
    for each in others:
        each.close()
    await database.close_async()


async def test_a_server_without_room_is_asked_by_one_caller_and_after_a_pause(
    few_connections: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortage, "FIRST_PAUSE_S", 600)
    monkeypatch.setattr(shortage, "MAX_PAUSE_S", 600)
    questions: list[int] = []
    connect = PostgresDatabase._connect

    def count(self: PostgresDatabase) -> pool.PooledConnection:
        questions.append(1)
        return connect(self)

    monkeypatch.setattr(PostgresDatabase, "_connect", count)
    database = PostgresDatabase(few_connections)
    others = [psycopg.connect(few_connections) for _ in range(2)]
    with database.transaction():
        waiting = [
            asyncio.create_task(asyncio.to_thread(database.run, database.store.schema.clock()))
        ]
        await until(lambda: len(database._group._waiters) == 1)
        waiting += [
            asyncio.create_task(asyncio.to_thread(database.run, database.store.schema.clock()))
            for _ in range(5)
        ]
        await until(lambda: len(database._group._waiters) == 6)
    assert all(await asyncio.gather(*waiting))
    # For the transaction, and for the first that found no room.
    assert len(questions) == 2
    for each in others:
        each.close()
    await database.close_async()


async def test_a_pool_makes_room_by_one_connection_and_leaves_all_that_are_unused(
    postgres_url: str,
) -> None:
    database = PostgresDatabase(postgres_url)
    use_all(database)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        database.make_room()
        await until(lambda: connection.execute(SESSIONS).fetchone() == (POOL_SIZE - 1,))
        database.leave_unused()
        await until(lambda: connection.execute(SESSIONS).fetchone() == (0,))
    await database.close_async()


async def test_connections_that_nobody_uses_are_closed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "IDLE_S", 0.2)
    database = PostgresDatabase(postgres_url)
    use_all(database)
    await use_all_async(database)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        await until(lambda: connection.execute(SESSIONS).fetchone() == (0,))
    assert database.run(database.store.schema.clock())
    assert await database.run_async(database.store.schema.clock())
    await database.close_async()


async def test_a_caller_who_is_gone_before_its_connection_is_open_leaves_it_to_the_next(
    postgres_url: str,
) -> None:
    database = PostgresDatabase(postgres_url, pool_size=1)
    for pause in (0, 0.001, 0.005, 0.02):
        asking = asyncio.create_task(database.run_async(database.store.schema.clock()))
        # In another stage of opening a connection each time.
        await asyncio.sleep(pause)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert await database.run_async(database.store.schema.clock())
    await database.close_async()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        await until(lambda: connection.execute(SESSIONS).fetchone() == (0,))


def test_connections_of_loops_that_have_ended_are_closed_by_the_next_and_at_the_end(
    postgres_url: str,
) -> None:
    database = PostgresDatabase(postgres_url)
    for _ in range(3):
        asyncio.run(database.run_async(database.store.schema.clock()))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        asyncio.run(until(lambda: connection.execute(SESSIONS).fetchone() == (1,)))
        database.close()
        asyncio.run(until(lambda: connection.execute(SESSIONS).fetchone() == (0,)))

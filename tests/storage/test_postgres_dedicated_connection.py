"""A worker's connection to PostgreSQL ends when it is told to, at whatever moment that is."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from holdfast.core.errors import DatabaseUnreachable
from holdfast.core.records import NewJob
from holdfast.storage.operation import Op
from holdfast.storage.postgres import dedicated_connection as link_module
from holdfast.storage.postgres.database import PostgresDatabase
from tests.storage.roles import LimitedRole, limited_role
from tests.support.until import breath, until

NIL = "00000000-0000-0000-0000-000000000000"


async def cancelled_at_an_answer(
    database: PostgresDatabase, number: int, patch: pytest.MonkeyPatch
) -> bool:
    """Open a link, cancel it in the moment of the server's nth word, and say whether there were so many."""
    loop = asyncio.get_running_loop()
    add_reader, heard = loop.add_reader, itertools.count(1)

    def add_listener(fd: int, callback: Callable[..., Any], *arguments: Any) -> None:
        def hear() -> None:
            callback(*arguments)
            # The socket is watched between two statements, too.
            if not task.done() and next(heard) == number:
                task.cancel()

        add_reader(fd, hear)

    link = database.link("test")
    with patch.context() as context:
        context.setattr(loop, "add_reader", add_listener)
        task = asyncio.create_task(link.run(database.store.schema.clock()))
        await asyncio.wait([task])
    await link.close()
    if next(heard) <= number:
        return False
    assert task.cancelled(), f"lost at the word {number}"
    return True


async def test_no_cancellation_is_lost_however_far_the_connection_is(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = PostgresDatabase(postgres_url)
    number = 1
    while await cancelled_at_an_answer(database, number, monkeypatch):
        number += 1
    assert number > 3


@pytest.fixture
def two_sessions(postgres_url: str) -> Iterator[LimitedRole]:
    """A role that the server allows two sessions."""
    with limited_role(postgres_url, 2) as role:
        yield role


async def test_links_share_what_the_server_gives_and_say_so_once(
    two_sessions: LimitedRole, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "MIN_PAUSE_S", 0.01)
    database = PostgresDatabase(two_sessions.url)
    purposes = ("complete", "claim", "fan-in", "heartbeat", "reaper")
    links = [database.link(each) for each in purposes]
    caplog.set_level("INFO", "holdfast.storage")
    for link in links * 2:
        assert await link.run(database.store.schema.clock())
        assert await link.run_atomic(database.store.schema.clock())
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    # When there is room again each has one of its own.
    two_sessions.allow(10)
    while any(link.loop is None for link in links):
        for link in links:
            assert await link.run(database.store.schema.clock())
        await breath()
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]
    for link in links:
        await link.close()


async def test_a_link_shares_a_connection_of_another_thread(two_sessions: LimitedRole) -> None:
    database = PostgresDatabase(two_sessions.url)
    beating, blocking = database.link("heartbeat"), database.link("other")
    claiming = database.link("claim")
    assert await claiming.run(database.store.schema.clock())
    assert await blocking.run(database.store.schema.clock())

    async def beat() -> int:
        answered = await beating.run(database.store.schema.clock())
        assert beating.loop is None
        return answered

    assert await asyncio.to_thread(asyncio.run, beat())
    await claiming.close()
    await blocking.close()


async def test_links_share_whatever_words_the_server_refuses_another_session_with(
    two_sessions: LimitedRole, caplog: pytest.LogCaptureFixture
) -> None:
    database = PostgresDatabase(two_sessions.url)
    first, second = database.link("complete"), database.link("claim")
    assert await first.run(database.store.schema.clock())
    two_sessions.forbid()
    assert await second.run(database.store.schema.clock())
    assert "not permitted to log in" in caplog.text
    await first.close()
    with pytest.raises(DatabaseUnreachable, match="not permitted to log in"):
        await second.run(database.store.schema.clock())
    await second.close()


@pytest.mark.parametrize("end", ["failed", "cancelled", "too long"])
async def test_an_atomic_operation_that_does_not_end_well_leaves_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(link_module, "PATIENCE_S", 0.5 - 10 if end == "too long" else 2.0)
    database = PostgresDatabase(postgres_url)
    link = database.link("test")

    def write_and_wait() -> Op[Any]:
        yield from database.store.jobs.insert([NewJob(NIL, NIL, "work", "{}")])
        if end == "failed":
            raise ValueError
        yield from database.store.schema.identity()

    with (
        psycopg.connect(postgres_url) as blocker,
        psycopg.connect(postgres_url, autocommit=True) as observer,
    ):
        blocker.execute("lock table holdfast.identity in access exclusive mode")
        task = asyncio.create_task(link.run_atomic(write_and_wait()))
        if end == "cancelled":
            await until(lambda: observer.execute(WAITING).fetchone() == (1,))
            task.cancel()
        await asyncio.wait([task])
        blocker.rollback()
        assert task.cancelled() == (end == "cancelled")
        if end == "too long":
            with pytest.raises(DatabaseUnreachable, match=r"no answer on the test connection"):
                task.result()
        await until(lambda: observer.execute(OPEN).fetchone() == (0,))
        assert observer.execute("select count(*) from holdfast.job").fetchone() == (0,)
        assert await link.run_atomic(database.store.schema.clock())
    await link.close()


# What a server says at the end of a login: it is done, the number of the session, and that statements may come.
WELCOME = (
    b"R" + (8).to_bytes(4) + bytes(4),
    b"K" + (12).to_bytes(4) + bytes(8),
    b"Z" + (5).to_bytes(4) + b"I",
)


@pytest.fixture
async def silent_after_login() -> AsyncIterator[str]:
    """The address of a server that hangs once it has let somebody in, as a pooler seems to whose server is away."""

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(await reader.readexactly(4))
        await reader.readexactly(length - 4)
        writer.write(b"".join(WELCOME))
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    async with await asyncio.start_server(welcome, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        yield f"postgresql://u@127.0.0.1:{port}/d?sslmode=disable&gssencmode=disable"


async def test_a_link_is_bounded_also_where_a_server_hangs_right_after_its_login(
    silent_after_login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "PATIENCE_S", 0.5 - 10)
    database = PostgresDatabase(silent_after_login)
    link = database.link("test")
    async with asyncio.timeout(10):
        with pytest.raises(DatabaseUnreachable, match=r"no answer on the test connection"):
            await link.run(database.store.schema.clock())
        await link.close()


async def test_a_statement_has_its_whole_time_though_another_began_before_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "PATIENCE_S", 0.5 - 10)
    database = PostgresDatabase(postgres_url)
    link = database.link("test")
    assert await link.run(database.store.schema.clock())
    await asyncio.sleep(0.3)
    with psycopg.connect(postgres_url) as blocker:
        blocker.execute("lock table holdfast.identity in access exclusive mode")
        begun = time.monotonic()
        with pytest.raises(DatabaseUnreachable, match=r"no answer on the test connection"):
            await link.run(database.store.schema.identity())
        assert time.monotonic() - begun >= 0.5
    await link.close()


WAITING = """
select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()
"""
OPEN = """
select count(*) from pg_stat_activity
 where application_name = 'holdfast test' and datname = current_database() and xact_start is not null
"""

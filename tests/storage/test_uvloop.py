"""Connections on uvloop, which watches sockets in its own way."""

import asyncio
import socket
import time
from collections.abc import Callable

import psycopg
import pytest
import uvloop
from psycopg.waiting import Ready, Wait

from holdfast.core.errors import DatabaseUnreachable
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.postgres.psycopg_internals import _SocketWait
from holdfast_chaos.proxy import FaultyProxy
from tests.support.until import PATIENCE_S, breath

END_THE_OTHERS = """
    select pg_terminate_backend(pid, 10000) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""


def test_a_session_that_the_server_ended_is_noticed_by_the_next_statement(
    postgres_url: str,
) -> None:
    async def use_an_ended_session() -> None:
        database = PostgresDatabase(postgres_url)
        try:
            async with database.transaction_async() as transaction:
                await transaction.execute("select 1")
                with psycopg.connect(postgres_url, autocommit=True) as other:
                    other.execute(END_THE_OTHERS)
                async with asyncio.timeout(PATIENCE_S):
                    await transaction.execute("select 2")
        finally:
            await database.close_async()

    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        pytest.raises(DatabaseUnreachable, match="terminating connection"),
    ):
        runner.run(use_an_ended_session())


LOOPS = pytest.mark.parametrize(
    "make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
Loop = Callable[[], asyncio.AbstractEventLoop]


@LOOPS
@pytest.mark.parametrize("end", ["terminated", "reset"])
def test_a_link_whose_session_ended_between_two_statements_fails_at_once_and_goes_on(
    make_loop: Loop, end: str, postgres_url: str
) -> None:
    async def use_an_ended_link(proxy: FaultyProxy) -> None:
        database = PostgresDatabase(proxy.url)
        link = database.link("test")
        try:
            for _ in range(3):
                await link.run(database.store.schema.clock())
            if end == "reset":
                proxy.reset()
            else:
                with psycopg.connect(postgres_url, autocommit=True) as other:
                    other.execute(END_THE_OTHERS)
            # Or else its end may not have come over to us.
            for _ in range(20):
                await breath()
            begun = time.monotonic()
            with pytest.raises(DatabaseUnreachable):
                async with asyncio.timeout(PATIENCE_S):
                    await link.run(database.store.schema.clock())
            assert time.monotonic() - begun < PATIENCE_S / 2
            assert await link.run(database.store.schema.clock())
        finally:
            await link.close()
            await database.close_async()

    with FaultyProxy(postgres_url) as proxy, asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(use_an_ended_link(proxy))


@LOOPS
def test_what_comes_unasked_is_not_watched_until_somebody_waits(make_loop: Loop) -> None:
    async def hear_unasked() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            readiness = _SocketWait(loop, ours.fileno())
            theirs.send(b"asked")
            assert await readiness.wait(Wait.R) == Ready.R
            ours.recv(10)
            theirs.send(b"unasked")
            for _ in range(10):
                await asyncio.sleep(0)
            assert not loop.remove_reader(ours.fileno())
            async with asyncio.timeout(PATIENCE_S):
                assert await readiness.wait(Wait.R) == Ready.R
            readiness.close()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(hear_unasked())

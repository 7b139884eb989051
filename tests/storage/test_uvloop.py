"""Connections on uvloop, which watches sockets in its own way."""

import asyncio

import psycopg
import pytest
import uvloop

from holdfast.core.errors import DatabaseUnreachable
from holdfast.storage.postgres.database import PostgresDatabase
from tests.support.until import PATIENCE_S

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

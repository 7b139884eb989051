"""An engine of one's own behind a pooler without prepared statements, as the page on PostgreSQL sets it up."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from holdfast import Holdfast
from tests.support.pgbouncer import pooled

CLIENTS, ROUNDS = 6, 12
# Fewer servers than clients: no client meets the same one again.
FEW_SERVERS = "max_db_connections = 2"
ADVISED: dict[str, dict[str, Any]] = {
    "psycopg": {"prepare_threshold": None},
    "asyncpg": {"statement_cache_size": 0, "prepared_statement_cache_size": 0},
}


async def start_from_many(url: str, driver: str, arguments: dict[str, Any]) -> int:
    """Have clients of an engine start jobs beside statements of their own; return how many are stored."""
    app = Holdfast(url, open_types=True)
    own_url = f"postgresql+{driver}://{url.partition('://')[2]}"
    engine = create_async_engine(own_url, connect_args=arguments, pool_size=CLIENTS)

    async def client() -> None:
        for number in range(ROUNDS):
            async with engine.begin() as connection:
                found = await connection.execute(text("select :n + 1"), {"n": number})
                assert found.scalar() == number + 1
                await app.start(connection, "report", number)

    try:
        clients = [client() for _ in range(CLIENTS)]
        for each in await asyncio.gather(*clients, return_exceptions=True):
            if each is not None:
                raise each
        return len((await app.aio.jobs.list(limit=CLIENTS * ROUNDS)).items)
    finally:
        await engine.dispose()
        await app.aclose()


@pytest.mark.parametrize("driver", sorted(ADVISED))
async def test_an_engine_that_prepares_nothing_starts_jobs_behind_a_pooler(
    postgres_url: str, driver: str
) -> None:
    with pooled(postgres_url, more=FEW_SERVERS) as url:
        assert await start_from_many(url, driver, ADVISED[driver]) == CLIENTS * ROUNDS


@pytest.mark.parametrize("driver", sorted(ADVISED))
async def test_one_that_prepares_fails_there(postgres_url: str, driver: str) -> None:
    fails = pytest.raises(DBAPIError, match="prepared statement")
    with pooled(postgres_url, more=FEW_SERVERS) as url, fails:
        await start_from_many(url, driver, {})

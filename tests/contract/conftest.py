"""The stores under contract: each dialect and version in both colours, one database each, emptied before every test.

All tests share one event loop, so that the async connections are opened once.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from holdfast.storage.database import Database
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.testing.conformance import AsyncHarness, Harness, SyncHarness
from tests.contract.tables import PostgresTables, SqliteTables, Tables
from tests.support.postgres import PostgresServer

# Enough for the tests that run a few operations at once.
CONNECTIONS = 16

POSTGRES = ("postgres", "other_postgres")
STORES = (*POSTGRES, "sqlite")
COLOURS: dict[str, type[SyncHarness] | type[AsyncHarness]] = {
    "sync": SyncHarness,
    "async": AsyncHarness,
}


@dataclass(frozen=True, slots=True)
class Contract:
    """A database that all tests of a run share, one after the other; `reopen` makes another way into it."""

    database: Database
    tables: Tables
    reopen: Callable[[int], Database]


async def _on_postgres(server: PostgresServer) -> AsyncIterator[Contract]:
    with server.database() as url:
        database = PostgresDatabase(url, pool_size=CONNECTIONS)
        tables = PostgresTables(url)
        yield Contract(database, tables, lambda size: PostgresDatabase(url, pool_size=size))
        tables.close()
        await database.close_async()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_contract(postgres_server: PostgresServer) -> AsyncIterator[Contract]:
    """The database on the server of this test run."""
    async for contract in _on_postgres(postgres_server):
        yield contract


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def other_postgres_contract(other_postgres_server: PostgresServer) -> AsyncIterator[Contract]:
    """The database on the other version."""
    async for contract in _on_postgres(other_postgres_server):
        yield contract


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sqlite_contract(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Contract]:
    """The database in a file."""
    path = tmp_path_factory.mktemp("contract") / "holdfast.db"
    database = SqliteDatabase(path)
    database.migrate()
    tables = SqliteTables(path)
    yield Contract(database, tables, lambda _: SqliteDatabase(path))
    tables.close()
    await database.close_async()


@pytest.fixture(params=STORES)
def contract(request: pytest.FixtureRequest) -> Contract:
    """Each store in turn, empty."""
    found: Contract = request.getfixturevalue(f"{request.param}_contract")
    found.tables.clear()
    return found


@pytest_asyncio.fixture(params=list(COLOURS), loop_scope="session")
async def harness(request: pytest.FixtureRequest, contract: Contract) -> AsyncIterator[Harness]:
    """Each store in each colour."""
    made = COLOURS[request.param](contract.database, contract.tables.read)
    yield made
    await made.close()

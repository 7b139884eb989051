"""The stores under contract: each dialect in both colours and each version, one database each, emptied before a test.

All tests share one event loop, so that the async connections are opened once.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import pytest
import pytest_asyncio

from holdfast.storage.database import Database
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
from tests.conformance import AsyncHarness, Harness, SyncHarness
from tests.contract.backlog import fill
from tests.contract.tables import PostgresTables, SqliteTables, Tables
from tests.support.postgres import PostgresServer

# Enough for the tests that run a few operations at once.
CONNECTIONS = 16

POSTGRES = ("postgres", "other_postgres")
COLOURS: dict[str, type[SyncHarness] | type[AsyncHarness]] = {
    "sync": SyncHarness,
    "async": AsyncHarness,
}
# A colour is the same on every version, and a version in every colour: the other server is met in one of them.
PAIRS_ON_POSTGRES = [("postgres", "sync"), ("postgres", "async"), ("other_postgres", "async")]
PAIRS = [*PAIRS_ON_POSTGRES, ("sqlite", "sync"), ("sqlite", "async")]


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


@pytest.fixture(scope="session")
def postgres_backlog(postgres_server: PostgresServer) -> Iterator[str]:
    """A busy database, just analysed; tests leave it as it is."""
    with _backlog(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def other_postgres_backlog(other_postgres_server: PostgresServer) -> Iterator[str]:
    """The same on the other version."""
    with _backlog(other_postgres_server) as url:
        yield url


@contextmanager
def _backlog(server: PostgresServer) -> Iterator[str]:
    with server.database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            fill(connection)
        yield url


@dataclass(frozen=True, slots=True)
class Pair:
    """A store and the colour it is spoken to in."""

    contract: Contract
    colour: type[SyncHarness] | type[AsyncHarness]


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> Pair:
    """Each store, empty, in the colours it is tested in."""
    store, colour = request.param
    contract: Contract = request.getfixturevalue(f"{store}_contract")
    contract.tables.clear()
    return Pair(contract, COLOURS[colour])


@pytest_asyncio.fixture(loop_scope="session")
async def harness(pair: Pair) -> AsyncIterator[Harness]:
    """What the conformance asks its questions through."""
    made = pair.colour(pair.contract.database, pair.contract.tables.read)
    yield made
    await made.close()

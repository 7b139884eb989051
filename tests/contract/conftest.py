"""The stores under contract: each dialect and version in both colours, one database each, emptied before every test.

All tests share one event loop, so that the async connections are opened once.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.testing.conformance import AsyncHarness, Harness, SyncHarness
from tests.contract.tables import PostgresTables
from tests.support.postgres import PostgresServer

# The most crowded test has 64 producers at once.
CONNECTIONS = 70

POSTGRES = ("postgres", "other_postgres")
COLOURS: dict[str, type[SyncHarness] | type[AsyncHarness]] = {
    "sync": SyncHarness,
    "async": AsyncHarness,
}


class ContractDatabase:
    """A database that all tests of a run share, one after the other."""

    def __init__(self, url: str) -> None:
        self.tables = PostgresTables(url)
        self.database = PostgresDatabase(url, pool_size=CONNECTIONS)

    async def close(self) -> None:
        await self.database.close_async()
        self.tables.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_contract(postgres_server: PostgresServer) -> AsyncIterator[ContractDatabase]:
    """The database on the server of this test run."""
    with postgres_server.database() as url:
        contract = ContractDatabase(url)
        yield contract
        await contract.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def other_postgres_contract(
    other_postgres_server: PostgresServer,
) -> AsyncIterator[ContractDatabase]:
    """The database on the other version."""
    with other_postgres_server.database() as url:
        contract = ContractDatabase(url)
        yield contract
        await contract.close()


@pytest.fixture(params=POSTGRES)
def contract(request: pytest.FixtureRequest) -> ContractDatabase:
    """Each store in turn, empty."""
    database: ContractDatabase = request.getfixturevalue(f"{request.param}_contract")
    database.tables.clear()
    return database


@pytest_asyncio.fixture(params=list(COLOURS), loop_scope="session")
async def harness(
    request: pytest.FixtureRequest, contract: ContractDatabase
) -> AsyncIterator[Harness]:
    """Each store in each colour."""
    made = COLOURS[request.param](contract.database, contract.tables.read)
    yield made
    await made.close()

"""Workshops on both stores: one PostgreSQL database for the run, emptied before every test; a SQLite file for each."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.storage.id_generator import new_id
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
from tests.support.postgres import PostgresServer
from tests.worker.ledger import PostgresLedger, SqliteLedger
from tests.worker.workshop import Workshop

STORES = ("postgres", "sqlite")


@pytest.fixture(scope="session")
def worker_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of the PostgreSQL database that the tests of the worker share."""
    with postgres_server.database() as url:
        yield url


@pytest_asyncio.fixture
async def postgres_workshop(worker_url: str) -> AsyncIterator[Workshop]:
    """A workshop on PostgreSQL."""
    ledger = PostgresLedger(worker_url)
    database = PostgresDatabase(worker_url, pool_size=20)
    await database.run_async(database.store.schema.identify(new_id()))
    workshop = Workshop(database, ledger)
    yield workshop
    await workshop.close()
    await database.close_async()
    ledger.close()


@pytest_asyncio.fixture
async def sqlite_workshop(tmp_path: Path, sqlite_template: Path) -> AsyncIterator[Workshop]:
    """A workshop on SQLite."""
    path = Path(shutil.copy(sqlite_template, tmp_path / "holdfast.db"))
    database = SqliteDatabase(path)
    database.migrate()
    ledger = SqliteLedger(path)
    workshop = Workshop(database, ledger)
    yield workshop
    await workshop.close()
    await database.close_async()
    ledger.close()


@pytest.fixture(params=STORES)
def workshop(request: pytest.FixtureRequest) -> Workshop:
    """Each store in turn."""
    made: Workshop = request.getfixturevalue(f"{request.param}_workshop")
    return made

"""The application on a database of the test's own: SQLite and PostgreSQL."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from apps.tenders.local.push_server import PushServer
from tests import conftest as shared
from tests.support import application
from tests.support.application import Commands, MakeTables
from tests.support.saved_rows import BeginWith

from holdfast.contrib.sqlalchemy_url import open_async_engine
from holdfast_testing.kit import Kit
from tenders.database import Session, migrate_tables
from tenders.worker import jobs

postgres_server = shared.postgres_server
postgres_url = shared.postgres_url
sqlite_template = shared.sqlite_template
sqlite_url = shared.sqlite_url

migrated_server = application.migrated_server
migrated_file = application.migrated_file
migrated_postgres_url = application.migrated_postgres_url
migrated_sqlite_url = application.migrated_sqlite_url
url = application.url
empty_url = application.empty_url

K = TypeVar("K", bound=Kit)

SOURCE = Path(__file__).parents[1] / "src"
COMMANDS = Commands(SOURCE)
SEED = BeginWith()

environment = COMMANDS.environment
run_command = COMMANDS.run
running = COMMANDS.running


@pytest.fixture(scope="session")
def make_tables() -> MakeTables:
    """Make the application's tables in a database."""
    return migrate_tables


@asynccontextmanager
async def using(kit: K, url: str) -> AsyncIterator[K]:
    """Have the application's sessions use the kit's database, in the block."""
    engine = open_async_engine(url)
    Session.configure(bind=engine)
    yield kit
    await engine.dispose()
    await jobs.aclose()


@pytest.fixture
async def kit(url: str) -> AsyncIterator[Kit]:
    """The application bound to the database, and a worker that runs what is due."""
    async with using(Kit(jobs, url), url) as kit:
        yield kit


@pytest.fixture
def push_log(tmp_path: Path) -> Path:
    """The file in which the push service logs what it accepted."""
    return tmp_path / "pushes.jsonl"


@pytest.fixture
def server(push_log: Path) -> Iterator[PushServer]:
    """A push service with an empty log."""
    server = PushServer(push_log)
    yield server
    server.close()

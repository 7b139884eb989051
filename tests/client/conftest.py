"""An application on a prepared database, and a connection of each kind to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.notify.base import Hint, Listener, OnHint, SendCounts
from holdfast.notify.local import NullListener
from tests.client.connection_types.alchemy import ALCHEMY
from tests.client.connection_types.django import DJANGO
from tests.client.connection_types.drivers import DRIVERS
from tests.client.connection_types.held import Held, Kind
from tests.client.connection_types.own import OWN
from tests.support.identity import identify
from tests.support.postgres import PostgresServer

EMPTY_ALL_TABLES = """
do $$ declare name text; begin
  for name in select format('%I.%I', schemaname, tablename) from pg_tables
               where schemaname in ('holdfast', 'public')
                 and tablename not in ('schema_version', 'identity') loop
    execute 'delete from ' || name;
  end loop;
end $$
"""
KINDS = [*OWN, *DRIVERS, *ALCHEMY, *DJANGO]


@dataclass
class Heard:
    """A notifier that keeps what it is asked to send."""

    hints: list[Hint] = field(default_factory=list)
    counts = SendCounts()

    def send(self, hints: Sequence[Hint]) -> None:
        self.hints += hints

    def listen(self, on_hint: OnHint) -> Listener:
        return NullListener()

    def close(self) -> None: ...

    @property
    def types(self) -> list[str]:
        return [each.type for each in self.hints]


@pytest.fixture(params=["postgresql", "sqlite"])
def dialect(request: pytest.FixtureRequest) -> str:
    """Both databases in turn; tests by kind of connection set it themselves."""
    return str(request.param)


@pytest.fixture(scope="module")
def module_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of a database for a whole module: making one per test would take most of the time."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture
def url(dialect: str, request: pytest.FixtureRequest) -> str:
    """The address of a database that knows of no job."""
    if dialect == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    url = str(request.getfixturevalue("module_postgres_url"))
    with psycopg.connect(url) as connection:
        connection.execute(EMPTY_ALL_TABLES)
    return url


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
async def app(url: str, heard: Heard) -> AsyncIterator[Holdfast]:
    """An application with open types on that database, which has a business table too."""
    app = Holdfast(url, notifier=heard, open_types=True)
    identify(app.database)
    with app.transaction() as tx:
        tx.execute("create table if not exists sale (n integer)")
    yield app
    await app.aclose()


@pytest.fixture
async def held(kind: Kind, url: str, app: Holdfast) -> AsyncIterator[Held]:
    """A connection of the kind under test."""
    async with kind.open(url, app) as held:
        yield held


@pytest.fixture
def sales(app: Holdfast) -> Callable[[], int]:
    """Count the business rows that others see."""

    def count() -> int:
        with app.transaction() as tx:
            return int(tx.execute("select count(*) from sale").fetchone()[0])

    return count

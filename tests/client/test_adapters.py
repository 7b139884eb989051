"""Adapters are found by the class of a connection, and mistakes are answered with the likely remedy."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import psycopg_pool
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from holdfast import Holdfast
from holdfast.client.adapters import adapter_of
from holdfast.client.adapters.base import Need
from holdfast.client.adapters.sqlite import SqliteAdapter
from holdfast.core.errors import UnsupportedConnection
from holdfast.storage.sqlite.store import SqliteStore
from tests.support.absent import skip_because_absent

FAR = "postgresql://nobody@127.0.0.1:1/nothing"


@pytest.fixture
def memory() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        yield connection


def test_a_subclass_is_served_like_its_parent() -> None:
    class Own(sqlite3.Connection): ...

    with closing(sqlite3.connect(":memory:", factory=Own)) as connection:
        assert isinstance(adapter_of(connection), SqliteAdapter)


async def coroutine() -> None: ...


MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: None, "use `with app.transaction"),
    (lambda: FAR, "a URL is not a connection"),
    (lambda: object(), "use `with app.transaction"),
    (lambda: Holdfast("sqlite:///:memory:").transaction(), "enter it first"),
    (lambda: create_engine("sqlite://"), "engine.begin"),
    (lambda: create_async_engine("sqlite+aiosqlite://"), "async with engine.begin"),
    (lambda: sessionmaker(), "maker.begin"),
    (lambda: async_sessionmaker(), "maker.begin"),
    (lambda: Session().begin(), "pass the session"),
    (lambda: psycopg_pool.ConnectionPool(FAR, open=False), "pool.connection"),
]


@pytest.mark.parametrize(("make", "remedy"), MISTAKES)
def test_a_mistake_is_answered_with_its_remedy(make: Callable[[], Any], remedy: str) -> None:
    with pytest.raises(UnsupportedConnection) as refusal:
        adapter_of(make())
    assert remedy in refusal.value.help
    assert "SQLAlchemy Session" in refusal.value.render()


def test_a_cursor_is_answered_with_its_connection(memory: sqlite3.Connection) -> None:
    with pytest.raises(UnsupportedConnection, match="pass the cursor's connection"):
        adapter_of(memory.cursor())


def test_a_connection_that_was_not_awaited_is_pointed_out() -> None:
    forgotten = coroutine()
    with pytest.raises(UnsupportedConnection, match="await it first"):
        adapter_of(forgotten)
    forgotten.close()


async def test_pools_and_transactions_are_pointed_out(postgres_url: str) -> None:
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=1) as pool:
        with pytest.raises(UnsupportedConnection, match=r"pool\.acquire"):
            adapter_of(pool)
        async with pool.acquire() as connection:
            with pytest.raises(UnsupportedConnection, match="connection that the transaction"):
                adapter_of(connection.transaction())
    with psycopg.connect(postgres_url) as connection, connection.transaction() as transaction:
        with pytest.raises(UnsupportedConnection, match="connection that the transaction"):
            adapter_of(transaction)
        with pytest.raises(UnsupportedConnection, match="cursor's connection"):
            adapter_of(connection.cursor())


async def test_an_aiosqlite_connection_that_was_never_opened_is_refused() -> None:
    never = aiosqlite.connect(":memory:")
    adapter: Any = adapter_of(never)
    with pytest.raises(Exception, match="HF032"):
        await adapter.open(Need(SqliteStore(), "holdfast", writes=True))


@pytest.mark.parametrize(("autocommit", "begins"), [(True, False), (False, True)])
def test_the_autocommit_of_newer_pythons_is_understood(autocommit: bool, begins: bool) -> None:
    if not hasattr(sqlite3, "LEGACY_TRANSACTION_CONTROL"):
        skip_because_absent("sqlite3's autocommit", "Run the tests with Python 3.12 or newer")
    options: Any = {"autocommit": autocommit}
    with closing(sqlite3.connect(":memory:", **options)) as connection:
        adapter = SqliteAdapter(connection)
        if begins:
            adapter.open(Need(SqliteStore(), "holdfast", writes=True))
            assert connection.in_transaction
        else:
            with pytest.raises(Exception, match="HF030"):
                adapter.open(Need(SqliteStore(), "holdfast", writes=True))


def test_no_library_is_imported_for_a_connection_of_another() -> None:
    script = """
import sqlite3, sys
from holdfast import Holdfast
app = Holdfast("sqlite:///:memory:", open_types=True)
try:
    app.start(sqlite3.connect(":memory:"), "anything")
except Exception as error:
    assert "HF040" in str(error), error
print([name for name in ("psycopg", "asyncpg", "sqlalchemy", "django", "aiosqlite", "click", "rich")
       if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


WITHOUT_GREENLET = """
import sys

sys.modules["greenlet"] = None  # as where SQLAlchemy was installed without its asyncio extra
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from holdfast import Holdfast

app = Holdfast(sys.argv[1], open_types=True)
app.migrate()
engine = create_engine(sys.argv[1])
with Session(engine) as session, session.begin():
    app.start(session, "report")
engine.dispose()
print(len(app.jobs.list()), "sqlalchemy.ext.asyncio" in sys.modules)
app.close()
"""


def test_a_sync_session_needs_no_greenlet(sqlite_url: str) -> None:
    command = [sys.executable, "-c", WITHOUT_GREENLET, sqlite_url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("1 False", "")

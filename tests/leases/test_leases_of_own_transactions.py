"""Rows leased in transactions of an application's own library, which commit or roll back all at once."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import aiosqlite
import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast.core.errors import UnsupportedConnection
from holdfast_leases import Claimed, LeasedTable

TABLE = LeasedTable("delivery", due="status = 'pending'", order="id")
COLUMNS = "id integer primary key, status text, locked_by text, lock_token text, locked_until"

Execute = Callable[[str], Awaitable[Any]]
Opened = AbstractAsyncContextManager[tuple[Any, Execute]]
Open = Callable[[str], Opened]


@asynccontextmanager
async def _driver(url: str) -> AsyncIterator[tuple[Any, Execute]]:
    """A sync connection of the driver."""
    if url.startswith("sqlite"):
        lite = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        lite.execute("begin immediate")
        connection: Any = lite
    else:
        connection = psycopg.connect(url)

    async def execute(sql: str) -> Any:
        return connection.execute(sql).fetchall() if "select" in sql else connection.execute(sql)

    try:
        yield connection, execute
        connection.commit()
    finally:
        connection.close()


@asynccontextmanager
async def _async_driver(url: str) -> AsyncIterator[tuple[Any, Execute]]:
    """An async connection of the driver."""
    connection: Any
    if url.startswith("sqlite"):
        connection = await aiosqlite.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        await connection.execute("begin immediate")
    else:
        connection = await psycopg.AsyncConnection.connect(url)

    async def execute(sql: str) -> Any:
        cursor = await connection.execute(sql)
        return await cursor.fetchall() if "select" in sql else None

    try:
        yield connection, execute
        await connection.commit()
    finally:
        await connection.close()


def _sqlalchemy(kind: str) -> Open:
    @asynccontextmanager
    async def open(url: str) -> AsyncIterator[tuple[Any, Execute]]:
        engine = create_engine(make_url(url).set(drivername=_driver_name(url, "sqlite")))
        makers: dict[str, Callable[[], Any]] = {
            "session": lambda: Session(engine),
            "scoped_session": lambda: scoped_session(sessionmaker(engine)),
            "connection": engine.connect,
        }
        tx = makers[kind]()

        async def execute(sql: str) -> Any:
            result = tx.execute(text(sql))
            return result.all() if result.returns_rows else None

        try:
            yield tx, execute
            tx.commit()
        finally:
            tx.close()
            engine.dispose()

    return open


def _async_sqlalchemy(kind: str) -> Open:
    @asynccontextmanager
    async def open(url: str) -> AsyncIterator[tuple[Any, Execute]]:
        name = _driver_name(url, "sqlite+aiosqlite")
        engine = create_async_engine(make_url(url).set(drivername=name))
        tx: Any = AsyncSession(engine) if kind == "session" else await engine.connect()

        async def execute(sql: str) -> Any:
            result = await tx.execute(text(sql))
            return result.all() if result.returns_rows else None

        try:
            yield tx, execute
            await tx.commit()
        finally:
            await tx.close()
            await engine.dispose()

    return open


def _driver_name(url: str, sqlite: str) -> str:
    return sqlite if url.startswith("sqlite") else "postgresql+psycopg"


OPENERS: dict[str, Open] = {
    "driver": _driver,
    "async driver": _async_driver,
    "sqlalchemy session": _sqlalchemy("session"),
    "sqlalchemy scoped_session": _sqlalchemy("scoped_session"),
    "sqlalchemy connection": _sqlalchemy("connection"),
    "async sqlalchemy session": _async_sqlalchemy("session"),
    "async sqlalchemy connection": _async_sqlalchemy("connection"),
}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty database, one of each kind."""
    return str(request.getfixturevalue(f"{request.param}_url"))


async def call(kind: str, tx: Any, name: str, *given: Any) -> Any:
    """Call an operation in the colour of the connection."""
    if kind.startswith("async"):
        return await getattr(TABLE.aio, name)(tx, *given)
    return getattr(TABLE, name)(tx, *given)


async def _make_deliveries(url: str, execute: Execute) -> None:
    """Make the application's table with two rows to lease."""
    moment = "integer" if url.startswith("sqlite") else "timestamptz"
    await execute(f"create table delivery ({COLUMNS} {moment})")
    await execute("insert into delivery (id, status) values (1, 'pending'), (2, 'pending')")


@pytest.mark.parametrize("kind", OPENERS)
async def test_leases_commit_and_roll_back_with_the_application_s_own_rows(
    url: str, kind: str
) -> None:
    async with OPENERS[kind](url) as (_, execute):
        await _make_deliveries(url, execute)
    with suppress(LookupError):
        async with OPENERS[kind](url) as (tx, execute):
            claimed = await call(kind, tx, "claim", "w-1", 2)
            assert [each["id"] for each in claimed.rows] == [1, 2]
            raise LookupError("the application changed its mind")
    async with OPENERS[kind](url) as (tx, execute):
        kept: Claimed = await call(kind, tx, "claim", "w-1", 1)
        await execute("update delivery set status = 'pending' where id = 2")
    async with OPENERS[kind](url) as (tx, execute):
        done = await call(kind, tx, "finish", kept.token, {1: {"status": "sent"}})
        assert done == {1}
        rows = await execute("select id, status, lock_token from delivery order by id")
        assert [tuple(each) for each in rows] == [(1, "sent", None), (2, "pending", None)]


def _as_dict(cursor: Any, row: Any) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.mark.parametrize("kind", ["driver", "async driver"])
async def test_rows_are_leased_whatever_rows_the_connection_makes_of_them(
    url: str, kind: str
) -> None:
    async with OPENERS[kind](url) as (tx, execute):
        await _make_deliveries(url, execute)
        tx.row_factory = _as_dict if url.startswith("sqlite") else dict_row
        claimed = await call(kind, tx, "claim", "w-1", 2)
        assert [(each["id"], each["status"]) for each in claimed.rows] == [
            (1, "pending"),
            (2, "pending"),
        ]
        assert await call(kind, tx, "finish", claimed.token, {1: {"status": "sent"}}) == {1}
        assert await call(kind, tx, "release", claimed.token) == {2}


@pytest.mark.parametrize("connection", [object(), "postgresql://127.0.0.1/shop"])
async def test_what_rows_cannot_be_leased_through_is_refused(connection: Any) -> None:
    with pytest.raises(UnsupportedConnection, match="cannot be leased"):
        TABLE.claim(connection, "w-1")
    with pytest.raises(UnsupportedConnection, match="cannot be leased"):
        await TABLE.aio.claim(connection, "w-1")

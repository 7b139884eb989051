"""Connections that cannot be written through are refused, with the remedy in their library's words."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from typing import Any
from uuid import uuid4

import aiosqlite
import asyncpg
import psycopg
import pytest
from django.db import connections, transaction
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import Holdfast
from holdfast.core.errors import (
    ConnectionClosed,
    DatabaseBusy,
    DatabaseReadOnly,
    InvalidId,
    NoTransaction,
    SchemaTooNew,
    SchemaTooOld,
    TransactionAborted,
    WrongDatabase,
)
from holdfast.storage.operation import Statement, Value
from tests.client.conftest import KINDS
from tests.client.connection_types.alchemy import driver_url
from tests.client.connection_types.django import database_of_django
from tests.client.connection_types.drivers import file_of
from tests.client.connection_types.held import Held, Undo


async def start(app: Holdfast, tx: Any) -> None:
    answer = app.start(tx, "anything")
    if hasattr(answer, "__await__"):
        await answer


def kinds(*, dialect: str | None = None, without: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    chosen = [
        pytest.param(each, each.dialect, id=each.name)
        for each in KINDS
        if dialect in (None, each.dialect) and not each.name.startswith(without)
    ]
    return pytest.mark.parametrize(("kind", "dialect"), chosen)


# A closed session begins anew at its next use, and Django's connection opens itself again.
@kinds(without=("session", "scoped", "async-session", "async-scoped", "django"))
async def test_a_closed_connection_is_refused(app: Holdfast, held: Held) -> None:
    await held.close()
    with pytest.raises(ConnectionClosed, match=r"closed|ended|released"):
        await held.start(app, "anything")


READ_ONLY = {"postgresql": "set transaction read only", "sqlite": "pragma query_only = on"}


@kinds()
async def test_a_transaction_that_may_only_read_is_told_how_to_write(
    app: Holdfast, held: Held, dialect: str
) -> None:
    await held.execute(READ_ONLY[dialect])
    with pytest.raises(DatabaseReadOnly, match=r"HF048.* is read-only") as refusal:
        await held.start(app, "anything")
    assert "server runs" not in str(refusal.value)
    assert {"postgresql": "READ ONLY", "sqlite": "query_only"}[dialect] in str(refusal.value)
    await held.rollback()


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_who_waits_too_long_on_postgresql_is_not_told_to_use_it(app: Holdfast, url: str) -> None:
    with app.transaction() as tx:
        chain = app.start(tx, "anything")
    with psycopg.connect(url) as first, psycopg.connect(url) as second:
        app.chains.cancel(first, chain)
        second.execute("set lock_timeout = '20ms'")
        with pytest.raises(DatabaseBusy, match="HF044") as refusal:
            app.chains.cancel(second, chain)
        first.rollback()
    assert "PostgreSQL" not in str(refusal.value)


def test_an_id_of_another_version_is_refused_with_the_way_to_use_it(app: Holdfast) -> None:
    with app.transaction() as tx:
        mine = uuid4()
        with pytest.raises(InvalidId, match=r"UUIDv7.*app\.new_id\(\).*key=") as refusal:
            app.start(tx, "anything", id=mine)
        assert str(mine) in str(refusal.value)
        first = app.start(tx, "anything", key=str(mine), scope="any")
        assert app.start(tx, "anything", key=str(mine), scope="any").id == first.id
        made = app.new_id()
        assert app.start(tx, "anything", id=made).id == made
        assert app.start(tx, "anything", id=made).deduplicated


@kinds(dialect="postgresql")
async def test_a_transaction_that_has_failed_is_refused(app: Holdfast, held: Held) -> None:
    with suppress(Exception):
        await held.execute("select 1 / 0")
    with pytest.raises(TransactionAborted, match="HF031"):
        await held.start(app, "anything")
    await held.rollback()
    assert len(app.jobs.list()) == 0


@kinds(dialect="postgresql")
async def test_after_a_failed_part_the_savepoint_can_be_undone(app: Holdfast, held: Held) -> None:
    await held.start(app, "before")
    await held.savepoint()
    with suppress(Exception):
        await held.execute("select 1 / 0")
    await held.undo_savepoint()
    await held.start(app, "after")
    await held.commit()
    assert sorted(each.type for each in app.jobs.list()) == ["after", "before"]


@asynccontextmanager
async def autocommitting(name: str, url: str) -> AsyncIterator[Any]:
    """Open a connection on which every statement would be a transaction of its own."""
    library, _, driver = name.partition("-")
    async with AsyncExitStack() as stack:
        if name == "psycopg":
            yield stack.enter_context(closing(psycopg.connect(url, autocommit=True)))
        elif name == "psycopg_async":
            connect = psycopg.AsyncConnection.connect(url, autocommit=True)
            yield await stack.enter_async_context(await connect)
        elif name == "asyncpg":
            connection = await asyncpg.connect(url)
            stack.push_async_callback(connection.close)
            yield connection
        elif name == "sqlite3":
            connection = sqlite3.connect(file_of(url), isolation_level=None)
            yield stack.enter_context(closing(connection))
        elif name == "aiosqlite":
            connect_lite = aiosqlite.connect(file_of(url), isolation_level=None)
            yield await stack.enter_async_context(connect_lite)
        elif library == "django":
            yield connections[stack.enter_context(database_of_django(url))]
        elif library in ("session", "connection"):
            engine = create_engine(driver_url(url, driver), isolation_level="AUTOCOMMIT")
            stack.callback(engine.dispose)
            yield stack.enter_context(Session(engine) if library == "session" else engine.connect())
        else:
            async_engine = create_async_engine(
                driver_url(url, driver), isolation_level="AUTOCOMMIT"
            )
            stack.push_async_callback(async_engine.dispose)
            is_session = library == "asession"
            open_one = AsyncSession(async_engine) if is_session else async_engine.connect()
            yield await stack.enter_async_context(open_one)


@pytest.mark.parametrize(
    ("name", "dialect", "remedy"),
    [
        ("psycopg", "postgresql", "with connection.transaction"),
        ("psycopg_async", "postgresql", "async with connection.transaction"),
        ("asyncpg", "postgresql", "async with connection.transaction"),
        ("sqlite3", "sqlite", "BEGIN IMMEDIATE"),
        ("aiosqlite", "sqlite", "BEGIN IMMEDIATE"),
        ("django-postgresql", "postgresql", "transaction.atomic"),
        ("django-sqlite", "sqlite", "transaction.atomic"),
        ("session-psycopg", "postgresql", "AUTOCOMMIT"),
        ("session-pysqlite", "sqlite", "AUTOCOMMIT"),
        ("connection-psycopg", "postgresql", "AUTOCOMMIT"),
        ("connection-pysqlite", "sqlite", "AUTOCOMMIT"),
        ("asession-psycopg", "postgresql", "AUTOCOMMIT"),
        ("asession-asyncpg", "postgresql", "AUTOCOMMIT"),
        ("asession-aiosqlite", "sqlite", "AUTOCOMMIT"),
        ("aconnection-psycopg", "postgresql", "AUTOCOMMIT"),
        ("aconnection-asyncpg", "postgresql", "AUTOCOMMIT"),
        ("aconnection-aiosqlite", "sqlite", "AUTOCOMMIT"),
    ],
)
async def test_a_connection_without_a_transaction_is_refused_with_the_remedy(
    name: str, url: str, app: Holdfast, remedy: str
) -> None:
    async with autocommitting(name, url) as tx:
        with pytest.raises(NoTransaction) as refusal:
            await start(app, tx)
    assert remedy in refusal.value.help
    assert len(app.jobs.list()) == 0


@pytest.mark.parametrize("dialect", ["postgresql"])
async def test_an_autocommitting_connection_is_fine_inside_a_transaction(
    url: str, app: Holdfast
) -> None:
    with psycopg.connect(url, autocommit=True) as connection, connection.transaction():
        app.start(connection, "kept")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("begin")
        app.start(connection, "kept")
        connection.execute("commit")
    assert len(app.jobs.list()) == 2


@pytest.mark.parametrize("dialect", ["postgresql"])
async def test_a_pipeline_is_fine(url: str, app: Holdfast) -> None:
    with (
        psycopg.connect(url, autocommit=True) as connection,
        connection.pipeline(),
        connection.transaction(),
    ):
        connection.execute("insert into sale values (1)")
        app.start(connection, "kept")
    assert len(app.jobs.list()) == 1


async def test_a_session_that_does_not_begin_by_itself_has_to_be_begun(
    url: str, dialect: str, app: Holdfast
) -> None:
    engine = create_engine(driver_url(url, "psycopg" if dialect == "postgresql" else "pysqlite"))
    with Session(engine, autobegin=False) as session:
        with pytest.raises(NoTransaction, match=r"session\.begin\(\)"):
            app.start(session, "anything")
        with session.begin():
            app.start(session, "kept")
    engine.dispose()
    assert len(app.jobs.list()) == 1


@pytest.mark.parametrize("dialect", ["sqlite"])
async def test_a_block_of_django_that_is_doomed_is_refused(url: str, app: Holdfast) -> None:
    with database_of_django(url) as alias, suppress(RuntimeError), transaction.atomic(using=alias):
        transaction.set_rollback(True, using=alias)
        with pytest.raises(TransactionAborted, match="atomic"):
            app.start(connections[alias], "anything")


async def test_a_connection_to_the_other_database_is_refused(
    app: Holdfast, dialect: str, postgres_url: str, tmp_path: Any
) -> None:
    other: Any = psycopg.connect(postgres_url)
    if dialect == "postgresql":
        other.close()
        other = sqlite3.connect(tmp_path / "other.db")
    with closing(other), pytest.raises(WrongDatabase, match=r"points to \w+, but.*HOLDFAST_URL"):
        app.start(other, "anything")


async def test_a_database_without_the_schema_is_refused_with_what_to_run(
    dialect: str, postgres_url: str, tmp_path: Any
) -> None:
    url = postgres_url if dialect == "postgresql" else f"sqlite:///{tmp_path / 'empty.db'}"
    empty = Holdfast(url, schema="elsewhere", open_types=True)
    with pytest.raises(WrongDatabase, match="holdfast migrate"), empty.transaction() as tx:
        empty.start(tx, "anything")
    empty.close()


async def test_a_schema_that_is_too_old_or_too_new_is_refused(
    app: Holdfast, url: str, dialect: str
) -> None:
    for later, refusal in (([LATER], SchemaTooNew), ([], SchemaTooOld)):
        fresh = Holdfast(url, open_types=True)
        with suppress(Undo), fresh.transaction() as tx:
            tx.execute(FORGET[dialect])
            for migration in later:
                tx.execute(Statement("schema_record", migration))
            with pytest.raises(refusal):
                fresh.start(tx, "anything")
            raise Undo
        fresh.close()


async def test_the_schema_is_looked_at_once(app: Holdfast, dialect: str) -> None:
    with suppress(Undo), app.transaction() as tx:
        app.start(tx, "first")
        tx.execute(FORGET[dialect])
        app.start(tx, "second")
        assert len(app.jobs.list(tx=tx)) == 2
        raise Undo


FORGET = {
    "postgresql": "delete from holdfast.schema_version",
    "sqlite": "delete from holdfast_schema_version",
}
LATER: dict[str, Value] = {"version": 999, "name": "later", "checksum": "", "oldest_code": 999}

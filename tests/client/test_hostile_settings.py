"""Whatever the owner of a connection has set on it, jobs are written and read exactly."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
from psycopg import ClientCursor, IsolationLevel
from psycopg.adapt import Dumper, Loader
from psycopg.rows import dict_row
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from holdfast import Chain, Holdfast
from holdfast.core.errors import KeyConflict, UnsupportedConnection
from tests.client.connection_types.alchemy import driver_url
from tests.client.connection_types.drivers import file_of


class Base(DeclarativeBase): ...


class Sale(Base):
    __tablename__ = "sale"
    n: Mapped[int] = mapped_column(primary_key=True)


PAYLOAD = {"text": "žluťoučký 🐎 'quoted' \"twice\" \\ %s $1 :now", "big": 2**62, "none": None}

Hostile = Callable[[str], AbstractAsyncContextManager[Any]]

SERVER_SETTINGS = [
    "set search_path to nowhere",
    "set datestyle to 'German, DMY'",
    "set intervalstyle to sql_standard",
    "set timezone to 'Asia/Kathmandu'",
    "set extra_float_digits to -15",
    "set bytea_output to escape",
    "set standard_conforming_strings to off",
    "set plan_cache_mode to force_generic_plan",
]


class Shout(Dumper):
    """Writes texts as nobody else would."""

    def dump(self, obj: Any) -> bytes:
        return str(obj).upper().encode()


class Whisper(Loader):
    """Reads everything as nothing."""

    def load(self, data: Any) -> str:
        return "?"


@asynccontextmanager
async def psycopg_hostile(url: str) -> AsyncIterator[Any]:
    factories: dict[str, Any] = {"row_factory": dict_row, "cursor_factory": ClientCursor}
    with closing(psycopg.connect(url, prepare_threshold=0, **factories)) as connection:
        connection.adapters.register_dumper(str, Shout)
        for name in ("text", "int8", "int4", "int2", "bool", "uuid"):
            connection.adapters.register_loader(name, Whisper)
        for setting in SERVER_SETTINGS:
            connection.execute(setting.encode())
        yield connection
        connection.commit()


@asynccontextmanager
async def psycopg_async_hostile(url: str) -> AsyncIterator[Any]:
    rows: Any = dict_row
    async with await psycopg.AsyncConnection.connect(url, row_factory=rows) as connection:
        connection.adapters.register_dumper(str, Shout)
        connection.adapters.register_loader("text", Whisper)
        for setting in SERVER_SETTINGS:
            await connection.execute(setting.encode())
        yield connection


@asynccontextmanager
async def asyncpg_hostile(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    for name in ("text", "json", "int8", "int4", "int2", "bool", "uuid"):
        await connection.set_type_codec(
            name,
            schema="pg_catalog",
            encoder=lambda value: str(value).upper(),
            decoder=lambda value: "?",
        )
    for setting in SERVER_SETTINGS:
        await connection.execute(setting)
    async with connection.transaction():
        yield connection
    await connection.close()


@asynccontextmanager
async def asyncpg_uncached(url: str) -> AsyncIterator[Any]:
    """As behind a pooler that hands each transaction to another server process."""
    connection = await asyncpg.connect(url, statement_cache_size=0)
    async with connection.transaction():
        yield connection
    await connection.close()


def to_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip([each[0] for each in cursor.description], row, strict=True))


class StrangeConnection(sqlite3.Connection):
    """Makes cursors that return nothing."""

    def cursor(self, *_: Any, **__: Any) -> Any:
        return super().cursor(StrangeCursor)


class StrangeCursor(sqlite3.Cursor):
    def fetchall(self) -> list[Any]:
        return []


SQLITE_SETTINGS = [
    "pragma case_sensitive_like = on",
    "pragma recursive_triggers = on",
    "pragma reverse_unordered_selects = on",
    "pragma foreign_keys = on",
]


@asynccontextmanager
async def sqlite3_hostile(url: str) -> AsyncIterator[Any]:
    connection = sqlite3.connect(
        file_of(url),
        detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES,
        factory=StrangeConnection,
        isolation_level="EXCLUSIVE",
    )
    for setting in SQLITE_SETTINGS:
        sqlite3.Cursor(connection).execute(setting)
    connection.row_factory = to_dict
    connection.text_factory = lambda raw: raw[::-1]
    with closing(connection):
        yield connection
        connection.commit()


@asynccontextmanager
async def sqlite3_bytes(url: str) -> AsyncIterator[Any]:
    with closing(sqlite3.connect(file_of(url))) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = bytes
        yield connection
        assert connection.text_factory is bytes
        connection.commit()


@asynccontextmanager
async def aiosqlite_hostile(url: str) -> AsyncIterator[Any]:
    async with aiosqlite.connect(file_of(url)) as connection:
        connection.row_factory = to_dict  # type: ignore[assignment]
        connection.text_factory = bytes
        yield connection
        await connection.commit()


@pytest.fixture
def strange_converters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Converters of the usual types, for connections of sqlite3 that ask for any."""
    for name in ("BOOL", "BOOLEAN", "DATE", "DATETIME", "TIMESTAMP", "JSON", "UUID"):
        monkeypatch.setitem(sqlite3.converters, name, lambda raw: "?")


async def awaited(answer: Any) -> Any:
    return await answer if hasattr(answer, "__await__") else answer


@pytest.mark.usefixtures("strange_converters")
@pytest.mark.parametrize(
    ("open_hostile", "dialect"),
    [
        (psycopg_hostile, "postgresql"),
        (psycopg_async_hostile, "postgresql"),
        (asyncpg_hostile, "postgresql"),
        (asyncpg_uncached, "postgresql"),
        (sqlite3_hostile, "sqlite"),
        (sqlite3_bytes, "sqlite"),
        (aiosqlite_hostile, "sqlite"),
    ],
)
async def test_settings_of_the_connection_do_not_matter(
    url: str, app: Holdfast, open_hostile: Hostile
) -> None:
    async with open_hostile(url) as tx:
        is_sync = isinstance(tx, psycopg.Connection | sqlite3.Connection)
        nouns: Any = app if is_sync else app.aio
        first: Chain = await awaited(app.start(tx, "first", PAYLOAD, key="ž🐎%"))
        again: Chain = await awaited(app.start(tx, "first", PAYLOAD, key="ž🐎%"))
        waiting: Chain = await awaited(app.start(tx, "second", blockers=[first], after="1h"))
        (event,) = await awaited(app.publish(tx, "placed", PAYLOAD))
        read = await awaited(nouns.jobs.get(first, tx=tx))
        listed = await awaited(nouns.chains.list("state:blocked type:sec*", tx=tx))
    assert (again.id, again.deduplicated) == (first.id, True)
    assert (read.input, read.key, read.state) == (PAYLOAD, "ž🐎%", "pending")
    assert [each.id for each in listed] == [waiting.id]
    assert app.chains.get(first).input == PAYLOAD
    assert app.jobs.get(waiting).planned_at > read.created_at
    assert app.jobs.get(event).input == PAYLOAD


@pytest.mark.parametrize("dialect", ["postgresql"])
@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
async def test_a_stricter_isolation_is_fine_and_its_conflict_can_be_repeated(
    url: str, app: Holdfast, level: IsolationLevel
) -> None:
    with psycopg.connect(url) as connection:
        connection.isolation_level = level
        connection.execute("select count(*) from sale")
        with app.transaction() as tx:
            winner = app.start(tx, "contested", key="k")
        with pytest.raises(KeyConflict) as conflict:
            app.start(connection, "contested", key="k")
        assert conflict.value.retryable
        connection.rollback()
        assert app.start(connection, "contested", key="k").id == winner.id


@pytest.mark.parametrize("dialect", ["postgresql"])
async def test_a_client_encoding_that_cannot_say_everything_is_refused(
    url: str, app: Holdfast
) -> None:
    with (
        psycopg.connect(url, client_encoding="latin1") as connection,
        pytest.raises(UnsupportedConnection, match="client_encoding=utf8"),
    ):
        app.start(connection, "anything")


async def test_nothing_of_a_session_is_flushed_or_expired(
    url: str, dialect: str, app: Holdfast
) -> None:
    engine = create_engine(driver_url(url, "psycopg" if dialect == "postgresql" else "pysqlite"))
    with Session(engine) as session:
        session.add(Sale(n=1))
        session.flush()
        kept = session.get_one(Sale, 1)
        session.add(Sale(n=2))
        app.start(session, "beside")
        assert [each.n for each in session.new] == [2]
        assert "n" in vars(kept)
        session.commit()
    engine.dispose()

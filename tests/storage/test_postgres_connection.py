"""Connections of ours are what they have to be, whatever the server or the environment would make of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import tuple_row

from holdfast import Holdfast
from holdfast.core.errors import ConfigError, DatabaseReadOnly, DatabaseUnreachable
from holdfast.notify.local import NullNotifier
from holdfast.storage.postgres.connection import OwnAsyncCursor, OwnCursor
from holdfast.storage.postgres.database import PostgresDatabase

WORDS = "žluťoučký 日本 🐎"


@pytest.mark.parametrize("place", ["database", "environment"])
def test_texts_of_any_language_are_kept_where_the_encoding_is_another_by_default(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    if place == "environment":
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    else:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            name = sql.Identifier(urlsplit(postgres_url).path.strip("/"))
            connection.execute(
                sql.SQL("alter database {} set client_encoding to latin1").format(name)
            )
    app = Holdfast(postgres_url, notifier=NullNotifier(), open_types=True)
    with app.transaction() as tx:
        chain = app.start(tx, "say", WORDS)
    assert app.jobs.get(chain.id).input == WORDS
    app.close()
    if place == "database":
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(sql.SQL("alter database {} reset all").format(name))


@pytest.mark.parametrize("step", ["migrate", "check"])
def test_a_server_that_is_too_old_is_refused_in_words(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "server_version", 130_014)
    with pytest.raises(ConfigError, match="the server is PostgreSQL 13; 14 or newer") as refusal:
        getattr(PostgresDatabase(postgres_url), step)()
    assert "14 to 18 are supported" in refusal.value.help


async def test_a_cursor_of_ours_begins_with_all_that_psycopgs_own_begins_with(
    postgres_url: str,
) -> None:
    with psycopg.connect(postgres_url) as connection:
        theirs = psycopg.RawCursor(connection, row_factory=tuple_row)
        assert _values(OwnCursor(connection)) == _values(theirs)
    async with await psycopg.AsyncConnection.connect(postgres_url) as aio:
        aio_theirs = psycopg.AsyncRawCursor(aio, row_factory=tuple_row)
        assert _values(OwnAsyncCursor(aio)) == _values(aio_theirs)


def _values(cursor: Any) -> dict[str, Any]:
    """Every attribute that a cursor has, but for the adapters, which are why ours differ."""
    slots = {name for each in type(cursor).__mro__ for name in getattr(each, "__slots__", ())}
    own = {"_adapters", "__weakref__"}
    return {
        name: getattr(cursor, name)
        for name in (slots | set(getattr(cursor, "__dict__", ()))) - own
        if hasattr(cursor, name)
    }


@contextmanager
def setting(url: str, text: str) -> Iterator[None]:
    """Give the database a setting of its own."""
    name = sql.Identifier(urlsplit(url).path.strip("/"))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("alter database {} set {}").format(name, sql.SQL(text)))
        yield
        connection.execute("set default_transaction_read_only = off")
        connection.execute(sql.SQL("alter database {} reset all").format(name))


@pytest.mark.parametrize(
    ("text", "ours"), [("idle_session_timeout = '1s'", "0"), ("array_nulls = off", "on")]
)
def test_settings_of_the_database_that_would_stop_a_worker_are_not_those_of_our_sessions(
    postgres_url: str, text: str, ours: str
) -> None:
    with setting(postgres_url, text):
        database = PostgresDatabase(postgres_url)
        with database.transaction() as tx:
            assert tx.execute("select current_setting(%s)", [text.split()[0]]).fetchone() == (ours,)
        database.close()


def test_options_of_the_environment_count_beside_our_own(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c search_path=shop -c jit=on")
    database = PostgresDatabase(postgres_url)
    with database.transaction() as tx:
        found = tx.execute("select current_setting('search_path'), current_setting('jit')")
        assert found.fetchone() == ("shop", "off")
    database.close()


@pytest.mark.parametrize("step", ["migrate", "check"])
def test_a_database_that_cannot_hold_every_text_is_refused(postgres_url: str, step: str) -> None:
    name = sql.Identifier(f"latin_{uuid4().hex}")
    make = "create database {} template template0 encoding 'LATIN1' lc_collate 'C' lc_ctype 'C'"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL(make).format(name))
        url = urlsplit(postgres_url)._replace(path=f"/{name.as_string(None)[1:-1]}").geturl()
        try:
            with pytest.raises(ConfigError, match="encoding is LATIN1; UTF8 is needed") as refusal:
                getattr(PostgresDatabase(url), step)()
            assert "create database" in refusal.value.help
        finally:
            connection.execute(sql.SQL("drop database {} with (force)").format(name))


def test_a_database_that_lets_nobody_write_is_said_to_by_migrate(postgres_url: str) -> None:
    with setting(postgres_url, "default_transaction_read_only = on"):
        with pytest.raises(DatabaseReadOnly) as refusal:
            PostgresDatabase(postgres_url, "another").migrate()
        assert "default_transaction_read_only" in refusal.value.help


async def test_what_a_callers_own_statement_lacks_is_not_taken_for_our_schema(
    postgres_url: str,
) -> None:
    database = PostgresDatabase(postgres_url)
    with pytest.raises(psycopg.errors.UndefinedTable), database.transaction() as tx:
        tx.execute("select * from orders")
    with pytest.raises(psycopg.errors.UndefinedFunction):
        async with database.transaction_async() as aio:
            await aio.execute("select total(1)")
    await database.close_async()


def test_a_server_without_room_is_to_be_given_some(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url)
    full = "do $$ begin raise 'no space left' using errcode = 'disk_full'; end $$"
    with (
        pytest.raises(DatabaseUnreachable, match="no space") as refusal,
        database.transaction() as tx,
    ):
        tx.execute(full)
    assert "make room there" in refusal.value.help
    database.close()

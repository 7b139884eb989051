"""Connections of ours are what they have to be, whatever the server or the environment would make of them."""

from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import tuple_row

from holdfast import Holdfast
from holdfast.core.errors import ConfigError
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
        assert _values(OwnCursor(connection)) == _values(connection.cursor(row_factory=tuple_row))
    async with await psycopg.AsyncConnection.connect(postgres_url) as aio:
        assert _values(OwnAsyncCursor(aio)) == _values(aio.cursor(row_factory=tuple_row))


def _values(cursor: Any) -> dict[str, Any]:
    """Every attribute that a cursor has, but for the adapters, which are why ours differ."""
    slots = {name for each in type(cursor).__mro__ for name in getattr(each, "__slots__", ())}
    own = {"_adapters", "__weakref__"}
    return {
        name: getattr(cursor, name)
        for name in (slots | set(getattr(cursor, "__dict__", ()))) - own
        if hasattr(cursor, name)
    }

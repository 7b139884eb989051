"""Connections of ours are what they have to be, whatever the server or the environment would make of them."""

from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from holdfast import Holdfast
from holdfast.notify.silent import SilentNotifier

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
    app = Holdfast(postgres_url, notifier=SilentNotifier(), open_types=True)
    with app.transaction() as tx:
        chain = app.start(tx, "say", WORDS)
    assert app.jobs.get(chain.id).input == WORDS
    app.close()
    if place == "database":
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(sql.SQL("alter database {} reset all").format(name))

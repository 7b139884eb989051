"""Database URLs: the forms that are understood, and refusals that name them without telling secrets."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from holdfast.contrib.sqlalchemy_url import open_async_engine, sqlalchemy_url
from holdfast.core.errors import UnusableUrl
from holdfast.notify.factory import open_notifier
from holdfast.storage.url import Address, parse_url, without_driver


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///holdfast.db", "holdfast.db"),
        ("sqlite:///data/my jobs.db", "data/my jobs.db"),
        ("sqlite:////var/lib/holdfast.db", "/var/lib/holdfast.db"),
        ("sqlite:///:memory:", ":memory:"),
        ("sqlite+aiosqlite:///holdfast.db", "holdfast.db"),
        ("SQLite:///holdfast.db", "holdfast.db"),
    ],
)
def test_a_sqlite_url_names_a_file_after_three_slashes(url: str, path: str) -> None:
    assert parse_url(url) == Address("sqlite", f"sqlite:///{path}", path)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ana:secret@host:5433/shop",
        "postgres://ana:secret@host:5433/shop",
        "postgresql+psycopg://ana:secret@host:5433/shop",
        "postgresql+asyncpg://ana:secret@host:5433/shop",
    ],
)
def test_a_postgresql_url_is_taken_whatever_driver_it_names(url: str) -> None:
    address = parse_url(url)
    assert address == Address("postgresql", "postgresql://ana:secret@host:5433/shop")


@pytest.mark.parametrize(
    "url",
    ["postgresql:///shop?host=/run/postgresql", "postgresql://?service=shop", "postgresql://h/d"],
)
def test_a_postgresql_url_may_leave_out_what_the_server_s_library_knows(url: str) -> None:
    assert parse_url(url).url == url


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "no scheme"),
        ("holdfast.db", "no scheme"),
        ("mysql://root:secret@host/shop", "mysql is not a database"),
        ("postgresql+pg8000://root:secret@host/shop", "pg8000 is not a postgresql driver"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite://holdfast.db", "names no file"),
        ("sqlite:///holdfast.db?mode=ro", "has parameters"),
        ("postgresql://ana:secret@host", "names no database"),
        ("postgresql://ana:secret@[host/shop", "cannot be read"),
    ],
)
def test_anything_else_is_refused_with_the_forms_and_without_the_password(
    url: str, reason: str
) -> None:
    with pytest.raises(UnusableUrl, match=reason) as refusal:
        parse_url(url)
    shown = refusal.value.render()
    assert "sqlite:///relative.db" in shown
    assert "secret" not in shown


@pytest.mark.parametrize(
    ("url", "sync", "asynchronous"),
    [
        ("sqlite:///a.db", "sqlite:///a.db", "sqlite+aiosqlite:///a.db"),
        ("sqlite+aiosqlite:////b/a.db", "sqlite:////b/a.db", "sqlite+aiosqlite:////b/a.db"),
        *(
            (f"{scheme}://ana:s@h/d?x=1", *["postgresql+psycopg://ana:s@h/d?x=1"] * 2)
            for scheme in ("postgresql", "postgres", "postgresql+asyncpg")
        ),
    ],
)
def test_sqlalchemy_gets_the_same_database_with_a_driver(
    url: str, sync: str, asynchronous: str
) -> None:
    assert sqlalchemy_url(url) == sync
    assert sqlalchemy_url(url, is_async=True) == asynchronous
    assert parse_url(sqlalchemy_url(url)) == parse_url(url)


def test_only_the_driver_of_a_database_is_left_out() -> None:
    assert without_driver("postgresql+psycopg://h/d") == "postgresql://h/d"
    assert without_driver("redis+x://h") == "redis+x://h"
    assert without_driver("stock") == "stock"
    with pytest.raises(UnusableUrl, match="pg8000"):
        without_driver("postgresql+pg8000://h/d")


def test_a_notifier_takes_the_url_of_sqlalchemy_too(postgres_url: str) -> None:
    url = sqlalchemy_url(postgres_url)
    notifier = open_notifier(url, database_url=url, listen_url=url)
    notifier.close()


@pytest.mark.parametrize("kind", ["sqlite_url", "postgres_url"])
async def test_sessions_that_read_before_they_write_wait_for_each_other(
    kind: str, request: pytest.FixtureRequest
) -> None:
    engine = open_async_engine(request.getfixturevalue(kind))
    async with engine.begin() as connection:
        await connection.execute(text("create table counter (n integer primary key)"))
        await connection.execute(text("create table note (n integer references counter)"))
        await connection.execute(text("insert into counter values (0)"))

    async def add() -> None:
        async with engine.begin() as connection:
            await connection.execute(text("select n from counter"))
            await connection.execute(text("update counter set n = n + 1"))

    await asyncio.gather(*(add() for _ in range(4)))
    async with engine.connect() as connection:
        assert await connection.scalar(text("select n from counter")) == 4
        with pytest.raises(IntegrityError):
            await connection.execute(text("insert into note values (9)"))
    await engine.dispose()

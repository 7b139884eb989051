"""Database URLs: the forms that are understood, and refusals that name them without telling secrets."""

from __future__ import annotations

import pytest

from holdfast.client.url import Address, parse_url
from holdfast.core.errors import UnusableUrl


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
        ("postgresql+pg8000://root:secret@host/shop", "pg8000 is not a driver"),
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

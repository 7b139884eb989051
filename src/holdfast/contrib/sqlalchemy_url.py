"""The URL with which SQLAlchemy and Alembic open the database that Holdfast uses."""

from __future__ import annotations

from holdfast.storage.url import parse_url


def sqlalchemy_url(url: str, *, is_async: bool = False) -> str:
    """Return the URL of the same database with SQLAlchemy's name of a driver that Holdfast works with.

    PostgreSQL is opened with psycopg, which serves sync and async engines; SQLite with aiosqlite for an async one.

    Raises: UnusableUrl.
    """
    address = parse_url(url)
    rest = address.url.partition("://")[2]
    if address.dialect == "postgresql":
        return f"postgresql+psycopg://{rest}"
    return f"sqlite+aiosqlite://{rest}" if is_async else f"sqlite://{rest}"

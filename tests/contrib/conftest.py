"""Databases of both kinds, and their addresses as SQLAlchemy writes them."""

from __future__ import annotations

import pytest

DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}
ASYNC_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}


@pytest.fixture(params=["sqlite_url", "postgres_url"], ids=["sqlite", "postgres"])
def any_url(request: pytest.FixtureRequest) -> str:
    """The address of each store in turn."""
    found: str = request.getfixturevalue(request.param)
    return found


def alchemy_url(url: str, drivers: dict[str, str] = DRIVERS) -> str:
    """A database's address for SQLAlchemy."""
    scheme, _, rest = url.partition("://")
    return f"{drivers[scheme]}://{rest}"

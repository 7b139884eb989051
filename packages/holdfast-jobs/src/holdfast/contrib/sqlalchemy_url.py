"""How SQLAlchemy and Alembic open the database that Holdfast uses: its URL, and an engine that suits both stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.storage.url import parse_url

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine


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


def open_async_engine(url: str, **options: Any) -> AsyncEngine:
    """Open the database at one of Holdfast's URLs; options go to `create_async_engine`.

    On SQLite a transaction takes the write lock when it begins, waiting up to 30 s, and foreign keys are checked.

    Raises: UnusableUrl.
    """
    from sqlalchemy.ext.asyncio import create_async_engine

    options.setdefault("pool_pre_ping", True)
    engine = create_async_engine(sqlalchemy_url(url, is_async=True), **options)
    if engine.dialect.name == "sqlite":
        _begin_immediately(engine.sync_engine)
    return engine


def _begin_immediately(engine: Engine) -> None:
    """Take SQLite's write lock at the start: a transaction that reads first might not get it afterwards."""
    from sqlalchemy import event

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: object) -> None:
        connection.isolation_level = None  # the driver would begin by itself, too late
        cursor = connection.cursor()
        # The driver's five seconds are short where several processes share a busy machine.
        cursor.execute("pragma busy_timeout = 30000")
        cursor.execute("pragma foreign_keys = on")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("begin immediate")

"""The application's own access to its database: SQLAlchemy sessions on the database Holdfast uses."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)

from holdfast.contrib.sqlalchemy_url import sqlalchemy_url
from tenders.models import Base
from tenders.settings import read_settings


def open_engine(url: str) -> AsyncEngine:
    """Open the database at one of Holdfast's URLs."""
    engine = create_async_engine(sqlalchemy_url(url, is_async=True), pool_pre_ping=True)
    if engine.dialect.name == "sqlite":
        _begin_immediately(engine.sync_engine)
    return engine


def _begin_immediately(engine: Engine) -> None:
    """Take SQLite's write lock at the start: a transaction that reads first might not get it afterwards."""

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: object) -> None:
        connection.isolation_level = None  # the driver would begin by itself, too late
        cursor = connection.cursor()
        cursor.execute("pragma foreign_keys = on")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("begin immediate")


Session = async_sessionmaker(open_engine(read_settings().database_url), expire_on_commit=False)
"""Makes sessions; `Session.begin()` is one transaction."""


def insert_into(session: AsyncSession, model: type[Base]) -> postgresql.Insert | sqlite.Insert:
    """Return an insert with `on_conflict_…`, which SQLAlchemy keeps per database."""
    if session.get_bind().dialect.name == "postgresql":
        return postgresql.insert(model)
    return sqlite.insert(model)


def migrate_tables(url: str) -> None:
    """Bring the application's own tables up to date."""
    # Only here: it costs the start of each process a quarter of a second.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "tenders:migrations")
    config.attributes["url"] = url
    command.upgrade(config, "head")

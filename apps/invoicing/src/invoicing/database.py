"""The application's own access to its database: SQLAlchemy sessions on the database Holdfast uses."""

from __future__ import annotations

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from holdfast.contrib.sqlalchemy_url import open_async_engine
from invoicing.models import Base
from invoicing.settings import read_settings

Session = async_sessionmaker(
    open_async_engine(read_settings().database_url), expire_on_commit=False
)
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
    config.set_main_option("script_location", "invoicing:migrations")
    config.attributes["url"] = url
    command.upgrade(config, "head")

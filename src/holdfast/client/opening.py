"""Opens the database of an address; its driver is imported only then."""

from __future__ import annotations

from holdfast.client.url import Address
from holdfast.core.errors import MissingExtra
from holdfast.storage.database import Database


def open_database(address: Address, schema: str) -> Database:
    """Return a database that connects at its first use. Raises: MissingExtra."""
    if address.dialect == "sqlite":
        from holdfast.storage.sqlite.database import SqliteDatabase

        return SqliteDatabase(address.path)
    try:
        from holdfast.storage.postgres.database import PostgresDatabase
    except ImportError as error:
        raise MissingExtra(
            f"PostgreSQL needs the package {error.name}", help='pip install "holdfast[postgres]"'
        ) from error
    return PostgresDatabase(address.url, schema)

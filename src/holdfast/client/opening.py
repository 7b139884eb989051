"""Opens the database of an address; its driver is imported only then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.client.url import Address
from holdfast.core.errors import MissingExtra
from holdfast.storage.database import Database


@dataclass(frozen=True, slots=True)
class Pooling:
    """How connections are kept: how many at most, whether statements are prepared, and how SQLite commits."""

    connections: int = 10
    prepare: bool = True
    synchronous: Literal["FULL", "NORMAL"] = "FULL"


def open_database(address: Address, schema: str, pooling: Pooling) -> Database:
    """Return a database that connects at its first use. Raises: MissingExtra."""
    if address.dialect == "sqlite":
        from holdfast.storage.sqlite.database import SqliteDatabase

        return SqliteDatabase(address.path, pooling.synchronous)
    try:
        from holdfast.storage.postgres.database import PostgresDatabase
    except ImportError as error:
        raise MissingExtra(
            f"PostgreSQL needs the package {error.name}",
            help='pip install "holdfast-jobs[postgres]"',
        ) from error
    return PostgresDatabase(address.url, schema, pooling.connections, pooling.prepare)

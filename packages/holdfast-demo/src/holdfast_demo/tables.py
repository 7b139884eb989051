"""The shop's own tables, in the same database as its jobs, and its own connection to them.

Statements are written with psycopg's parameters and converted for SQLite.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.storage.operation import SyncExecutor
from holdfast.storage.sql_loader import load_statements
from holdfast.storage.url import parse_url

if TYPE_CHECKING:
    import psycopg

Connection: TypeAlias = "sqlite3.Connection | psycopg.Connection[Any]"

SCHEMA = "holdfast_demo"
"""The queue's schema on PostgreSQL, apart from everything else in the database."""

_SQL = load_statements("holdfast_demo")

_PARAMETER = re.compile(r"%\((\w+)\)s")


def statement(name: str, dialect: str) -> str:
    """Return one of the shop's statements with the parameter style of a dialect's driver."""
    return _PARAMETER.sub(r":\1", _SQL[name]) if dialect == "sqlite" else _SQL[name]


@contextmanager
def connect(url: str) -> Iterator[Connection]:
    """Open the shop's own connection, as any application does; outside of `transaction` it autocommits.

    Raises: DatabaseUnreachable, WrongDatabase.
    """
    address = parse_url(url)
    if address.dialect == "sqlite":
        with closing(_file(address.path)) as file:
            yield file
        return
    import psycopg

    from holdfast.storage.postgres.connection import unreachable

    try:
        connection = psycopg.connect(address.url, autocommit=True)
    except psycopg.OperationalError as error:
        raise unreachable(address.url, error) from error
    with connection:
        yield connection


def _file(path: str) -> sqlite3.Connection:
    from holdfast.storage.sqlite.connection import translate

    try:
        file = sqlite3.connect(path, timeout=30, isolation_level=None)
        try:
            file.execute("pragma journal_mode = wal")
        except sqlite3.Error:
            file.close()
            raise
    except sqlite3.Error as error:
        raise translate(error) or error from None
    return file


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """Run the block in one transaction."""
    if not isinstance(connection, sqlite3.Connection):
        with connection.transaction():
            yield
        return
    connection.execute("begin immediate")
    try:
        yield
    except BaseException:
        connection.execute("rollback")
        raise
    connection.execute("commit")


@contextmanager
def snapshot(connection: Connection) -> Iterator[SyncExecutor]:
    """Read everything in the block from one snapshot; yields an executor for the queue's own tables."""
    if isinstance(connection, sqlite3.Connection):
        from holdfast.storage.sqlite.transaction import SqliteExecutor

        connection.execute("begin")
        try:
            yield SqliteExecutor(connection)
        finally:
            connection.execute("rollback")
        return
    from psycopg import IsolationLevel

    from holdfast.storage.postgres.connection import PsycopgExecutor

    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    with connection.transaction():
        yield PsycopgExecutor(connection, SCHEMA)


def execute(connection: Connection, name: str, **values: Any) -> tuple[Any, ...] | None:
    """Run one of the shop's statements and return its first row."""
    if isinstance(connection, sqlite3.Connection):
        found = connection.execute(statement(name, "sqlite"), values)
        row: tuple[Any, ...] | None = found.fetchone()
        return row
    cursor = connection.execute(statement(name, "postgresql").encode(), values)
    return cursor.fetchone() if cursor.description else None


def open_shop(connection: Connection) -> None:
    """Create missing tables; the gateway works."""
    with transaction(connection):
        _execute_all(connection, "create_")


def close_shop(url: str) -> None:
    """Drop the shop's tables and its queue from a PostgreSQL database."""
    with connect(url) as connection, transaction(connection):
        _execute_all(connection, "drop_")


def _execute_all(connection: Connection, prefix: str) -> None:
    for name in _SQL:
        if name.startswith(prefix):
            execute(connection, name)

"""Runs named statements on psycopg connections, ours and the users', through cursors of our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.adapt import AdaptersMap
from psycopg.rows import tuple_row

from holdfast.storage.postgres.errors import translate
from holdfast.storage.postgres.store import postgres_statements
from holdfast.storage.statement import Row, Statement, Value


def as_text(params: Mapping[str, Value]) -> dict[str, str | None]:
    """Give every parameter as text; the statement casts it."""
    return {name: _text(value) for name, value in params.items()}


def _text(value: Value) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class OwnCursor(Cursor[Row]):
    """A cursor with psycopg's own adapters, whatever the connection's owner has registered."""

    def __init__(self, connection: Connection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)
        self._adapters = AdaptersMap(psycopg.adapters)


class OwnAsyncCursor(AsyncCursor[Row]):
    """The same in the other colour."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)
        self._adapters = AdaptersMap(psycopg.adapters)


class PsycopgExecutor:
    """Runs statements on a sync psycopg connection."""

    def __init__(self, connection: Connection[Any], schema: str) -> None:
        self.connection = connection
        self._statements = postgres_statements("pyformat", schema)

    def execute(self, statement: Statement) -> list[Row]:
        """Run one statement. Raises: the errors of `storage.postgres.errors`."""
        text = self._statements[statement.name].text
        try:
            with OwnCursor(self.connection) as cursor:
                cursor.execute(text.encode(), as_text(statement.params))
                return cursor.fetchall() if cursor.description else []
        except (psycopg.Error, OSError) as error:
            raise _translated(error, statement.name) from error


class PsycopgAsyncExecutor:
    """Runs statements on an async psycopg connection."""

    def __init__(self, connection: AsyncConnection[Any], schema: str) -> None:
        self.connection = connection
        self._statements = postgres_statements("pyformat", schema)

    async def execute(self, statement: Statement) -> list[Row]:
        """Run one statement. Raises: the errors of `storage.postgres.errors`."""
        text = self._statements[statement.name].text
        try:
            async with OwnAsyncCursor(self.connection) as cursor:
                await cursor.execute(text.encode(), as_text(statement.params))
                return await cursor.fetchall() if cursor.description else []
        except (psycopg.Error, OSError) as error:
            raise _translated(error, statement.name) from error


def _translated(error: Exception, statement: str) -> Exception:
    return translate(error, statement) or error

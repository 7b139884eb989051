"""Runs named statements on psycopg connections, ours and the users', through cursors of our own."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.adapt import AdaptersMap
from psycopg.rows import tuple_row
from psycopg.types.bool import BoolLoader
from psycopg.types.none import NoneDumper
from psycopg.types.numeric import IntLoader
from psycopg.types.string import StrDumper, TextLoader

from holdfast.storage.operation import Row, Statement
from holdfast.storage.postgres.errors import translate
from holdfast.storage.postgres.store import as_text, postgres_statements

_ANY_OTHER = 0


def _own_adapters() -> AdaptersMap:
    """Know exactly the types our statements exchange, whatever was registered on psycopg itself."""
    adapters = AdaptersMap(types=psycopg.adapters.types)
    adapters.register_dumper(str, StrDumper)
    adapters.register_dumper(type(None), NoneDumper)
    adapters.register_loader(_ANY_OTHER, TextLoader)
    adapters.register_loader("text", TextLoader)
    adapters.register_loader("bool", BoolLoader)
    for integer in ("int2", "int4", "int8"):
        adapters.register_loader(integer, IntLoader)
    return adapters


_ADAPTERS = _own_adapters()


class OwnCursor(Cursor[Row]):
    """A cursor with adapters of our own, whatever the connection's owner has registered."""

    def __init__(self, connection: Connection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)
        self._adapters = _ADAPTERS

    def rows(self) -> list[Row]:
        """Return what the statement returned, if anything."""
        # In a caller's pipeline nothing is known of a result before it is waited for.
        self._fetch_pipeline()
        return self.fetchall() if self.pgresult and self.pgresult.nfields else []


class OwnAsyncCursor(AsyncCursor[Row]):
    """Async version of `OwnCursor`."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)
        self._adapters = _ADAPTERS

    async def rows(self) -> list[Row]:
        """Async version of `rows`."""
        await self._fetch_pipeline()
        return await self.fetchall() if self.pgresult and self.pgresult.nfields else []


class PsycopgExecutor:
    """Runs statements on a sync psycopg connection."""

    def __init__(self, connection: Connection[Any], schema: str) -> None:
        self.connection = connection
        self._statements = postgres_statements("pyformat", schema)

    def execute(self, statement: Statement) -> list[Row]:
        """Run one statement. Raises: the errors of `storage.postgres.errors`."""
        text = self._statements[statement.name].data
        try:
            cursor = OwnCursor(self.connection)
            cursor.execute(text, as_text(statement.params))
            return cursor.rows()
        except (psycopg.Error, OSError) as error:
            raise _translated(error, statement.name) from error


class PsycopgAsyncExecutor:
    """Runs statements on an async psycopg connection."""

    def __init__(self, connection: AsyncConnection[Any], schema: str) -> None:
        self.connection = connection
        self._statements = postgres_statements("pyformat", schema)

    async def execute(self, statement: Statement) -> list[Row]:
        """Run one statement. Raises: the errors of `storage.postgres.errors`."""
        text = self._statements[statement.name].data
        try:
            cursor = OwnAsyncCursor(self.connection)
            await cursor.execute(text, as_text(statement.params))
            return await cursor.rows()
        except (psycopg.Error, OSError) as error:
            raise _translated(error, statement.name) from error


def _translated(error: Exception, statement: str) -> Exception:
    return translate(error, statement) or error

"""sqlite3 and aiosqlite, which is sqlite3 in a thread of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast.client.adapters.base import Access, AsyncAdapter, Need, SyncAdapter
from holdfast.core.errors import ConnectionClosed, NoTransaction
from holdfast.storage.operation import AsyncExecutor, Row, Statement, SyncExecutor
from holdfast.storage.sqlite.connection import translate
from holdfast.storage.sqlite.transaction import SqliteExecutor

if TYPE_CHECKING:
    import aiosqlite

T = TypeVar("T")

_FIX = 'run "BEGIN IMMEDIATE" first, or connect without isolation_level=None and autocommit=True'


class SqliteAdapter(SyncAdapter):
    """A connection; in Python's own transaction modes the transaction is begun for the caller."""

    def __init__(self, connection: sqlite3.Connection, fix: str = _FIX) -> None:
        self._connection = connection
        self._fix = fix

    def open(self, need: Need) -> Access[SyncExecutor]:
        need.check_dialect("sqlite")
        try:
            if need.writes and not self._connection.in_transaction:
                self._begin()
        except sqlite3.Error as error:
            ours = translate(error)
            if ours is None:
                raise
            raise ours from error
        return Access(SqliteExecutor(self._connection))

    def _begin(self) -> None:
        """Begin as the driver would at its next INSERT, but with the write lock taken at once.

        A transaction that begins by reading may find the file changed when it comes to write.
        """
        # From Python 3.12 on `autocommit` may be True; before, and by default, it has no effect.
        autocommits = getattr(self._connection, "autocommit", None) is True
        if self._connection.isolation_level is None or autocommits:
            raise NoTransaction("the sqlite3 connection has no open transaction", help=self._fix)
        sqlite3.Cursor(self._connection).execute("begin immediate")


class AiosqliteAdapter(AsyncAdapter):
    """Async version of `SqliteAdapter`."""

    def __init__(self, connection: aiosqlite.Connection, fix: str = _FIX) -> None:
        self._connection = connection
        self._fix = fix

    async def open(self, need: Need) -> Access[AsyncExecutor]:
        run = _ThreadOf(self._connection)
        adapter = SqliteAdapter(run.connection, self._fix)
        access = await run(lambda: adapter.open(need))
        return Access(_AiosqliteExecutor(access.executor, run))


class _ThreadOf:
    """Runs functions in the thread of an aiosqlite connection, as its own methods do.

    There is no public way, and without one the connection's factories could not be kept out.
    """

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._owner = connection
        try:
            self.connection: sqlite3.Connection = connection._conn
        except ValueError as error:
            raise ConnectionClosed("the aiosqlite connection is closed") from error

    async def __call__(self, function: Callable[[], T]) -> T:
        try:
            result: T = await self._owner._execute(function)  # type: ignore[no-untyped-call]
        except ValueError as error:
            raise ConnectionClosed("the aiosqlite connection was closed") from error
        return result


class _AiosqliteExecutor:
    def __init__(self, executor: SyncExecutor, run: _ThreadOf) -> None:
        self._executor = executor
        self._run = run

    async def execute(self, statement: Statement) -> list[Row]:
        return await self._run(lambda: self._executor.execute(statement))

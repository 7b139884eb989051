"""Transactions, sync and async. They take the write lock at their first statement, not before.

Async transactions have a thread each: a statement that waits for the lock holds up neither the loop nor a neighbour.
"""

from __future__ import annotations

import asyncio
import contextvars
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar, overload
from weakref import WeakSet

from holdfast.core.errors import ConnectionClosed
from holdfast.storage.after_commit import Action, Hooks, Witness
from holdfast.storage.database import Parameters, ended_by_caller
from holdfast.storage.operation import Op, Row, Statement, run
from holdfast.storage.sqlite.connection import (
    LockWait,
    SqliteCallerCursor,
    SqliteConnection,
    begin,
    translate,
)
from holdfast.storage.sqlite.pool import ConnectionSource
from holdfast.storage.sqlite.store import sqlite_statements
from holdfast.storage.store import Store

T = TypeVar("T")
_KEEP = 4

# Whatever ends the transaction takes the savepoint with it; one of this name is nobody else's.
_OPEN_MARK = 'savepoint "holdfast: the transaction of this block"'
_CLOSE_MARK = 'release "holdfast: the transaction of this block"'


class SqliteExecutor:
    """Runs statements on one connection, whatever row and text factories its owner has set."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._statements = sqlite_statements()

    def execute(self, statement: Statement) -> list[Row]:
        """Run one statement. Raises: the errors of `storage.sqlite.connection`."""
        connection = self.connection
        theirs = connection.text_factory
        try:
            connection.text_factory = str
            cursor = sqlite3.Cursor(connection)
            cursor.row_factory = None
            return cursor.execute(self._statements[statement.name], statement.params).fetchall()
        except sqlite3.Error as error:
            raise translate(error, statement.name) or error from error
        finally:
            connection.text_factory = theirs


class SqliteTransaction:
    """A transaction that begins when it is first used; `connection` is for whatever `execute` does not cover."""

    dialect: ClassVar[Literal["sqlite"]] = "sqlite"

    def __init__(self, source: ConnectionSource, wait_s: float, store: Store) -> None:
        self.hooks = Hooks()
        self._source = source
        self._wait_s = wait_s
        self._store = store
        self._patience: LockWait | None = None
        self._executor: SqliteExecutor | None = None
        self._lent: SqliteConnection | None = None
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()
        self._is_used = False
        self._is_taken = False
        self._ended = False

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection for the caller's own statements; asking for it begins the transaction."""
        return self._take()

    @overload
    def execute(self, statement: Statement) -> list[Row]: ...
    @overload
    def execute(self, statement: str, params: Parameters = ()) -> sqlite3.Cursor: ...
    def execute(
        self, statement: Statement | str, params: Parameters = ()
    ) -> list[Row] | sqlite3.Cursor:
        """Run a statement of ours, or one of the caller's own as text."""
        if isinstance(statement, Statement):
            return self._begin_once().execute(statement)
        cursor = SqliteCallerCursor(self._connection_in_savepoint(), self._take)
        self._cursors.add(cursor)
        return cursor.execute(statement, params)

    def after_commit(self, action: Action, witness: Witness | None = None) -> None:
        """Have something done once this transaction has committed."""
        self.hooks.add(action, witness)

    def commit(self) -> None:
        """Commit and give the connection back. Raises: NoTransaction when the caller has ended it already."""
        connection = self._end()
        if connection is None:
            return
        broken = True
        try:
            if self._is_used:
                self._review(connection)
            if not connection.in_transaction:
                raise ended_by_caller()
            connection.execute("commit")
            broken = False
        except sqlite3.Error as error:
            raise translate(error, "the commit") or error from error
        finally:
            self._give_back(connection, broken)

    def rollback(self) -> None:
        """Undo everything and give the connection back."""
        connection = self._end()
        if connection is not None:
            self._give_back(connection, broken=False)

    def check_open(self) -> None:
        """Raises: ConnectionClosed after its end; before its first statement there is nothing to check."""
        if self._ended:
            raise ConnectionClosed(
                "the transaction has ended", help="do everything inside the app.transaction() block"
            )

    def give_up(self) -> None:
        """Stop waiting for the lock; from any thread."""
        if self._patience is not None:
            self._patience.end()

    def _begin_once(self) -> SqliteExecutor:
        if self._executor is None:
            self._executor = self._begin()
        elif not self._executor.connection.in_transaction:
            raise ended_by_caller()
        return self._executor

    def _take(self) -> sqlite3.Connection:
        connection = self._connection_in_savepoint()
        self._is_taken = True
        return connection

    def _connection_in_savepoint(self) -> SqliteConnection:
        """The connection as a caller gets it: inside a savepoint of ours, which goes with the transaction."""
        self._begin_once()
        assert self._lent is not None
        if not self._is_used:
            self._lent.execute(_OPEN_MARK)
            self._is_used = True
        return self._lent

    def _begin(self) -> SqliteExecutor:
        self.check_open()
        connection = self._source.take(self._wait_s)
        self._patience = LockWait(self._wait_s)
        try:
            begin(connection, self._patience)
        except BaseException:
            self._source.give(connection)
            raise
        connection.is_changed, self._lent = False, connection
        return SqliteExecutor(connection)

    def _review(self, connection: SqliteConnection) -> None:
        """See that this is still the transaction that began, and which hooks still hold. Raises: NoTransaction."""
        try:
            # A plain cursor: the caller may have set anything on the connection.
            sqlite3.Cursor(connection).execute(_CLOSE_MARK)
        except sqlite3.OperationalError as error:
            raise ended_by_caller() from error
        run(self.hooks.review(self._store), SqliteExecutor(connection))

    def _end(self) -> SqliteConnection | None:
        connection, self._lent = self._lent, None
        self._executor, self._ended = None, True
        # A statement half read would keep the file's present state from being replaced.
        for cursor in self._cursors:
            cursor.close()
        return connection

    def _give_back(self, connection: SqliteConnection, broken: bool) -> None:
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except sqlite3.Error:
            broken = True
        with suppress(sqlite3.Error):
            self._source.give(connection, broken or self._is_taken or connection.is_changed)


class SqliteAsyncTransaction:
    """Async version of `SqliteTransaction`; its statements run in a thread of its own."""

    dialect: ClassVar[Literal["sqlite"]] = "sqlite"

    def __init__(self, inner: SqliteTransaction, thread: Executor) -> None:
        self._inner = inner
        self._lane = thread

    @property
    def hooks(self) -> Hooks:
        """What is to be done after the commit."""
        return self._inner.hooks

    @property
    def connection(self) -> SqliteAsyncTransaction:
        """The transaction itself: a connection in another thread is of no use to the caller."""
        return self

    @overload
    async def execute(self, statement: Statement) -> list[Row]: ...
    @overload
    async def execute(self, statement: str, params: Parameters = ()) -> BufferedCursor: ...
    async def execute(
        self, statement: Statement | str, params: Parameters = ()
    ) -> list[Row] | BufferedCursor:
        """Run a statement of ours, or one of the caller's own as text."""
        if isinstance(statement, Statement):
            return await self.run_in_thread(lambda: self._inner.execute(statement))
        return await self.run_in_thread(
            lambda: BufferedCursor(self._inner.execute(statement, params))
        )

    def after_commit(self, action: Action, witness: Witness | None = None) -> None:
        """Have something done once this transaction has committed."""
        self._inner.after_commit(action, witness)

    def check_open(self) -> None:
        """See `SqliteTransaction.check_open`."""
        self._inner.check_open()

    def run_whole(self, op: Op[T]) -> asyncio.Future[T]:
        """Run all statements of an operation at once: each way to the thread and back costs more than a statement."""
        return self.run_in_thread(partial(contextvars.copy_context().run, run, op, self._inner))

    def run_in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run something in the transaction's own thread."""
        return asyncio.get_running_loop().run_in_executor(self._lane, work)


class BufferedCursor:
    """What a caller's statement returned, fetched already and read like an async cursor."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        """Fetch everything; in the thread that ran the statement."""
        self.description = cursor.description
        self.lastrowid = cursor.lastrowid
        self._rows: list[Any] = cursor.fetchall()
        # The count of a statement with RETURNING is known only once its rows have been read.
        self.rowcount = cursor.rowcount
        self._next = 0

    async def fetchone(self) -> Any:
        """The next row, or None after the last."""
        async for row in self:
            return row
        return None

    async def fetchall(self) -> list[Any]:
        """All rows that were not read yet."""
        return [row async for row in self]

    async def __aiter__(self) -> AsyncIterator[Any]:
        while self._next < len(self._rows):
            self._next += 1
            yield self._rows[self._next - 1]


class TransactionThreads:
    """Threads lent to one transaction at a time; some idle ones are kept."""

    def __init__(self) -> None:
        self._idle: list[ThreadPoolExecutor] = []
        self._closed = False
        self._lock = threading.Lock()

    def take(self) -> ThreadPoolExecutor:
        """Lend a thread of its own to a transaction."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast transaction")

    def give(self, thread: ThreadPoolExecutor) -> None:
        """Take a thread back that has nothing left to do."""
        with self._lock:
            if not self._closed and len(self._idle) < _KEEP:
                self._idle.append(thread)
                return
        thread.shutdown(wait=False)

    def close(self) -> None:
        """End the idle threads, and the others when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for thread in idle:
            thread.shutdown()


async def wait_uncancelled(future: asyncio.Future[None]) -> asyncio.CancelledError | None:
    """Wait for what must not be left half done; return a cancellation that came meanwhile, to be raised later."""
    cancellation = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancellation = error
    return cancellation

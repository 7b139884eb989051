"""Transactions of our own in both colours. They take the write lock at their first statement, not before."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import TypeVar, overload

from holdfast.core.errors import ConnectionClosed
from holdfast.storage.database import Parameters, ended_by_caller
from holdfast.storage.hooks import Hook, Hooks
from holdfast.storage.sqlite.answer import Answer
from holdfast.storage.sqlite.errors import translate
from holdfast.storage.sqlite.executor import SqliteExecutor
from holdfast.storage.sqlite.hooked import HookedConnection
from holdfast.storage.sqlite.patience import Patience, begin
from holdfast.storage.sqlite.pool import Lender
from holdfast.storage.statement import Row, Statement

T = TypeVar("T")


class SqliteTransaction:
    """A transaction that begins when it is first used; `connection` is for whatever `execute` does not cover."""

    def __init__(self, lender: Lender, wait_s: float) -> None:
        self.hooks = Hooks()
        self._lender = lender
        self._wait_s = wait_s
        self._patience: Patience | None = None
        self._executor: SqliteExecutor | None = None
        self._lent: HookedConnection | None = None
        self._ended = False

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection for the caller's own statements; asking for it begins the transaction."""
        return self._begun().connection

    @overload
    def execute(self, statement: Statement) -> list[Row]: ...
    @overload
    def execute(self, statement: str, params: Parameters = ()) -> sqlite3.Cursor: ...
    def execute(
        self, statement: Statement | str, params: Parameters = ()
    ) -> list[Row] | sqlite3.Cursor:
        """Run a statement of ours, or one of the caller's own as text."""
        executor = self._begun()
        if isinstance(statement, Statement):
            return executor.execute(statement)
        return executor.connection.execute(statement, params)

    def after_commit(self, hook: Hook) -> None:
        """Have something done once this transaction has committed."""
        self.hooks.add(hook)

    def commit(self) -> None:
        """Commit and give the connection back. Raises: NoTransaction when the caller has ended it already."""
        connection = self._end()
        if connection is None:
            return
        broken = True
        try:
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

    def give_up(self) -> None:
        """Stop waiting for the lock; from any thread."""
        if self._patience is not None:
            self._patience.end()

    def _begun(self) -> SqliteExecutor:
        if self._executor is None:
            self._executor = self._begin()
        elif not self._executor.connection.in_transaction:
            raise ended_by_caller()
        return self._executor

    def _begin(self) -> SqliteExecutor:
        if self._ended:
            raise ConnectionClosed("the transaction has ended")
        connection = self._lender.take(self._wait_s)
        self._patience = Patience(self._wait_s)
        try:
            begin(connection, self._patience)
        except BaseException:
            self._lender.give(connection)
            raise
        connection.hooks, self._lent = self.hooks, connection
        return SqliteExecutor(connection)

    def _end(self) -> HookedConnection | None:
        connection, self._lent = self._lent, None
        self._executor, self._ended = None, True
        if connection is not None:
            connection.hooks = None
        return connection

    def _give_back(self, connection: HookedConnection, broken: bool) -> None:
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except sqlite3.Error:
            broken = True
        with suppress(sqlite3.Error):
            self._lender.give(connection, broken)


class SqliteAsyncTransaction:
    """The same in the other colour; its statements run in a thread of its own."""

    def __init__(self, inner: SqliteTransaction, lane: Executor) -> None:
        self._inner = inner
        self._lane = lane

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
    async def execute(self, statement: str, params: Parameters = ()) -> Answer: ...
    async def execute(
        self, statement: Statement | str, params: Parameters = ()
    ) -> list[Row] | Answer:
        """Run a statement of ours, or one of the caller's own as text."""
        if isinstance(statement, Statement):
            return await self.aside(lambda: self._inner.execute(statement))
        return await self.aside(lambda: Answer(self._inner.execute(statement, params)))

    def after_commit(self, hook: Hook) -> None:
        """Have something done once this transaction has committed."""
        self._inner.after_commit(hook)

    def aside(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Have something done in the transaction's own thread."""
        return asyncio.get_running_loop().run_in_executor(self._lane, work)

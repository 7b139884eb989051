"""Transactions of our own in both colours, with hooks that run after the commit and never otherwise."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, overload

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, sql
from psycopg.pq import TransactionStatus

from holdfast.core.errors import ConnectionClosed, TransactionAborted
from holdfast.core.records import Held
from holdfast.storage.after_commit import Action, Hooks, Witness
from holdfast.storage.database import ended_by_caller
from holdfast.storage.operation import Row, Statement, run, run_async
from holdfast.storage.postgres.executor import PsycopgAsyncExecutor, PsycopgExecutor
from holdfast.storage.postgres.lent import (
    LentAsyncConnection,
    LentConnection,
    PooledAsyncConnection,
    PooledConnection,
    ask_which,
)
from holdfast.storage.store import Store

_BEGIN = b"begin isolation level read committed"
# The mark of an attempt comes in the same message. It waits for nobody, and ends with the transaction.
_BEGIN_MARKED = sql.SQL(
    "begin isolation level read committed; "
    "select pg_catalog.pg_try_advisory_xact_lock_shared("
    "pg_catalog.hashtext({token}), pg_catalog.hashtext({id}))"
)


class PostgresTransaction:
    """An open transaction; `connection` is psycopg's, for whatever `execute` does not cover."""

    def __init__(self, pooled: PooledConnection, schema: str) -> None:
        self.hooks = Hooks()
        self._pooled = pooled
        self._executor = PsycopgExecutor(pooled, schema)
        self._lent: LentConnection | None = None
        self._is_over = False

    @property
    def connection(self) -> Connection[Any]:
        """The connection for the caller's own statements."""
        return self._lend().take()

    @overload
    def execute(self, statement: Statement) -> list[Row]: ...
    @overload
    def execute(self, statement: str, params: Any = None) -> Cursor[Row]: ...
    def execute(self, statement: Statement | str, params: Any = None) -> list[Row] | Cursor[Row]:
        """Run a statement of ours, or one of the caller's own as text."""
        if isinstance(statement, Statement):
            self.check_open()
            return self._executor.execute(statement)
        lent = self._lend()
        _check_begun(self._pooled)
        return lent.run(statement.encode(), params)

    def after_commit(self, action: Action, witness: Witness | None = None) -> None:
        """Have something done once this transaction has committed."""
        self.hooks.add(action, witness)

    def check_open(self) -> None:
        """Raises: ConnectionClosed after its end, NoTransaction when the caller has ended it, TransactionAborted."""
        _check_open(self._is_over, self._pooled)

    def review(self, store: Store) -> None:
        """Ask the server, where something was done that it alone knows of: is this the transaction that began, and
        which hooks still hold? Raises: NoTransaction.
        """
        if self._lent is None or self._lent.watched.is_known:
            return
        self.check_open()
        if not self._lent.watched.is_same(self._pooled.wait(ask_which(self._pooled.pgconn))):
            raise ended_by_caller()
        run(self.hooks.review(store), self._executor)

    def commit(self) -> None:
        """Commit. Raises: see `check_open`."""
        self.check_open()
        self._pooled.commit()

    def rollback(self) -> None:
        """Undo everything; where that fails, the pool gives the connection up."""
        with suppress(psycopg.Error):
            self._pooled.rollback()

    def end(self) -> None:
        """Leave the connection to the next."""
        self._is_over = True
        if self._lent is not None:
            self._lent.give_back()

    def _lend(self) -> LentConnection:
        _check_not_over(self._is_over)
        if self._lent is None:
            self._lent = LentConnection(self._pooled)
        return self._lent


class PostgresAsyncTransaction:
    """The same in the other colour."""

    def __init__(self, pooled: PooledAsyncConnection, schema: str) -> None:
        self.hooks = Hooks()
        self._pooled = pooled
        self._executor = PsycopgAsyncExecutor(pooled, schema)
        self._lent: LentAsyncConnection | None = None
        self._is_over = False

    @property
    def connection(self) -> AsyncConnection[Any]:
        """The connection for the caller's own statements."""
        lent = self._lend()
        lent.watched.is_taken = True
        return lent

    @overload
    async def execute(self, statement: Statement) -> list[Row]: ...
    @overload
    async def execute(self, statement: str, params: Any = None) -> AsyncCursor[Row]: ...
    async def execute(
        self, statement: Statement | str, params: Any = None
    ) -> list[Row] | AsyncCursor[Row]:
        """Run a statement of ours, or one of the caller's own as text."""
        if isinstance(statement, Statement):
            self.check_open()
            return await self._executor.execute(statement)
        lent = self._lend()
        _check_begun(self._pooled)
        return await lent.run(statement.encode(), params)

    def after_commit(self, action: Action, witness: Witness | None = None) -> None:
        """Have something done once this transaction has committed."""
        self.hooks.add(action, witness)

    def check_open(self) -> None:
        """Raises: ConnectionClosed after its end, NoTransaction when the caller has ended it, TransactionAborted."""
        _check_open(self._is_over, self._pooled)

    async def review(self, store: Store) -> None:
        """The same in the other colour."""
        if self._lent is None or self._lent.watched.is_known:
            return
        self.check_open()
        if not self._lent.watched.is_same(await self._pooled.wait(ask_which(self._pooled.pgconn))):
            raise ended_by_caller()
        await run_async(self.hooks.review(store), self._executor)

    async def commit(self) -> None:
        """Commit. Raises: see `check_open`."""
        self.check_open()
        await self._pooled.commit()

    async def rollback(self) -> None:
        """Undo everything; where that fails, the pool gives the connection up."""
        with suppress(psycopg.Error):
            await self._pooled.rollback()

    def end(self) -> None:
        """Leave the connection to the next."""
        self._is_over = True
        if self._lent is not None:
            self._lent.give_back()

    def _lend(self) -> LentAsyncConnection:
        _check_not_over(self._is_over)
        if self._lent is None:
            self._lent = LentAsyncConnection(self._pooled)
        return self._lent


def begin_message(mark: Held | None = None) -> bytes:
    """The message that begins a transaction, with the mark of the attempt that it belongs to."""
    if mark is None:
        return _BEGIN
    marked = _BEGIN_MARKED.format(token=sql.Literal(mark.token), id=sql.Literal(mark.id))
    return marked.as_bytes(None)


def _check_open(is_over: bool, pooled: PooledConnection | PooledAsyncConnection) -> None:
    _check_not_over(is_over)
    _check_begun(pooled)
    if pooled.pgconn.transaction_status == TransactionStatus.INERROR:
        raise TransactionAborted("a statement of this transaction failed before")


def _check_not_over(is_over: bool) -> None:
    if is_over:
        raise ConnectionClosed(
            "the transaction has ended", help="do everything inside the block of app.transaction()"
        )


def _check_begun(pooled: PooledConnection | PooledAsyncConnection) -> None:
    if pooled.pgconn.transaction_status == TransactionStatus.IDLE:
        raise ended_by_caller()

"""Transactions of our own in both colours, with hooks that run after the commit and never otherwise."""

from __future__ import annotations

from typing import Any, overload

from psycopg import AsyncCursor, Cursor
from psycopg.pq import TransactionStatus

from holdfast.storage.database import ended_by_caller
from holdfast.storage.hooks import Hook, Hooks
from holdfast.storage.postgres.executor import PsycopgAsyncExecutor, PsycopgExecutor
from holdfast.storage.postgres.hooked import HookedAsyncConnection, HookedConnection
from holdfast.storage.statement import Row, Statement


class PostgresTransaction(PsycopgExecutor):
    """An open transaction; `connection` is psycopg's, for whatever `execute` does not cover."""

    def __init__(self, connection: HookedConnection, schema: str) -> None:
        super().__init__(connection, schema)
        self.hooks = connection.hooks = Hooks()

    @overload
    def execute(self, statement: Statement) -> list[Row]: ...
    @overload
    def execute(self, statement: str, params: Any = None) -> Cursor[Row]: ...
    def execute(self, statement: Statement | str, params: Any = None) -> list[Row] | Cursor[Row]:
        """Run a statement of ours, or one of the caller's own as text."""
        if isinstance(statement, Statement):
            self.check_open()
            return super().execute(statement)
        return self.connection.execute(statement.encode(), params)

    def after_commit(self, hook: Hook) -> None:
        """Have something done once this transaction has committed."""
        self.hooks.add(hook)

    def check_open(self) -> None:
        """Raises: NoTransaction when the caller has ended it already."""
        if self.connection.pgconn.transaction_status == TransactionStatus.IDLE:
            raise ended_by_caller()


class PostgresAsyncTransaction(PsycopgAsyncExecutor):
    """The same in the other colour."""

    def __init__(self, connection: HookedAsyncConnection, schema: str) -> None:
        super().__init__(connection, schema)
        self.hooks = connection.hooks = Hooks()

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
            return await super().execute(statement)
        return await self.connection.execute(statement.encode(), params)

    def after_commit(self, hook: Hook) -> None:
        """Have something done once this transaction has committed."""
        self.hooks.add(hook)

    def check_open(self) -> None:
        """Raises: NoTransaction when the caller has ended it already."""
        if self.connection.pgconn.transaction_status == TransactionStatus.IDLE:
            raise ended_by_caller()

"""Transactions of our own in both colours, with hooks that run after the commit and never otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psycopg import AsyncConnection, Connection

from holdfast.storage.postgres.executor import PsycopgAsyncExecutor, PsycopgExecutor


class PostgresTransaction(PsycopgExecutor):
    """An open transaction; `connection` is the psycopg connection for the caller's own statements."""

    def __init__(self, connection: Connection[Any], schema: str) -> None:
        super().__init__(connection, schema)
        self.hooks: list[Callable[[], None]] = []

    def after_commit(self, hook: Callable[[], None]) -> None:
        """Have something done once this transaction has committed."""
        self.hooks.append(hook)


class PostgresAsyncTransaction(PsycopgAsyncExecutor):
    """The same in the other colour."""

    def __init__(self, connection: AsyncConnection[Any], schema: str) -> None:
        super().__init__(connection, schema)
        self.hooks: list[Callable[[], None]] = []

    def after_commit(self, hook: Callable[[], None]) -> None:
        """Have something done once this transaction has committed."""
        self.hooks.append(hook)

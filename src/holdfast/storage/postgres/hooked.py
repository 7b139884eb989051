"""psycopg connections that tell the hooks of the present transaction of its savepoints, however they are made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from psycopg import AsyncCursor, AsyncTransaction, Connection, Cursor, Transaction
from psycopg.sql import Composable

from holdfast.storage.hooks import Hooks
from holdfast.storage.postgres.waiting import PoolConnection


class HookedConnection(Connection[Any]):
    """A connection of our pool; `hooks` are those of the transaction it is lent for.

    `is_used` says that its session may hold what a caller's own statements left there.
    """

    hooks: Hooks | None = None
    is_used: bool = False

    @contextmanager
    def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> Iterator[Transaction]:
        with super().transaction(savepoint_name, force_rollback) as opened:
            if self.hooks is None:
                yield opened
                return
            with self.hooks.part(undone=force_rollback):
                yield opened


class HookedCursor(Cursor[Any]):
    """What the owner of the transaction runs statements with."""

    def execute(self, query: Any, *args: Any, **kwargs: Any) -> HookedCursor:
        super().execute(query, *args, **kwargs)
        _heed(self.connection, query)
        return self


class HookedAsyncConnection(PoolConnection):
    """The same in the other colour; `limit_ms` is how long a statement may take, None when nobody knows."""

    hooks: Hooks | None = None
    is_used: bool = False
    limit_ms: int | None = None

    @asynccontextmanager
    async def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> AsyncIterator[AsyncTransaction]:
        async with super().transaction(savepoint_name, force_rollback) as opened:
            if self.hooks is None:
                yield opened
                return
            with self.hooks.part(undone=force_rollback):
                yield opened


class HookedAsyncCursor(AsyncCursor[Any]):
    """The same in the other colour."""

    async def execute(self, query: Any, *args: Any, **kwargs: Any) -> HookedAsyncCursor:
        await super().execute(query, *args, **kwargs)
        _heed(self.connection, query)
        return self


def _heed(connection: Any, query: Any) -> None:
    hooks: Hooks | None = connection.hooks
    if hooks is None:
        return
    connection.is_used = True
    if isinstance(query, Composable):
        query = query.as_string(connection)
    if isinstance(query, bytes):
        query = query.decode(errors="replace")
    if isinstance(query, str):
        hooks.heed(query)

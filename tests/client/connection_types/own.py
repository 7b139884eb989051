"""Transactions of Holdfast's own."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import Any

from holdfast import Holdfast
from holdfast.client.client import TransactionScope
from tests.client.connection_types.held import Held, Kind, Opened, Undo


class HeldOwn(Held):
    """A transaction entered by `with`."""

    def __init__(self, scope: TransactionScope) -> None:
        self._scope: TransactionScope | None = scope
        self.tx = scope.__enter__()

    async def execute(self, sql: str) -> None:
        self.tx.execute(sql)

    async def commit(self) -> None:
        self._leave(None)

    async def rollback(self) -> None:
        with suppress(Undo):
            self._leave(Undo())

    async def close(self) -> None:
        await self.rollback()

    def _leave(self, error: BaseException | None) -> None:
        scope, self._scope = self._scope, None
        if scope is not None:
            scope.__exit__(type(error) if error else None, error, None)


class HeldOwnAsync(Held):
    """A transaction entered by `async with`."""

    def __init__(self, scope: TransactionScope, tx: Any) -> None:
        self._scope: TransactionScope | None = scope
        self.tx = tx

    async def execute(self, sql: str) -> None:
        await self.tx.execute(sql)

    async def commit(self) -> None:
        await self._leave(None)

    async def rollback(self) -> None:
        with suppress(Undo):
            await self._leave(Undo())

    async def close(self) -> None:
        await self.rollback()

    async def _leave(self, error: BaseException | None) -> None:
        scope, self._scope = self._scope, None
        if scope is not None:
            await scope.__aexit__(type(error) if error else None, error, None)


@asynccontextmanager
async def open_own(url: str, app: Holdfast) -> Opened:
    held = HeldOwn(app.transaction())
    try:
        yield held
    finally:
        await held.close()


@asynccontextmanager
async def open_own_async(url: str, app: Holdfast) -> Opened:
    scope = app.transaction()
    held = HeldOwnAsync(scope, await scope.__aenter__())
    try:
        yield held
    finally:
        await held.close()


def _kind(name: str, dialect: str, open: Any) -> Kind:
    return Kind(name, dialect, open, tells_of_commit=True)


OWN = [
    _kind("own-postgresql", "postgresql", open_own),
    _kind("own-postgresql-async", "postgresql", open_own_async),
    _kind("own-sqlite", "sqlite", open_own),
    _kind("own-sqlite-async", "sqlite", open_own_async),
]

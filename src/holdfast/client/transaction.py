"""Transactions of Holdfast's own for callers who hold none: `with` and `async with` alike."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType

from holdfast.storage.database import AsyncTransaction, Database, Transaction


class TransactionScope:
    """One transaction to be opened; leaving its block commits, an exception rolls back."""

    def __init__(self, database: Callable[[], Database]) -> None:
        self._database = database
        self._sync: AbstractContextManager[Transaction] | None = None
        self._async: AbstractAsyncContextManager[AsyncTransaction] | None = None

    def __enter__(self) -> Transaction:
        self._sync = self._database().transaction()
        return self._sync.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._sync is not None
        return self._sync.__exit__(kind, error, trace)

    async def __aenter__(self) -> AsyncTransaction:
        self._async = self._database().transaction_async()
        return await self._async.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._async is not None
        return await self._async.__aexit__(kind, error, trace)

"""What the conformance classes ask of a store under test, sync and async over any `storage.database.Database`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from holdfast.storage.database import AsyncTransaction, Database, Transaction
from holdfast.storage.operation import Op, run, run_async
from holdfast.storage.store import Store

T = TypeVar("T")

# More than the most crowded test starts at once, so that its operations really run beside one another.
THREADS = 80

Contents = Mapping[str, Sequence[str]]
"""Every row of every table as text, in a stable order."""


class OpenTransaction(Protocol):
    """A transaction that stays open until a test ends it."""

    async def run(self, op: Op[T]) -> T:
        """Run an operation inside the transaction."""

    async def commit(self) -> None:
        """End it and keep what it did."""

    async def rollback(self) -> None:
        """End it and keep nothing."""


class Harness(Protocol):
    """A store with an empty database under it, sync or async."""

    @property
    def store(self) -> Store: ...

    async def run(self, op: Op[T]) -> T:
        """Run an operation in a transaction of its own."""

    async def begin(self) -> OpenTransaction:
        """Open a transaction, beside any that are open."""

    async def contents(self) -> Contents:
        """Read everything that is committed."""

    async def close(self) -> None:
        """Roll back what is still open; the database itself is closed by its maker."""


class _RolledBack(Exception):
    """Leaves a transaction's block so that nothing of it stays."""


class _ThreadTransaction:
    """A sync transaction in a thread of its own, because some drivers bind a connection to one."""

    def __init__(self, database: Database) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._block = database.transaction()
        self._transaction: Transaction | None = None

    async def begin(self) -> None:
        self._transaction = await self._call(self._block.__enter__)

    async def run(self, op: Op[T]) -> T:
        assert self._transaction is not None, "the transaction has ended"
        return await self._call(run, op, self._transaction)

    async def commit(self) -> None:
        await self._leave(None)

    async def rollback(self) -> None:
        await self._leave(_RolledBack())

    @property
    def is_open(self) -> bool:
        return self._transaction is not None

    async def _leave(self, error: _RolledBack | None) -> None:
        self._transaction = None
        try:
            await self._call(self._block.__exit__, type(error) if error else None, error, None)
        finally:
            self._thread.shutdown()

    async def _call(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)


class _TaskTransaction:
    """An async transaction on the running loop."""

    def __init__(self, database: Database) -> None:
        self._block = database.transaction_async()
        self._transaction: AsyncTransaction | None = None

    async def begin(self) -> None:
        self._transaction = await self._block.__aenter__()

    async def run(self, op: Op[T]) -> T:
        assert self._transaction is not None, "the transaction has ended"
        return await run_async(op, self._transaction)

    async def commit(self) -> None:
        await self._leave(None)

    async def rollback(self) -> None:
        await self._leave(_RolledBack())

    @property
    def is_open(self) -> bool:
        return self._transaction is not None

    async def _leave(self, error: _RolledBack | None) -> None:
        self._transaction = None
        await self._block.__aexit__(type(error) if error else None, error, None)


class SyncHarness:
    """Sync; every operation runs in a thread, so that several run at once."""

    def __init__(self, database: Database, read_contents: Callable[[], Contents]) -> None:
        self.store = database.store
        self._database = database
        self._read_contents = read_contents
        self._threads = ThreadPoolExecutor(max_workers=THREADS)
        self._begun: list[_ThreadTransaction] = []

    async def run(self, op: Op[T]) -> T:
        return await self._call(self._database.run, op)

    async def begin(self) -> OpenTransaction:
        transaction = _ThreadTransaction(self._database)
        await transaction.begin()
        self._begun.append(transaction)
        return transaction

    async def contents(self) -> Contents:
        return await self._call(self._read_contents)

    async def close(self) -> None:
        for transaction in self._begun:
            if transaction.is_open:
                await transaction.rollback()
        self._threads.shutdown()

    async def _call(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)


class AsyncHarness:
    """Async, on the running loop."""

    def __init__(self, database: Database, read_contents: Callable[[], Contents]) -> None:
        self.store = database.store
        self._database = database
        self._read_contents = read_contents
        self._begun: list[_TaskTransaction] = []

    async def run(self, op: Op[T]) -> T:
        return await self._database.run_async(op)

    async def begin(self) -> OpenTransaction:
        transaction = _TaskTransaction(self._database)
        await transaction.begin()
        self._begun.append(transaction)
        return transaction

    async def contents(self) -> Contents:
        return await asyncio.to_thread(self._read_contents)

    async def close(self) -> None:
        for transaction in self._begun:
            if transaction.is_open:
                await transaction.rollback()

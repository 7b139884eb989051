"""A database that is one connection of the test's: what jobs do there is rolled back together with the test.

A transaction that never commits is invisible to other connections, so everything runs on this one: the worker's own
statements and the sync handlers too, in the thread of the test. The worker's loop runs in another thread meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent import futures
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any, TypeVar, overload

from holdfast.client.adapters import adapter_of
from holdfast.client.adapters.base import AsyncAdapter, Need, SyncAdapter
from holdfast.core.errors import UnsupportedConnection
from holdfast.core.records import AppliedMigration, Held
from holdfast.storage.after_commit import Action, Witness
from holdfast.storage.database import Database, FreeSingleton, Parameters
from holdfast.storage.operation import Op, Row, Statement, SyncExecutor, run

T = TypeVar("T")


class CallerThread(futures.Executor):
    """Runs what other threads submit in the thread that made it, while that waits for them."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(
        self, function: Callable[..., T], /, *arguments: Any, **named: Any
    ) -> futures.Future[T]:
        future: futures.Future[T] = futures.Future()
        call = partial(_fulfil, future, partial(function, *arguments, **named))
        if threading.get_ident() == self._thread:
            call()
        else:
            self._calls.put(call)
        return future

    def complete(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on a loop in another thread, and what it submits in this one."""
        with futures.ThreadPoolExecutor(1, "holdfast-test-loop") as loops:
            ended = loops.submit(asyncio.run, work)
            ended.add_done_callback(lambda _: self._calls.put(None))
            while (call := self._calls.get()) is not None:
                call()
            return ended.result()


def _fulfil(future: futures.Future[T], function: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)


class JoinedTransaction:
    """A savepoint on the test's connection."""

    def __init__(self, executor: SyncExecutor) -> None:
        self._executor = executor
        self.connection: Any = executor.connection  # type: ignore[attr-defined]

    @overload
    def execute(self, statement: Statement) -> list[Row]: ...
    @overload
    def execute(self, statement: str, params: Parameters = ()) -> Any: ...
    def execute(self, statement: Statement | str, params: Parameters = ()) -> Any:
        """Run a statement of ours, or one of the caller's own as text."""
        if isinstance(statement, Statement):
            return self._executor.execute(statement)
        return self.connection.execute(statement, params or ())

    def after_commit(self, action: Action, witness: Witness | None = None) -> None:
        """Do nothing: the test's transaction does not commit."""


class JoinedAsyncTransaction:
    """Async version of `JoinedTransaction`; its statements still run in the thread of the test."""

    def __init__(self, inner: JoinedTransaction, caller: CallerThread) -> None:
        self._inner = inner
        self._caller = caller
        self.connection = inner.connection

    @overload
    async def execute(self, statement: Statement) -> list[Row]: ...
    @overload
    async def execute(self, statement: str, params: Parameters = ()) -> Any: ...
    async def execute(self, statement: Any, params: Parameters = ()) -> Any:
        """Run a statement of ours, or one of the caller's own as text."""
        return await asyncio.wrap_future(
            self._caller.submit(self._inner.execute, statement, params)
        )

    def after_commit(self, action: Action, witness: Witness | None = None) -> None:
        """Do nothing: the test's transaction does not commit."""


class JoinedDatabase:
    """See `storage.database.Database`. `original` is the one whose place it takes."""

    def __init__(self, connection: Any, original: Database, schema: str) -> None:
        """Raises: UnsupportedConnection for an async connection or something else."""
        adapter = adapter_of(connection)
        if isinstance(adapter, AsyncAdapter):
            raise UnsupportedConnection(
                "only a sync connection can be joined: jobs run in the thread of the test",
                help="leave `holdfast_connection` out and let tests commit; each starts with empty tables",
            )
        self.store = original.store
        self.schema = schema
        self.url = original.url
        self.caller = CallerThread()
        self._adapter: SyncAdapter = adapter
        self._numbers = count(1)

    def run(self, op: Op[T]) -> T:
        performed: futures.Future[T] = self.caller.submit(self._perform, op)
        return performed.result()

    async def run_async(self, op: Op[T]) -> T:
        return await asyncio.wrap_future(self.caller.submit(self._perform, op))

    def read(self, op: Op[T], timeout_ms: int | None = None) -> T:
        return self.run(op)

    async def read_async(self, op: Op[T], timeout_ms: int | None = None) -> T:
        return await self.run_async(op)

    @contextmanager
    def transaction(self, mark: Held | None = None) -> Iterator[JoinedTransaction]:
        executor = self._adapter.open(Need(self.store, self.schema, writes=True)).executor
        transaction = JoinedTransaction(executor)
        name = f"holdfast_{next(self._numbers)}"
        transaction.connection.execute(f"savepoint {name}")
        try:
            yield transaction
        except BaseException:
            transaction.connection.execute(f"rollback to savepoint {name}")
            transaction.connection.execute(f"release savepoint {name}")
            raise
        transaction.connection.execute(f"release savepoint {name}")

    @asynccontextmanager
    async def transaction_async(
        self, mark: Held | None = None
    ) -> AsyncIterator[JoinedAsyncTransaction]:
        opened = self.transaction(mark)
        inner = await asyncio.wrap_future(self.caller.submit(opened.__enter__))
        try:
            yield JoinedAsyncTransaction(inner, self.caller)
        except BaseException as error:
            leave = partial(opened.__exit__, type(error), error, error.__traceback__)
            await asyncio.wrap_future(self.caller.submit(leave))
            raise
        await asyncio.wrap_future(self.caller.submit(opened.__exit__, None, None, None))

    @contextmanager
    def snapshot(self) -> Iterator[Any]:
        with self.transaction() as transaction:
            yield transaction.connection

    def link(
        self, purpose: str, statement_timeout_ms: int = 10_000, durable: bool = True
    ) -> JoinedLink:
        return JoinedLink(self, purpose)

    def singleton(self, key: str) -> FreeSingleton:
        return FreeSingleton(key)

    def migrate(self) -> list[AppliedMigration]:
        raise UnsupportedConnection(
            "tables cannot be made inside the test's transaction",
            help="call app.migrate() before the test begins its transaction",
        )

    def check(self) -> list[AppliedMigration]:
        return self.run(self.store.schema.applied())

    async def check_async(self) -> list[AppliedMigration]:
        return self.check()

    async def replication(self) -> None:
        return None

    async def is_pooled(self) -> bool:
        return False

    def close(self) -> None:
        """Leave the connection to the test."""

    async def close_async(self) -> None:
        """Leave the connection to the test."""

    def _perform(self, op: Op[T]) -> T:
        with self.transaction() as transaction:
            return run(op, transaction)


class JoinedLink:
    """See `storage.database.Link`."""

    def __init__(self, database: JoinedDatabase, purpose: str) -> None:
        self.purpose = purpose
        self._database = database

    async def run(self, op: Op[T]) -> T:
        return await self._database.run_async(op)

    async def run_atomic(self, op: Op[T]) -> T:
        return await self._database.run_async(op)

    async def close(self) -> None:
        pass

"""A database that is one connection of the test's: what jobs do there is rolled back together with the test.

A transaction that never commits is invisible to other connections, so everything runs on this one: the worker's own
statements and the sync handlers too, in the thread of the test. The worker's loop runs in another thread meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent import futures
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar, overload

from holdfast.client.adapters import adapter_of
from holdfast.client.adapters.base import Access, AsyncAdapter, Need, SyncAdapter
from holdfast.core.duration import Duration
from holdfast.core.errors import UnsupportedConnection
from holdfast.core.records import AppliedMigration, Held
from holdfast.storage.after_commit import Action, Witness
from holdfast.storage.database import Database, EnoughConnections, FreeSingleton, Parameters, Raised
from holdfast.storage.migrations import WAIT, Tell, log_wait
from holdfast.storage.operation import AsyncExecutor, Op, Row, Statement, SyncExecutor, run
from holdfast.worker.wakes import call_on

T = TypeVar("T")


Task: TypeAlias = asyncio.Task[Any]

_ELSEWHERE = (
    "the kit's connection is used by the thread of the test alone: in an async test of Django's, "
    "write `await sync_to_async(…)(…)` around what is not async itself"
)

_BLOCKED = (
    "in an async test that is joined into a transaction, a sync handler cannot have steps: write it async, or omit "
    "`holdfast_connection` and let tests commit"
)

_HOLDING: ContextVar[Task | None] = ContextVar("holdfast_test_holding", default=None)
"""The task whose transaction is open here; tasks that are begun inside it belong to it."""


def calling_task() -> Task | None:
    """The task on whose behalf something is called; None outside a loop."""
    try:
        return _HOLDING.get() or asyncio.current_task()
    except RuntimeError:
        return None


class CallerThread(futures.Executor):
    """Runs what other threads submit in the thread that made it, while that waits for them.

    All transactions are savepoints of one connection, which undo and release whatever came after them. So while a task
    has one open, what other tasks submit waits until it has ended.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._is_waiting = False
        self._postponed: deque[_Call] = deque()
        self._running: _Call | None = None
        self._holder: Task | None = None
        self._depth = 0

    @property
    def is_current(self) -> bool:
        """Whether this is the thread that runs the calls."""
        return threading.get_ident() == self._thread

    def submit(
        self, function: Callable[..., T], /, *arguments: Any, **named: Any
    ) -> futures.Future[T]:
        return self.submit_for(calling_task(), partial(function, *arguments, **named))

    def submit_for(self, task: Task | None, function: Callable[[], T]) -> futures.Future[T]:
        """Submit a call of a task's. Raises: RuntimeError from another thread while this one waits for no calls."""
        future: futures.Future[T] = futures.Future()
        call = _Call(task, partial(_fulfil, future, function))
        if self.is_current:
            if task is not None and self._running is None:
                # An async test: this thread runs a loop itself, and waits for no calls.
                self._loop = task.get_loop()
            self._run(call)
        elif self._loop is not None:
            call_on(self._loop, self._run, call)
        elif self._is_waiting:
            self._calls.put(call)
        else:
            raise RuntimeError(_ELSEWHERE)
        return future

    async def complete_async(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await what submits calls to this thread, on a loop that runs here or, as in Django's async tests, elsewhere.

        Raises: RuntimeError from another thread that cannot reach this one.
        """
        if self.is_current:
            return await work()
        # Django runs the loop of an async test in a thread beside it, and lends that the thread of the test.
        asgiref = sys.modules.get("asgiref.sync")
        if asgiref is None:
            raise RuntimeError(_ELSEWHERE)
        completed: T = await asgiref.sync_to_async(self._complete_here)(work)
        return completed

    def _complete_here(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if not self.is_current:
            raise RuntimeError(_ELSEWHERE)
        return self.complete(work())

    def complete(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on a loop in another thread, and what it submits in this one."""
        self._loop = None
        self._is_waiting = True
        with futures.ThreadPoolExecutor(1, "holdfast-test-loop") as loops:
            ended = loops.submit(asyncio.run, work)
            ended.add_done_callback(lambda _: self._calls.put(None))
            while (call := self._calls.get()) is not None:
                self._run(call)
            self._is_waiting = False
            # A handler that was abandoned may have left a transaction open.
            self._holder, self._depth = None, 0
            self._postponed.clear()
            return ended.result()

    def wait(self, awaited: futures.Future[T]) -> T:
        """Wait in this thread for what a handler asked of the loop, running what that needs done here meanwhile.

        Raises: RuntimeError where the loop runs in this thread, too, and would wait for itself.
        """
        if self._loop is not None:
            awaited.cancel()
            raise RuntimeError(_BLOCKED)
        awaited.add_done_callback(lambda _: self._calls.put(_Call(None, lambda: None)))
        while not awaited.done():
            call = self._calls.get()
            if call is None:
                self._calls.put(None)
                break
            self._run(call)
        return awaited.result(0)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Postpone the calls of other tasks than the one whose call is running, for the length of a transaction."""
        if self._running is None:
            yield
            return
        self._holder, self._depth = self._running.task, self._depth + 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth <= 0:
                self._holder, self._depth = None, 0

    def _run(self, call: _Call) -> None:
        if self._running is not None:
            # A handler that runs a loop of its own.
            call.function()
            return
        self._postponed.append(call)
        while runnable := self._next_runnable():
            self._postponed.remove(runnable)
            self._running = runnable
            try:
                runnable.function()
            finally:
                self._running = None

    def _next_runnable(self) -> _Call | None:
        return next((each for each in self._postponed if self._holder in (None, each.task)), None)


@dataclass(frozen=True, eq=False, slots=True)
class _Call:
    """Something to run in the thread, and the task that waits for it."""

    task: Task | None
    function: Callable[[], None]


def _fulfil(future: futures.Future[T], function: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)


class _JoinedAdapter(SyncAdapter):
    """See `client.adapters`: the end of a savepoint is no commit."""

    def __init__(self, transaction: JoinedTransaction) -> None:
        self._transaction = transaction

    def open(self, need: Need) -> Access[SyncExecutor]:
        return Access(self._transaction)


class _JoinedAsyncAdapter(AsyncAdapter):
    """Async version of `_JoinedAdapter`."""

    def __init__(self, transaction: JoinedAsyncTransaction) -> None:
        self._transaction = transaction

    async def open(self, need: Need) -> Access[AsyncExecutor]:
        return Access(self._transaction)


class JoinedTransaction:
    """A savepoint on the test's connection."""

    holdfast_adapter = _JoinedAdapter

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

    holdfast_adapter = _JoinedAsyncAdapter

    def __init__(self, inner: JoinedTransaction, caller: CallerThread, task: Task | None) -> None:
        self._inner = inner
        self._caller = caller
        self._task = task
        self.connection = inner.connection

    @overload
    async def execute(self, statement: Statement) -> list[Row]: ...
    @overload
    async def execute(self, statement: str, params: Parameters = ()) -> Any: ...
    async def execute(self, statement: Any, params: Parameters = ()) -> Any:
        """Run a statement of ours, or one of the caller's own as text."""
        call = partial(self._inner.execute, statement, params)
        return await asyncio.wrap_future(self._caller.submit_for(self._task, call))

    def after_commit(self, action: Action, witness: Witness | None = None) -> None:
        """Do nothing: the test's transaction does not commit."""


class JoinedDatabase(EnoughConnections):
    """See `storage.database.Database`. `original` is the one whose place it takes."""

    def __init__(self, connection: Any, original: Database, schema: str) -> None:
        """Raises: UnsupportedConnection for an async connection or something else."""
        adapter = adapter_of(connection)
        if isinstance(adapter, AsyncAdapter):
            raise UnsupportedConnection(
                "only a sync connection can be joined: jobs run in the thread of the test",
                help="omit `holdfast_connection` and let tests commit; each starts with empty tables",
            )
        self.store = original.store
        self.schema = schema
        self.url = original.url
        self.caller = CallerThread()
        self._adapter: SyncAdapter = adapter
        self._numbers = count(1)

    def run(self, op: Op[T]) -> T:
        if self.caller.is_current:
            return self._perform(op)
        performed: futures.Future[T] = self.caller.submit(self._perform, op)
        return performed.result()

    async def run_async(self, op: Op[T]) -> T:
        return await asyncio.wrap_future(self.caller.submit(self._perform, op))

    def read(self, op: Op[T], timeout_ms: int | None = None) -> T:
        return self.run(op)

    async def read_async(self, op: Op[T], timeout_ms: int | None = None) -> T:
        return await self.run_async(op)

    @contextmanager
    def transaction(
        self, mark: Held | None = None, is_first: bool = False
    ) -> Iterator[JoinedTransaction]:
        executor = self._adapter.open(Need(self.store, self.schema, writes=True)).executor
        transaction = JoinedTransaction(executor)
        name = f"holdfast_{next(self._numbers)}"
        with self.caller.hold():
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
        self, mark: Held | None = None, is_first: bool = False
    ) -> AsyncIterator[JoinedAsyncTransaction]:
        opened, outer, task = self.transaction(mark), _HOLDING.get(), calling_task()
        entered = self.caller.submit_for(task, opened.__enter__)
        try:
            inner = await asyncio.wrap_future(entered)
        except asyncio.CancelledError:
            if not entered.cancelled():
                self.caller.submit_for(task, partial(opened.__exit__, None, None, None))
            raise
        _HOLDING.set(task)
        raised: Raised = (None, None, None)
        try:
            yield JoinedAsyncTransaction(inner, self.caller, task)
        except BaseException as error:
            raised = (type(error), error, error.__traceback__)
            raise
        finally:
            _HOLDING.set(outer)
            left = self.caller.submit_for(task, partial(opened.__exit__, *raised))
            # All others wait for its end, which must not be lost to a cancellation.
            await asyncio.shield(asyncio.wrap_future(left))

    @contextmanager
    def snapshot(self) -> Iterator[Any]:
        with self.transaction() as transaction:
            yield transaction.connection

    def link(self, purpose: str, statement_timeout_ms: int = 10_000) -> JoinedLink:
        return JoinedLink(self, purpose)

    def singleton(self, key: str) -> FreeSingleton:
        return FreeSingleton(key)

    def migrate(self, wait: Duration = WAIT, tell: Tell = log_wait) -> list[AppliedMigration]:
        raise UnsupportedConnection(
            "tables cannot be created inside the test's transaction",
            help="call app.migrate() before the test begins its transaction",
        )

    def check(self) -> list[AppliedMigration]:
        return self.run(self.store.schema.applied())

    async def check_async(self) -> list[AppliedMigration]:
        return self.check()

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

    run_atomic = run

    async def close(self) -> None:
        pass

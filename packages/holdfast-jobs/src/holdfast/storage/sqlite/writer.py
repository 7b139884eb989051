"""The writer: one thread per process and database that runs many callers' operations in one transaction.

A commit costs far more than most operations, so those that arrive while one is under way share the next. Each runs in a
savepoint of its own: one that fails undoes only itself. No caller gets an answer before the commit.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from holdfast.core.errors import ConnectionClosed, DatabaseBusy
from holdfast.storage.operation import Op, run
from holdfast.storage.sqlite.connection import (
    LOCK_WAIT_S,
    LockWait,
    SqliteConnection,
    StatementTimeout,
    is_busy,
    statement_timeout,
    translate,
)
from holdfast.storage.sqlite.pool import ConnectionSource
from holdfast.storage.sqlite.transaction import SqliteExecutor

T = TypeVar("T")
GROUP_SIZE = 256
GROUP_S = 0.005


class Writer:
    """Takes operations from any thread and loop and answers each after its commit."""

    def __init__(
        self, source: ConnectionSource, group_size: int = GROUP_SIZE, group_s: float = GROUP_S
    ) -> None:
        self._source = source
        self._group_size = group_size
        self._group_s = group_s
        self._inbox: SimpleQueue[WriteRequest[Any] | None] = SimpleQueue()
        self._waiting: deque[WriteRequest[Any]] = deque()
        self._stopping = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._running = threading.Lock()

    def submit(self, request: WriteRequest[Any]) -> None:
        """Have an operation run. Raises: ConnectionClosed after `close`."""
        with self._lock:
            if self._closed:
                raise ConnectionClosed("the database was closed")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name="holdfast writer", daemon=True
                )
                self._thread.start()
            self._inbox.put(request)

    def close(self) -> None:
        """Finish what was submitted and end the thread."""
        with self._lock:
            self._closed = True
            thread = self._thread
            self._inbox.put(None)
        if thread is not None:
            thread.join()

    def freeze(self) -> None:
        """Let the group under way end and begin none until `thaw`."""
        self._running.acquire()

    def thaw(self) -> None:
        """Go on."""
        self._running.release()

    def _serve(self) -> None:
        while self._gather(block=True):
            with self._running:
                self._run_group()

    def _gather(self, block: bool = False) -> bool:
        """Move what has arrived to the waiting; say whether any wait."""
        with suppress(Empty):
            while not self._stopping:
                request = self._inbox.get(block and not self._waiting)
                if request is None:
                    self._stopping = True
                else:
                    self._waiting.append(request)
        return bool(self._waiting)

    def _run_group(self) -> None:
        try:
            connection = self._begin()
        except Exception as error:
            self._refuse_all(error)
            return
        if connection is None:
            return
        group: list[WriteRequest[Any]] = []
        broken = False
        try:
            with statement_timeout(connection) as limit:
                self._run_waiting(connection, limit, group)
            connection.execute("commit")
        except Exception as error:
            broken = True
            _undo(connection, group, error)
        finally:
            self._source.give(connection, broken)
        deliver(group)

    def _begin(self) -> SqliteConnection | None:
        """Wait for the write lock as long as any caller does; None when all have stopped waiting."""
        while self._gather():
            try:
                connection = self._source.take(LOCK_WAIT_S)
            except DatabaseBusy as error:
                self._refuse_expired(error)
                continue
            try:
                connection.execute("begin immediate")
            except sqlite3.Error as error:
                busy = is_busy(error)
                self._source.give(connection, broken=not busy)
                if not busy:
                    raise
                self._refuse_expired(error)
            else:
                return connection
        return None

    def _refuse_expired(self, error: Exception) -> None:
        over = [each for each in self._waiting if each.lock_wait.is_over]
        for each in over:
            self._waiting.remove(each)
            each.error = translate(error, "an operation")
        deliver(over)

    def _refuse_all(self, error: Exception) -> None:
        refused = list(self._waiting)
        self._waiting.clear()
        for each in refused:
            each.error = translate(error) or error
        deliver(refused)

    def _run_waiting(
        self, connection: SqliteConnection, limit: StatementTimeout, group: list[WriteRequest[Any]]
    ) -> None:
        executor = SqliteExecutor(connection)
        ends_at = time.monotonic() + self._group_s
        while len(group) < self._group_size and (self._waiting or self._gather()):
            request = self._waiting.popleft()
            if request.is_abandoned:
                continue
            group.append(request)
            limit.allow(request.limit_s)
            _run_in_savepoint(request, executor)
            limit.allow(None)
            if time.monotonic() >= ends_at:
                return


def _run_in_savepoint(request: WriteRequest[Any], executor: SqliteExecutor) -> None:
    """Run one operation so that its failure undoes only itself."""
    connection = executor.connection
    connection.execute("savepoint operation")
    try:
        request.result = run(request.op, executor)
    except BaseException as error:
        request.error = error
        # SQLite gives up the whole transaction when the disk is full or a write was interrupted.
        if not connection.in_transaction:
            raise _TransactionLost(str(error)) from error
        connection.execute("rollback to operation")
    connection.execute("release operation")


class _TransactionLost(Exception):
    """An operation's failure took the whole transaction with it."""


def _undo(connection: SqliteConnection, group: list[WriteRequest[Any]], error: Exception) -> None:
    """Fail every operation that is lost with the transaction."""
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("rollback")
    for each in group:
        if each.error is not None:
            continue
        if isinstance(error, _TransactionLost):
            each.error = DatabaseBusy(f"undone together with an operation that failed: {error}")
        else:
            each.error = translate(error) or error


class WriteRequest(Generic[T]):
    """An operation, how long its caller waits for the lock, and how long it may take itself."""

    def __init__(self, op: Op[T], wait_s: float, limit_s: float) -> None:
        self.op = op
        self.limit_s = limit_s
        self.lock_wait = LockWait(wait_s)
        self.error: BaseException | None = None
        self.result: T

    @property
    def is_abandoned(self) -> bool:
        """Whether its caller has stopped waiting."""
        return False


class SyncWriteRequest(WriteRequest[T]):
    """An operation whose caller's thread waits."""

    def __init__(self, op: Op[T], wait_s: float, limit_s: float) -> None:
        super().__init__(op, wait_s, limit_s)
        self._done = threading.Lock()
        self._done.acquire()

    def notify_caller(self) -> None:
        """Wake the caller."""
        self._done.release()

    def wait(self) -> T:
        """Wait for the end and return the result, or raise the error."""
        self._done.acquire()
        if self.error is not None:
            raise self.error
        return self.result


class AsyncWriteRequest(WriteRequest[T]):
    """An operation whose caller awaits a future of its loop."""

    def __init__(self, op: Op[T], wait_s: float, limit_s: float) -> None:
        super().__init__(op, wait_s, limit_s)
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()

    @property
    def is_abandoned(self) -> bool:
        return self.future.cancelled()

    def notify_caller(self) -> None:
        """Resolve the future; in its loop only."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


def deliver(requests: Iterable[WriteRequest[Any]]) -> None:
    """Answer all callers; each loop is woken once, however many of its operations have ended."""
    by_loop: dict[asyncio.AbstractEventLoop, list[AsyncWriteRequest[Any]]] = {}
    for each in requests:
        if isinstance(each, AsyncWriteRequest):
            by_loop.setdefault(each.loop, []).append(each)
        elif isinstance(each, SyncWriteRequest):
            each.notify_caller()
    for loop, mine in by_loop.items():
        # In a closed loop nothing waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_notify_all, mine)


def _notify_all(requests: Sequence[AsyncWriteRequest[Any]]) -> None:
    for each in requests:
        each.notify_caller()

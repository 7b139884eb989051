"""A SQLite database: short operations through one writer, reads beside it, transactions for callers."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import DatabaseUnreachable
from holdfast.core.records import AppliedMigration, Held
from holdfast.storage.database import EnoughConnections, FreeSingleton
from holdfast.storage.id_generator import new_id
from holdfast.storage.migrations import WAIT, Tell, check_schema, load_migrations, log_wait
from holdfast.storage.operation import Op, run
from holdfast.storage.sql_loader import DEFAULT_SCHEMA
from holdfast.storage.sqlite.connection import (
    MEMORY,
    LockWait,
    SqliteOptions,
    Synchronous,
    check_version,
    name_memory,
    open_for_callers,
    open_reader,
    open_writer,
    read_mounts,
    refuse_network_mount,
    statement_timeout,
    translate,
)
from holdfast.storage.sqlite.migrations import apply_migrations, read_applied
from holdfast.storage.sqlite.pool import ConnectionSource, MemoryConnection, SqlitePool, watch_forks
from holdfast.storage.sqlite.store import PACKAGE, SqliteStore
from holdfast.storage.sqlite.transaction import (
    SqliteAsyncTransaction,
    SqliteExecutor,
    SqliteTransaction,
    TransactionThreads,
    wait_uncancelled,
)
from holdfast.storage.sqlite.writer import AsyncWriteRequest, SyncWriteRequest, Writer
from holdfast.storage.store.schema import DatabasePlace

T = TypeVar("T")
OPERATION_LIMIT_S = 30.0

# Replicas that start together wait for the one that migrates, however large the file is.
_KEPT = 4
_READING_THREADS = 2


class SqliteDatabase(EnoughConnections):
    """See `storage.database.Database`. `path` is None for a database in memory, which lives as long as this object."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        synchronous: Synchronous = "FULL",
        busy_timeout_ms: int = 5000,
        mounts: Callable[[], str] = read_mounts,
        environment: str | None = None,
    ) -> None:
        check_version()
        self._place = DatabasePlace(environment=environment)
        self.store = SqliteStore(self._place)
        self.schema = DEFAULT_SCHEMA
        self.path: Path | None = None
        if path != MEMORY:
            self.path = Path(path).absolute()
            refuse_network_mount(self.path, mounts())
        self.url = f"sqlite:///{self.path or MEMORY}"
        self._options = SqliteOptions(str(self.path or MEMORY), synchronous, busy_timeout_ms)
        self._wait_s = busy_timeout_ms / 1000
        self._held: SqliteResources | None = SqliteResources(self._options)
        self._was_closed = True
        watch_forks(self)

    def run(self, op: Op[T]) -> T:
        request = SyncWriteRequest(op, self._wait_s, OPERATION_LIMIT_S)
        self._resources.writer.submit(request)
        return request.wait()

    async def run_async(self, op: Op[T]) -> T:
        return await self.write_async(op, self._wait_s, OPERATION_LIMIT_S)

    def read(self, op: Op[T], timeout_ms: int | None = None) -> T:
        return read_snapshot(self._resources.readers, op, self._wait_s, timeout_ms)

    async def read_async(self, op: Op[T], timeout_ms: int | None = None) -> T:
        resources = self._resources
        work = partial(read_snapshot, resources.readers, op, self._wait_s, timeout_ms)
        return await asyncio.get_running_loop().run_in_executor(resources.reading_threads, work)

    @contextmanager
    def transaction(
        self, mark: Held | None = None, is_first: bool = False
    ) -> Iterator[SqliteTransaction]:
        transaction = SqliteTransaction(self._resources.transactions, self._wait_s, self.store)
        try:
            yield transaction
        except BaseException:
            transaction.rollback()
            raise
        transaction.commit()
        transaction.hooks.run()

    @asynccontextmanager
    async def transaction_async(
        self, mark: Held | None = None, is_first: bool = False
    ) -> AsyncIterator[SqliteAsyncTransaction]:
        resources = self._resources
        inner = SqliteTransaction(resources.transactions, self._wait_s, self.store)
        thread = resources.threads.take()
        transaction = SqliteAsyncTransaction(inner, thread)
        try:
            try:
                yield transaction
            except BaseException:
                inner.give_up()
                await wait_uncancelled(transaction.run_in_thread(inner.rollback))
                raise
            commit = transaction.run_in_thread(inner.commit)
            cancellation = await wait_uncancelled(commit)
        finally:
            resources.threads.give(thread)
        commit.result()
        transaction.hooks.run()
        if cancellation is not None:
            raise cancellation

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        source = self._resources.readers
        connection = source.take(self._wait_s)
        try:
            connection.execute("begin")
            yield connection
        except sqlite3.Error as error:
            raise translate(error) or error from error
        finally:
            if connection.in_transaction:
                connection.execute("rollback")
            # What its user set on it.
            connection.text_factory = str
            source.give(connection)

    def link(self, purpose: str, statement_timeout_ms: int = 10_000) -> SqliteLink:
        return SqliteLink(self, purpose, statement_timeout_ms)

    def singleton(self, key: str) -> FreeSingleton:
        # A claim sees every slot that runs, so a lock adds nothing to it.
        return FreeSingleton(key)

    def migrate(self, wait: Duration = WAIT, tell: Tell = log_wait) -> list[AppliedMigration]:
        source = self._resources.transactions
        connection = source.take(self._wait_s)
        try:
            return apply_migrations(
                connection, LockWait(milliseconds(wait) / 1000), new_id, self._place
            )
        finally:
            # SQLite compiles a statement once: what a migration has run would be noticed no more.
            source.give(connection, broken=True)

    def check(self) -> list[AppliedMigration]:
        """Refuse a schema that this code does not understand; return what is applied."""
        source = self._resources.readers
        connection = source.take(self._wait_s)
        try:
            applied = read_applied(connection)
        finally:
            source.give(connection)
        check_schema(load_migrations(PACKAGE), applied)
        return applied

    async def check_async(self) -> list[AppliedMigration]:
        return await asyncio.to_thread(self.check)

    async def is_pooled(self) -> bool:
        return False

    def close(self) -> None:
        if self._held is not None:
            self._held.close()

    async def close_async(self) -> None:
        # Closing waits for the writer's last group, which must not hold up the loop.
        with ThreadPoolExecutor(1) as closer:
            await asyncio.get_running_loop().run_in_executor(closer, self.close)

    def before_fork(self) -> None:
        """Close the file; see `storage.sqlite.pool` for the reason."""
        self._was_closed = self._held is None or self._held.freeze()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        if self._held is not None:
            self._held.thaw()

    def after_fork_in_child(self) -> None:
        """Begin anew, unless the parent had the file open."""
        self._held = SqliteResources(self._options) if self._was_closed else None

    async def write_async(self, op: Op[T], wait_s: float, limit_s: float) -> T:
        """Run an operation through the writer: so long may it wait for the lock, and so long take itself."""
        request = AsyncWriteRequest(op, wait_s, limit_s)
        self._resources.writer.submit(request)
        return await request.future

    @property
    def _resources(self) -> SqliteResources:
        if self._held is None:
            raise DatabaseUnreachable(
                "this process was forked while its parent had a transaction or a read open",
                help="fork outside of transactions, or start processes with the spawn method",
            )
        return self._held


def read_snapshot(source: ConnectionSource, op: Op[T], wait_s: float, timeout_ms: int | None) -> T:
    """Run an operation that only reads. Raises: DatabaseBusy when it takes longer than the timeout."""
    connection = source.take(wait_s)
    try:
        with statement_timeout(connection) as limit:
            limit.allow(None if timeout_ms is None else timeout_ms / 1000)
            connection.execute("begin")
            try:
                return run(op, SqliteExecutor(connection))
            finally:
                limit.allow(None)
                if connection.in_transaction:
                    connection.execute("rollback")
    finally:
        source.give(connection)


class SqliteLink:
    """See `storage.database.Link`. There is no connection of its own to lose or to close."""

    def __init__(self, database: SqliteDatabase, purpose: str, statement_timeout_ms: int) -> None:
        self.purpose = purpose
        self._database = database
        self._limit_s = statement_timeout_ms / 1000

    async def run(self, op: Op[T]) -> T:
        # The writer runs every operation in a transaction.
        return await self._database.write_async(op, self._limit_s, self._limit_s)

    async def run_atomic(self, op: Op[T]) -> T:
        return await self.run(op)

    async def close(self) -> None:
        pass


class SqliteResources:
    """Connections by role, the writer, and the threads of async callers; everything is opened at first use."""

    def __init__(self, options: SqliteOptions) -> None:
        self.readers, self.transactions, writing = _connection_sources(options)
        self._sources = {self.readers, self.transactions, writing}
        self.writer = Writer(writing)
        self.threads = TransactionThreads()
        self.reading_threads = ThreadPoolExecutor(
            _READING_THREADS, thread_name_prefix="holdfast reader"
        )

    def close(self) -> None:
        """End every thread and close every connection that is not lent."""
        self.writer.close()
        self.threads.close()
        self.reading_threads.shutdown()
        for each in self._sources:
            each.close()

    def freeze(self) -> bool:
        """Close the file until `thaw`; return whether it is closed everywhere."""
        self.writer.freeze()
        closed = [each.freeze() for each in self._sources]
        return all(closed)

    def thaw(self) -> None:
        """Go on."""
        for each in self._sources:
            each.thaw()
        self.writer.thaw()


def _connection_sources(
    options: SqliteOptions,
) -> tuple[ConnectionSource, ConnectionSource, ConnectionSource]:
    """The connections of readers, of transactions and of the writer."""
    if options.is_in_memory:
        options = name_memory(options)
        sole = MemoryConnection(
            partial(open_for_callers, options), can_reopen=options.is_named_memory
        )
        return sole, sole, sole
    path = options.path
    readers = SqlitePool(partial(open_reader, options), _KEPT, path)
    transactions = SqlitePool(partial(open_for_callers, options), _KEPT, path)
    return readers, transactions, SqlitePool(partial(open_writer, options), 1, path)

"""A SQLite database: short operations through one writer, reads beside it, transactions for callers.

A worker's way to the database for one purpose: its operations join the process's one writer.

The lock of a singleton cycle on SQLite: the slot's own row is the lease, and claiming it is exclusive already.

Reading beside the writer: one consistent view, ended when it takes too long.

What one process holds of a database: connections and threads. After a fork the child makes its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from holdfast.core.errors import DatabaseUnreachable
from holdfast.core.records import AppliedMigration, Held
from holdfast.storage.id_generator import new_id
from holdfast.storage.migrations import check_schema, load_migrations
from holdfast.storage.operation import Op, run
from holdfast.storage.sql_loader import DEFAULT_SCHEMA
from holdfast.storage.sqlite.connection import (
    MEMORY,
    Patience,
    Synchronous,
    Target,
    check_version,
    limited,
    named,
    open_lent,
    open_reader,
    open_writer,
    read_mounts,
    refuse_network_mount,
)
from holdfast.storage.sqlite.migrations import apply_migrations, read_applied
from holdfast.storage.sqlite.pool import Lender, Pool, Sole, watch_forks
from holdfast.storage.sqlite.store import PACKAGE, SqliteStore
from holdfast.storage.sqlite.transaction import (
    Lanes,
    SqliteAsyncTransaction,
    SqliteExecutor,
    SqliteTransaction,
    outlast,
)
from holdfast.storage.sqlite.writer import AsyncTicket, SyncTicket, Writer

T = TypeVar("T")


class WriteAsync(Protocol):
    """Runs an operation through the writer."""

    async def __call__(self, op: Op[T], wait_s: float, limit_s: float) -> T: ...


class SqliteLink:
    """See `storage.database.Link`. There is no connection of its own to lose or to close."""

    def __init__(self, write: WriteAsync, purpose: str, statement_timeout_ms: int) -> None:
        self.purpose = purpose
        self._write = write
        self._limit_s = statement_timeout_ms / 1000

    async def run(self, op: Op[T]) -> T:
        return await self._write(op, self._limit_s, self._limit_s)

    async def run_atomic(self, op: Op[T]) -> T:
        # The writer runs every operation in a transaction.
        return await self._write(op, self._limit_s, self._limit_s)

    async def close(self) -> None:
        pass


class SqliteSingleton:
    """See `storage.database.Singleton`. A claim sees every slot that runs, so there is nothing to add to it."""

    def __init__(self, key: str) -> None:
        self.key = key

    async def acquire(self) -> bool:
        return True

    async def ping(self) -> None:
        pass

    async def release(self) -> None:
        pass


def read_apart(lender: Lender, op: Op[T], wait_s: float, timeout_ms: int | None) -> T:
    """Run an operation that only reads. Raises: DatabaseBusy when it takes longer than the timeout."""
    connection = lender.take(wait_s)
    try:
        with limited(connection) as limit:
            limit.allow(None if timeout_ms is None else timeout_ms / 1000)
            connection.execute("begin")
            try:
                return run(op, SqliteExecutor(connection))
            finally:
                limit.allow(None)
                if connection.in_transaction:
                    connection.execute("rollback")
    finally:
        lender.give(connection)


_KEPT = 4
_READING_THREADS = 2


class Resources:
    """Connections by role, the writer, and the threads of async callers; everything is opened at first use."""

    def __init__(self, target: Target) -> None:
        self.readers, self.transactions, writing = _lenders(target)
        self._lenders = {self.readers, self.transactions, writing}
        self.writer = Writer(writing)
        self.lanes = Lanes()
        self.reading = ThreadPoolExecutor(_READING_THREADS, thread_name_prefix="holdfast reader")

    def close(self) -> None:
        """End every thread and close every connection that is not lent."""
        self.writer.close()
        self.lanes.close()
        self.reading.shutdown()
        for each in self._lenders:
            each.close()

    def freeze(self) -> bool:
        """Let go of the file until `thaw`; return whether nobody has it open any more."""
        self.writer.freeze()
        let_go = [each.freeze() for each in self._lenders]
        return all(let_go)

    def thaw(self) -> None:
        """Go on."""
        for each in self._lenders:
            each.thaw()
        self.writer.thaw()


def _lenders(target: Target) -> tuple[Lender, Lender, Lender]:
    """Who lends connections to readers, to transactions and to the writer."""
    if target.in_memory:
        target = named(target)
        sole = Sole(partial(open_lent, target), can_reopen=target.is_named_memory)
        return sole, sole, sole
    path = target.path
    readers = Pool(partial(open_reader, target), _KEPT, path)
    transactions = Pool(partial(open_lent, target), _KEPT, path)
    return readers, transactions, Pool(partial(open_writer, target), 1, path)


OPERATION_LIMIT_S = 30.0
# Replicas that start together wait for the one that migrates, however large the file is.
MIGRATION_WAIT_S = 600.0


class SqliteDatabase:
    """See `storage.database.Database`. `path` is None for a database in memory, which lives as long as this object."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        synchronous: Synchronous = "FULL",
        busy_timeout_ms: int = 5000,
        mounts: Callable[[], str] = read_mounts,
    ) -> None:
        check_version()
        self.store = SqliteStore()
        self.schema = DEFAULT_SCHEMA
        self.path: Path | None = None
        if path != MEMORY:
            self.path = Path(path).absolute()
            refuse_network_mount(self.path, mounts())
        self.url = f"sqlite:///{self.path or MEMORY}"
        self._target = Target(str(self.path or MEMORY), synchronous, busy_timeout_ms)
        self._wait_s = busy_timeout_ms / 1000
        self._held: Resources | None = Resources(self._target)
        self._was_let_go = True
        watch_forks(self)

    def run(self, op: Op[T]) -> T:
        ticket = SyncTicket(op, self._wait_s, OPERATION_LIMIT_S)
        self._resources.writer.submit(ticket)
        return ticket.wait()

    async def run_async(self, op: Op[T]) -> T:
        return await self._write_async(op, self._wait_s, OPERATION_LIMIT_S)

    def read(self, op: Op[T], timeout_ms: int | None = None) -> T:
        return read_apart(self._resources.readers, op, self._wait_s, timeout_ms)

    async def read_async(self, op: Op[T], timeout_ms: int | None = None) -> T:
        resources = self._resources
        work = partial(read_apart, resources.readers, op, self._wait_s, timeout_ms)
        return await asyncio.get_running_loop().run_in_executor(resources.reading, work)

    @contextmanager
    def transaction(self, mark: Held | None = None) -> Iterator[SqliteTransaction]:
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
        self, mark: Held | None = None
    ) -> AsyncIterator[SqliteAsyncTransaction]:
        resources = self._resources
        inner = SqliteTransaction(resources.transactions, self._wait_s, self.store)
        lane = resources.lanes.take()
        transaction = SqliteAsyncTransaction(inner, lane)
        try:
            try:
                yield transaction
            except BaseException:
                inner.give_up()
                await outlast(transaction.aside(inner.rollback))
                raise
            commit = transaction.aside(inner.commit)
            cancellation = await outlast(commit)
        finally:
            resources.lanes.give(lane)
        commit.result()
        transaction.hooks.run()
        if cancellation is not None:
            raise cancellation

    def link(
        self, purpose: str, statement_timeout_ms: int = 10_000, durable: bool = True
    ) -> SqliteLink:
        # The file's one writer commits for many at once: a claim beside a start is as durable as that.
        return SqliteLink(self._write_async, purpose, statement_timeout_ms)

    def singleton(self, key: str) -> SqliteSingleton:
        return SqliteSingleton(key)

    def migrate(self) -> list[AppliedMigration]:
        lender = self._resources.transactions
        connection = lender.take(self._wait_s)
        try:
            return apply_migrations(connection, Patience(MIGRATION_WAIT_S), new_id)
        finally:
            # SQLite compiles a statement once: what a migration has run would be noticed no more.
            lender.give(connection, broken=True)

    def is_pooled(self) -> bool:
        return False

    def check(self) -> list[AppliedMigration]:
        """Refuse a schema that this code does not understand; return what is applied."""
        lender = self._resources.readers
        connection = lender.take(self._wait_s)
        try:
            applied = read_applied(connection)
        finally:
            lender.give(connection)
        check_schema(load_migrations(PACKAGE), applied)
        return applied

    def close(self) -> None:
        if self._held is not None:
            self._held.close()

    async def close_async(self) -> None:
        # Closing waits for the writer's last group, which must not hold up the loop.
        with ThreadPoolExecutor(1) as closer:
            await asyncio.get_running_loop().run_in_executor(closer, self.close)

    def before_fork(self) -> None:
        """Let go of the file; see `storage.sqlite.pool` for the reason."""
        self._was_let_go = self._held is None or self._held.freeze()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        if self._held is not None:
            self._held.thaw()

    def after_fork_in_child(self) -> None:
        """Begin anew, unless somebody in the parent had the file open."""
        self._held = Resources(self._target) if self._was_let_go else None

    async def _write_async(self, op: Op[T], wait_s: float, limit_s: float) -> T:
        ticket = AsyncTicket(op, wait_s, limit_s)
        self._resources.writer.submit(ticket)
        return await ticket.future

    @property
    def _resources(self) -> Resources:
        if self._held is None:
            raise DatabaseUnreachable(
                "this process was forked while its parent had a transaction or a read open",
                help="fork outside of transactions, or start processes with the spawn method",
            )
        return self._held

"""A SQLite database: short operations through one writer, reads beside it, transactions for callers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from holdfast.core.errors import DatabaseUnreachable
from holdfast.core.model import Held
from holdfast.storage.identifiers import new_id
from holdfast.storage.migrate import check_schema, load_migrations
from holdfast.storage.records import AppliedMigration
from holdfast.storage.sqlfile import DEFAULT_SCHEMA
from holdfast.storage.sqlite.connection import MEMORY, Synchronous, Target, check_version
from holdfast.storage.sqlite.fork import watch_forks
from holdfast.storage.sqlite.lanes import outlast
from holdfast.storage.sqlite.link import SqliteLink
from holdfast.storage.sqlite.migration import apply_migrations, read_applied
from holdfast.storage.sqlite.mounts import read_mounts, refuse_network_mount
from holdfast.storage.sqlite.patience import Patience
from holdfast.storage.sqlite.reading import read_apart
from holdfast.storage.sqlite.resources import Resources
from holdfast.storage.sqlite.singleton import SqliteSingleton
from holdfast.storage.sqlite.store import PACKAGE, SqliteStore
from holdfast.storage.sqlite.ticket import AsyncTicket, SyncTicket
from holdfast.storage.sqlite.transaction import SqliteAsyncTransaction, SqliteTransaction
from holdfast.storage.statement import Op

T = TypeVar("T")

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

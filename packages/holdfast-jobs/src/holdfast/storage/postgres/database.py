"""A PostgreSQL database: short operations from small pools, links for workers, transactions for callers."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import Connection, IsolationLevel

from holdfast.core.errors import WrongDatabase
from holdfast.core.records import AppliedMigration, Held
from holdfast.core.replication import Replication
from holdfast.storage.id_generator import new_id
from holdfast.storage.migrations import check_schema, load_migrations
from holdfast.storage.operation import Op, run, run_async
from holdfast.storage.postgres.connection import (
    STATEMENT_TIMEOUT_MS,
    PsycopgAsyncExecutor,
    PsycopgExecutor,
    check_server,
    connection_string,
    is_pooled,
    is_pooled_async,
    remember_host,
    unreachable,
    url_without_password,
)
from holdfast.storage.postgres.dedicated_connection import (
    OpenConnections,
    PostgresLink,
    PostgresSingleton,
)
from holdfast.storage.postgres.hosts import connect, connect_async
from holdfast.storage.postgres.migrations import PACKAGE, apply_migrations, read_applied
from holdfast.storage.postgres.pool import (
    NOTHING,
    WAIT_S,
    PooledAsyncConnection,
    PooledConnection,
    PostgresAsyncPool,
    PostgresPool,
    make_ready,
    make_ready_async,
    send_reset,
)
from holdfast.storage.postgres.standbys import read_replication
from holdfast.storage.postgres.store import PostgresStore, translate
from holdfast.storage.postgres.transaction import (
    PostgresAsyncTransaction,
    PostgresTransaction,
    begin_message,
)
from holdfast.storage.sql_loader import DEFAULT_SCHEMA, check_identifier

T = TypeVar("T")

POOL_SIZE = 10
LOCK_ANSWER_MS = 10_000
CHECK_WAIT_S = 1.0


class PostgresDatabase:
    """See `storage.database.Database`."""

    def __init__(
        self,
        url: str,
        schema: str = DEFAULT_SCHEMA,
        pool_size: int = POOL_SIZE,
        prepare: bool = True,
        prepare_pooled: bool = False,
    ) -> None:
        self.store = PostgresStore()
        self.schema = check_identifier(schema)
        self.url = url_without_password(url)
        self._url = url
        self._pool_size = pool_size
        self._prepare = prepare
        self._prepare_pooled = prepare_pooled
        self._preparing: dict[str, Any] = {} if prepare else {"prepare_threshold": None}
        self._pool: PostgresPool | None = None
        self._making_pool = threading.Lock()
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, PostgresAsyncPool] = (
            WeakKeyDictionary()
        )
        self._open_connections = OpenConnections()
        self._pid = os.getpid()

    def run(self, op: Op[T]) -> T:
        with self._begun() as connection:
            return run(op, PsycopgExecutor(connection, self.schema))

    async def run_async(self, op: Op[T]) -> T:
        async with self._begun_async() as connection:
            return await run_async(op, PsycopgAsyncExecutor(connection, self.schema))

    def read(self, op: Op[T], timeout_ms: int | None = None) -> T:
        with self._begun() as connection:
            if timeout_ms is not None:
                connection.execute(_LIMIT, [str(timeout_ms), True])
            return run(op, PsycopgExecutor(connection, self.schema))

    async def read_async(self, op: Op[T], timeout_ms: int | None = None) -> T:
        async with self._connection_async(
            limit_ms=timeout_ms or STATEMENT_TIMEOUT_MS
        ) as connection:
            executor = PsycopgAsyncExecutor(connection, self.schema)
            if connection.prepares_after is not None:
                # The session is ours alone: its limit outlasts the statement, and pages ask many small questions.
                return await run_async(op, executor)
            async with connection.transaction():
                if timeout_ms is not None:
                    await connection.execute(_LIMIT, [str(timeout_ms), True])
                return await run_async(op, executor)

    @contextmanager
    def transaction(self, mark: Held | None = None) -> Iterator[PostgresTransaction]:
        with self._connection(begin_message(mark)) as connection:
            transaction = PostgresTransaction(connection, self.schema)
            try:
                yield transaction
                transaction.review(self.store)
                transaction.commit()
            except BaseException:
                transaction.rollback()
                raise
            finally:
                transaction.end()
        transaction.hooks.run()

    @asynccontextmanager
    async def transaction_async(
        self, mark: Held | None = None
    ) -> AsyncIterator[PostgresAsyncTransaction]:
        async with self._connection_async(begin_message(mark)) as connection:
            transaction = PostgresAsyncTransaction(connection, self.schema)
            try:
                yield transaction
                await transaction.review(self.store)
                await transaction.commit()
            except BaseException:
                await transaction.rollback()
                raise
            finally:
                transaction.end()
        transaction.hooks.run()

    @contextmanager
    def snapshot(self) -> Iterator[Connection[Any]]:
        with self._direct("archive") as connection:
            connection.execute("begin isolation level repeatable read read only")
            yield connection

    def link(self, purpose: str, statement_timeout_ms: int = 10_000) -> PostgresLink:
        self._forget_parent()
        return PostgresLink(
            self._url,
            self.schema,
            purpose,
            statement_timeout_ms,
            self._prepare,
            self._open_connections,
            self._prepare_pooled,
        )

    def singleton(self, key: str) -> PostgresSingleton:
        # A lock belongs to the whole database, the cycle to one schema of it.
        own = key if self.schema == DEFAULT_SCHEMA else f"{self.schema}:{key}"
        return PostgresSingleton(self._url, own, LOCK_ANSWER_MS)

    def migrate(self) -> list[AppliedMigration]:
        with self._direct("migrate") as connection:
            check_server(connection)
            return apply_migrations(connection, self.schema, new_id)

    def check(self) -> list[AppliedMigration]:
        """Refuse a schema that this code does not understand; return what is applied."""
        with self._direct("check") as connection:
            check_server(connection)
            applied = read_applied(connection, self.schema)
        check_schema(load_migrations(PACKAGE), applied)
        return applied

    async def check_async(self) -> list[AppliedMigration]:
        # Who asks whether all is well does not wait for a server to come back.
        async with self._connection_async(wait_s=CHECK_WAIT_S) as connection:
            check_server(connection)
            try:
                executor = PsycopgAsyncExecutor(connection, self.schema)
                applied = await run_async(self.store.schema.applied(), executor)
            except WrongDatabase:
                applied = []
        check_schema(load_migrations(PACKAGE), applied)
        return applied

    async def is_pooled(self) -> bool:
        async with self._connection_async() as connection:
            return await is_pooled_async(connection)

    async def replication(self) -> Replication:
        return await read_replication(self._url, self.schema, self.read_async)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    async def close_async(self) -> None:
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()
        self.close()

    @contextmanager
    def _direct(self, purpose: str) -> Iterator[Connection[Any]]:
        try:
            text = connection_string(self._url, purpose, statement_timeout_ms=0)
            # Too few statements to be worth preparing, which a pooler might forget.
            connection = connect(Connection[Any], text, autocommit=True, prepare_threshold=None)
        except (psycopg.OperationalError, OSError) as error:
            raise unreachable(self._url, error) from error
        remember_host(self._url, connection)
        try:
            with connection:
                yield connection
        except psycopg.Error as error:
            raise translate(error) or error from error

    @contextmanager
    def _begun(self) -> Iterator[PooledConnection]:
        """Lend a connection for one transaction of ours."""
        with self._connection(begin_message()) as connection:
            try:
                yield connection
                connection.commit()
            except BaseException:
                with suppress(psycopg.Error):
                    connection.rollback()
                raise

    @asynccontextmanager
    async def _begun_async(self) -> AsyncIterator[PooledAsyncConnection]:
        """Async version of `_begun`."""
        async with self._connection_async(begin_message()) as connection:
            try:
                yield connection
                await connection.commit()
            except BaseException:
                with suppress(psycopg.Error):
                    await connection.rollback()
                raise

    @contextmanager
    def _connection(self, first: bytes) -> Iterator[PooledConnection]:
        self._forget_parent()
        try:
            with self._sync_pool().connection(partial(make_ready, first=first)) as connection:
                yield connection
        except psycopg.Error as error:
            raise translate(error) or error from error

    @asynccontextmanager
    async def _connection_async(
        self,
        first: bytes = NOTHING,
        limit_ms: int = STATEMENT_TIMEOUT_MS,
        wait_s: float = WAIT_S,
    ) -> AsyncIterator[PooledAsyncConnection]:
        self._forget_parent()
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = PostgresAsyncPool(
                self._connect_async, send_reset, self._pool_size
            )
        try:
            ready = partial(make_ready_async, first=first, limit_ms=limit_ms)
            async with pool.connection(ready, wait_s) as connection:
                yield connection
        except psycopg.Error as error:
            raise translate(error) or error from error

    def _sync_pool(self) -> PostgresPool:
        """The pool of this process; threads that come first together make one."""
        with self._making_pool:
            if self._pool is None:
                self._pool = PostgresPool(self._connect, send_reset, self._pool_size)
            return self._pool

    def _connect(self) -> PooledConnection:
        """Open a connection for the pool."""
        text = connection_string(self._url, "client", STATEMENT_TIMEOUT_MS)
        try:
            connection = connect(PooledConnection, text, autocommit=True, **self._preparing)
            _configure(connection)
        except (psycopg.OperationalError, OSError) as error:
            raise unreachable(self._url, error) from error
        remember_host(self._url, connection)
        return connection

    async def _connect_async(self) -> PooledAsyncConnection:
        """Async version of `_connect`."""
        text = connection_string(self._url, "client", STATEMENT_TIMEOUT_MS)
        try:
            connection = await connect_async(
                PooledAsyncConnection, text, autocommit=True, **self._preparing
            )
            await _configure_async(connection)
        except (psycopg.OperationalError, OSError) as error:
            raise unreachable(self._url, error) from error
        remember_host(self._url, connection)
        return connection

    def _forget_parent(self) -> None:
        """After a fork the parent's sockets must not be used; nor closed, which would end the parent's sessions."""
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self._pool = None
            # Another thread of the parent may have held it, and there is no such thread here.
            self._making_pool = threading.Lock()
            self._pools = WeakKeyDictionary()
            self._open_connections = OpenConnections()


_LIMIT = "select set_config('statement_timeout', %s, %s)"


def _configure(connection: PooledConnection) -> None:
    """Pin the isolation, and prepare nothing where the next statement may reach another server session."""
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    if connection.prepare_threshold is not None and is_pooled(connection):
        connection.prepare_threshold = None
    connection.prepares_after = connection.prepare_threshold
    connection.rollback()


async def _configure_async(connection: PooledAsyncConnection) -> None:
    """Async version of `_configure`."""
    connection.limit_ms = STATEMENT_TIMEOUT_MS
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
    if connection.prepare_threshold is not None and await is_pooled_async(connection):
        connection.prepare_threshold = None
    connection.prepares_after = connection.prepare_threshold
    await connection.rollback()

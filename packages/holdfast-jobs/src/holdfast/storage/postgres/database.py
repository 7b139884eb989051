"""A PostgreSQL database: short operations from small pools, links for workers, transactions for callers."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import Connection, IsolationLevel

from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import DatabaseUnreachable, MissingExtra, WrongDatabase
from holdfast.core.records import AppliedMigration, Held
from holdfast.extensions import import_name, merge
from holdfast.storage.migrations import WAIT, Tell, check_schema, load_migrations, log_wait
from holdfast.storage.operation import Op, run, run_async
from holdfast.storage.postgres.connection import (
    LOCK_TIMEOUT_MS,
    STATEMENT_TIMEOUT_MS,
    PsycopgAsyncExecutor,
    PsycopgExecutor,
    addresses_of,
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
from holdfast.storage.postgres.migrations import PACKAGE, read_applied
from holdfast.storage.postgres.pool import (
    NOTHING,
    SHORT_WAIT_S,
    WAIT_S,
    AnyPool,
    PooledAsyncConnection,
    PooledConnection,
    PoolGroup,
    PostgresAsyncPool,
    PostgresPool,
    make_ready,
    make_ready_async,
)
from holdfast.storage.postgres.psycopg_internals import CAN_SHARE_SESSIONS
from holdfast.storage.postgres.shortage import shortage_of
from holdfast.storage.postgres.store import PostgresStore, translate
from holdfast.storage.postgres.transaction import (
    PostgresAsyncTransaction,
    PostgresTransaction,
    begin_message,
)
from holdfast.storage.sql_loader import DEFAULT_SCHEMA, check_identifier
from holdfast.storage.store.schema import DatabasePlace

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
        environment: str | None = None,
    ) -> None:
        self._place = DatabasePlace(addresses_of(url), environment)
        self.store = PostgresStore(self._place)
        self.schema = check_identifier(schema)
        self.url = url_without_password(url)
        self._url = url
        self._pool_size = pool_size
        self._prepare = prepare
        self._prepare_pooled = prepare_pooled
        can_prepare = prepare and CAN_SHARE_SESSIONS
        self._preparing: dict[str, Any] = {} if can_prepare else {"prepare_threshold": None}
        self._pool: PostgresPool | None = None
        self._making_pool = threading.Lock()
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, PostgresAsyncPool] = (
            WeakKeyDictionary()
        )
        self._group = PoolGroup(shortage_of(url), self._all_pools)
        self._open_connections = OpenConnections(shortage_of(url))
        self._pid = os.getpid()

    def run(self, op: Op[T]) -> T:
        with self._begun() as connection:
            return run(op, PsycopgExecutor(connection, self.schema))

    async def run_async(self, op: Op[T]) -> T:
        async with self.transaction_async() as transaction:
            return await run_async(op, transaction)

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
    def transaction(
        self, mark: Held | None = None, is_first: bool = False
    ) -> Iterator[PostgresTransaction]:
        short_wait_s = SHORT_WAIT_S if is_first else WAIT_S
        with self._connection(begin_message(mark), short_wait_s) as connection:
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
        self, mark: Held | None = None, is_first: bool = False
    ) -> AsyncIterator[PostgresAsyncTransaction]:
        short_wait_s = SHORT_WAIT_S if is_first else WAIT_S
        async with self._connection_async(
            begin_message(mark), short_wait_s=short_wait_s
        ) as connection:
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

    @property
    def connections_in_hand(self) -> int | None:
        if not shortage_of(self._url).is_on:
            return None
        return sum(each.in_hand for each in self._all_pools())

    async def reserve_connection(self) -> bool:
        try:
            async with self._connection_async(wait_s=0):
                return True
        except DatabaseUnreachable:
            return False

    def make_room(self) -> None:
        shortage_of(self._url).begin()

    def leave_unused(self) -> None:
        for each in self._all_pools():
            each.give_way(entirely=True)

    def rest(self, seconds: float) -> None:
        shortage_of(self._url).rest(seconds)

    def _all_pools(self) -> list[AnyPool]:
        return [*self._pools.values(), *([] if self._pool is None else [self._pool])]

    def migrate(self, wait: Duration = WAIT, tell: Tell = log_wait) -> list[AppliedMigration]:
        upgrade = merge("upgrades").get(self.store.dialect)
        if upgrade is None:
            raise MissingExtra(
                "the schema is created by holdfast-postgres, which is not installed",
                help='pip install "holdfast-jobs[postgres]"',
            )
        # No limit of the session's own: building an index waits for all older transactions, and nobody for it.
        with (
            self._direct("migrate", lock_timeout_ms=0) as connection,
            self._direct("migrate lock") as second,
            self._direct("migrate watch") as third,
        ):
            check_server(connection)
            connections, wait_s = (connection, second, third), milliseconds(wait) / 1000
            applied: list[AppliedMigration] = import_name(upgrade)(
                connections, self.schema, wait_s, tell, self._place
            )
            return applied

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

    def url_with_password(self) -> str:
        """The URL as it was given."""
        return self._url

    def close(self) -> None:
        self._leave_ended_loops()
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    async def close_async(self) -> None:
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()
        self.close()

    @contextmanager
    def _direct(
        self, purpose: str, lock_timeout_ms: int = LOCK_TIMEOUT_MS
    ) -> Iterator[Connection[Any]]:
        try:
            text = connection_string(self._url, purpose, 0, lock_timeout_ms=lock_timeout_ms)
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

    def _connection(
        self, first: bytes, short_wait_s: float = WAIT_S
    ) -> AbstractContextManager[PooledConnection]:
        self._forget_parent()
        return self._sync_pool().connection(partial(make_ready, first=first), short_wait_s)

    def _connection_async(
        self,
        first: bytes = NOTHING,
        limit_ms: int = STATEMENT_TIMEOUT_MS,
        wait_s: float = WAIT_S,
        short_wait_s: float = WAIT_S,
    ) -> AbstractAsyncContextManager[PooledAsyncConnection]:
        self._forget_parent()
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            self._leave_ended_loops()
            pool = self._pools[loop] = PostgresAsyncPool(
                self._connect_async, self._pool_size, self._group
            )
        ready = partial(make_ready_async, first=first, limit_ms=limit_ms)
        return pool.connection(ready, wait_s, short_wait_s)

    def _leave_ended_loops(self) -> None:
        """Close what loops have left open that ended without `close_async`, as each call through async_to_sync does."""
        # A pool's timer knows its loop, so neither would ever go by itself.
        for each in self._pools.keyrefs():
            loop = each()
            if loop is not None and loop.is_closed() and (pool := self._pools.pop(loop, None)):
                pool.give_way(entirely=True)

    def _sync_pool(self) -> PostgresPool:
        """The pool of this process; threads that come first together make one."""
        with self._making_pool:
            if self._pool is None:
                self._pool = PostgresPool(self._connect, self._pool_size, self._group)
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
            self._group = PoolGroup(shortage_of(self._url), self._all_pools)
            self._open_connections = OpenConnections(shortage_of(self._url))


_LIMIT = "select pg_catalog.set_config('statement_timeout', %s, %s)"


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

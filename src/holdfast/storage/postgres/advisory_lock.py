"""The lock of a singleton cycle: an advisory lock in a transaction of its own, on a connection of its own.

The transaction is READ COMMITTED and runs nothing but the lock and pings, by the simple protocol: a write would hold an
xid, a portal left open its snapshot, and either would hold back vacuum for as long as the cycle runs.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql

from holdfast.core.errors import DatabaseUnreachable
from holdfast.storage.postgres.connection import connection_string, unreachable

# In one message, so that no timeout strikes in between, and for the transaction alone: behind a pooler the session is
# another client's afterwards. Which of them a server knows depends on its version, so they are looked up.
_BEGIN = """
begin isolation level read committed;
select set_config(name, '0', true) from pg_settings
 where name in ('idle_in_transaction_session_timeout', 'transaction_timeout')
"""
_LOCK = sql.SQL("select pg_try_advisory_xact_lock(hashtextextended({}, 0))")
_PING = "select 1"
_END = "rollback"


class PostgresSingleton:
    """See `storage.database.Singleton`."""

    def __init__(self, url: str, key: str, timeout_ms: int) -> None:
        self.key = key
        self._url = url
        self._timeout_ms = timeout_ms
        self._connection: AsyncConnection[Any] | None = None

    async def acquire(self) -> bool:
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await self._acquire()
        except (psycopg.Error, OSError, TimeoutError) as error:
            self._drop()
            raise unreachable(self._url, error) from error
        except asyncio.CancelledError:
            self._drop()
            raise

    async def ping(self) -> None:
        connection = self._connection
        if connection is None:
            raise DatabaseUnreachable(f"the lock {self.key} is not held")
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                await connection.execute(_PING)
        except (psycopg.Error, OSError, TimeoutError) as error:
            self._drop()
            raise DatabaseUnreachable(f"the connection of lock {self.key} was lost") from error
        except asyncio.CancelledError:
            self._drop()
            raise

    async def release(self) -> None:
        connection = self._connection
        if connection is not None:
            # Closing alone would free the lock only when the server notices.
            with suppress(psycopg.Error, OSError, TimeoutError):
                async with asyncio.timeout(self._timeout_ms / 1000):
                    await connection.execute(_END)
        self._drop()

    async def _acquire(self) -> bool:
        connection = await AsyncConnection.connect(
            connection_string(self._url, "singleton", self._timeout_ms),
            autocommit=True,
            prepare_threshold=None,
        )
        self._connection = connection
        await connection.execute(_BEGIN)
        cursor = await connection.execute(_LOCK.format(sql.Literal(self.key)))
        row = await cursor.fetchone()
        if row is not None and row[0]:
            return True
        self._drop()
        return False

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.pgconn.finish()

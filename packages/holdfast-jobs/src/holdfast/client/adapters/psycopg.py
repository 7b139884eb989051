"""psycopg 3, sync and async."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus

from holdfast.client.adapters.base import Access, AsyncAdapter, Need, SyncAdapter
from holdfast.core.errors import (
    ConnectionClosed,
    NoTransaction,
    TransactionAborted,
    UnsupportedConnection,
)
from holdfast.storage.operation import AsyncExecutor, SyncExecutor
from holdfast.storage.postgres.connection import PsycopgAsyncExecutor, PsycopgExecutor

_FIX = "use `with connection.transaction():`, or connect without autocommit=True"
_ASYNC_FIX = "use `async with connection.transaction():`, or connect without autocommit=True"


class PsycopgAdapter(SyncAdapter):
    """A sync connection; without autocommit its first statement begins the transaction."""

    def __init__(self, connection: Connection[Any], fix: str = _FIX) -> None:
        self._connection = connection
        self._fix = fix

    def open(self, need: Need) -> Access[SyncExecutor]:
        _check(self._connection, need, self._fix)
        return Access(PsycopgExecutor(self._connection, need.schema))


class PsycopgAsyncAdapter(AsyncAdapter):
    """Async version of `PsycopgAdapter`."""

    def __init__(self, connection: AsyncConnection[Any], fix: str = _ASYNC_FIX) -> None:
        self._connection = connection
        self._fix = fix

    async def open(self, need: Need) -> Access[AsyncExecutor]:
        _check(self._connection, need, self._fix)
        return Access(PsycopgAsyncExecutor(self._connection, need.schema))


def _check(connection: Connection[Any] | AsyncConnection[Any], need: Need, fix: str) -> None:
    need.check_dialect("postgresql")
    idle = is_idle(connection)
    # `connection.info` would be made anew for each question.
    if connection.pgconn.parameter_status(b"client_encoding") != b"UTF8":
        raise UnsupportedConnection(
            f"the psycopg connection's client encoding is {connection.info.encoding}",
            help="connect with client_encoding=utf8",
        )
    if need.writes and idle and connection.autocommit:
        raise NoTransaction("the psycopg connection is in autocommit mode", help=fix)


def is_idle(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether no transaction is open. Raises: ConnectionClosed, TransactionAborted."""
    if connection.closed:
        raise ConnectionClosed("the psycopg connection is closed")
    status = connection.pgconn.transaction_status
    if status == TransactionStatus.INERROR:
        raise TransactionAborted("the transaction of the psycopg connection has failed")
    return status == TransactionStatus.IDLE

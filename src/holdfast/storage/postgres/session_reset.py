"""Resets the session of a pooled connection between two users, and begins the next one's work.

The reset is sent when the connection comes back and its answer is read when it is lent again, so nobody waits for it.
Settings, roles, temporary tables, channels listened to, cursors, locks and the last values of sequences go. Where no
statement but ours was run there is nothing to reset. The first message of the next user, mostly BEGIN, also shows that
the connection still works. What lies in the pool unused is closed after a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from psycopg import Connection, errors, generators
from psycopg.abc import PQGen
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from holdfast.storage.postgres.connection import STATEMENT_TIMEOUT_MS, PoolConnection

NOTHING = b""
"""The message of those who begin with none of their own."""

# All that DISCARD ALL does but for prepared statements and plans, for callers who only read and wrote rows: without
# those every statement would be planned anew. The last answer shows whether they are still as psycopg knows them.
_RESET = (
    b"close all; set session authorization default; reset all; unlisten *; discard sequences; discard temp; "
    b"select pg_catalog.pg_advisory_unlock_all(), (select pg_catalog.count(*) from pg_catalog.pg_prepared_statements)"
)
_RESET_ALL = b"discard all"

_LIMIT = b"set statement_timeout = %d"

_OK = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.EMPTY_QUERY)


Used: TypeAlias = Literal["rows", "anything"]


class PooledConnection(Connection[Any]):
    """A connection of our pool.

    `used` says what its session may hold: None while only our statements were run on it, `rows` when a caller's were
    which at first sight only read and write rows. `resetting` is the reset that was sent and not yet answered.
    `prepares_after` is how often a statement is seen before it is prepared, None where nothing may be.
    """

    used: Used | None = None
    resetting: bytes | None = None
    prepares_after: int | None = None
    limit_ms: int | None = None
    # psycopg's own word for a connection that may end with its loop or process, unclosed and without a warning.
    _pool = None


class PooledAsyncConnection(PoolConnection):
    """Async version of `PooledConnection`; `limit_ms` is how long a statement may take, None when nobody knows."""

    used: Used | None = None
    resetting: bytes | None = None
    prepares_after: int | None = None
    limit_ms: int | None = None
    _pool = None


def send_reset(connection: PooledConnection | PooledAsyncConnection) -> None:
    """Have the server undo what a caller left, without waiting for it; fails on a connection that no longer works."""
    if connection.used is None:
        return
    is_light = connection.used == "rows" and connection.prepares_after is not None
    connection.resetting = _RESET if is_light else _RESET_ALL
    connection.pgconn.send_query(connection.resetting)


def make_ready(connection: PooledConnection, first: bytes = NOTHING) -> None:
    """Have a connection be as good as new and send the first message; fails on one that no longer works."""
    for step in _steps(connection, first):
        connection.wait(step)


async def make_ready_async(
    connection: PooledAsyncConnection,
    first: bytes = NOTHING,
    limit_ms: int = STATEMENT_TIMEOUT_MS,
) -> None:
    """Async version of `make_ready`, and have statements end after so long where the session is ours alone."""
    for step in _steps(connection, first, limit_ms):
        await connection.wait(step)


def _steps(connection: Any, first: bytes, limit_ms: int | None = None) -> Iterator[PQGen[Any]]:
    if connection.resetting is not None:
        yield _collect_reset(connection)
    if connection.resetting is not None:
        connection.pgconn.send_query(connection.resetting)
        yield _collect_reset(connection)
    if limit_ms != connection.limit_ms and None not in (limit_ms, connection.prepares_after):
        yield _run(connection, _LIMIT % limit_ms)
        connection.limit_ms = limit_ms
    yield _run(connection, first)


def _collect_reset(connection: Any) -> PQGen[None]:
    """Read the answer to a reset; where prepared statements came or went unseen another one is to be sent."""
    results = yield from _answers(connection)
    if connection.resetting == _RESET and _prepared_unseen(connection, results[-1]):
        connection.resetting = _RESET_ALL
        return
    if connection.resetting == _RESET_ALL:
        # psycopg knows of no prepared statement, as the server does.
        connection._prepared = type(connection._prepared)()
    connection.resetting = connection.used = None
    connection.prepare_threshold = connection.prepares_after
    connection.limit_ms = STATEMENT_TIMEOUT_MS


def _run(connection: Any, message: bytes) -> PQGen[list[PGresult]]:
    connection.pgconn.send_query(message)
    return (yield from _answers(connection))


def _answers(connection: Any) -> PQGen[list[PGresult]]:
    results: list[PGresult] = yield from generators.execute(connection.pgconn)
    for each in results:
        if each.status not in _OK:
            raise errors.error_from_result(each)
    return results


def _prepared_unseen(connection: Any, answer: PGresult) -> bool:
    prepared = connection._prepared
    return int(answer.get_value(0, 1) or 0) != len(prepared._names) + len(prepared._to_flush)

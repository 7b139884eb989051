"""Spares the next user of a pool's connection what the last one left in its session.

It is done when the connection is lent again, in place of the empty statement that proves that it works: so it costs no
round trip, and nothing at all where no statement but ours was run. Settings, roles, temporary tables, channels listened
to, cursors, locks and prepared statements all go. What lies in the pool unused is closed after a minute.
"""

from __future__ import annotations

from typing import Any

from holdfast.storage.postgres.connect import STATEMENT_TIMEOUT_MS
from holdfast.storage.postgres.lent import PooledAsyncConnection, PooledConnection

_NOTHING = ""
_UNDO = "discard all"


def tidy(connection: PooledConnection) -> None:
    """Undo what a caller's statements left behind; fails on a connection that no longer works."""
    if not connection.is_used:
        connection.execute(_NOTHING, prepare=False)
        return
    connection.execute(_UNDO, prepare=False)
    _forget_prepared(connection)
    connection.is_used = False


async def tidy_async(connection: PooledAsyncConnection) -> None:
    """The same in the other colour."""
    if not connection.is_used:
        await connection.execute(_NOTHING, prepare=False)
        return
    await connection.execute(_UNDO, prepare=False)
    _forget_prepared(connection)
    connection.is_used = False
    connection.limit_ms = STATEMENT_TIMEOUT_MS


def _forget_prepared(connection: Any) -> None:
    """Have psycopg know of no prepared statement, as the server does, whatever its user set about them."""
    connection._prepared = type(connection._prepared)()
    connection.prepare_threshold = connection.prepares_after

"""Spares the next user of a pool's connection what the last one left in its session.

It is done when the connection is lent again, in place of the empty statement that proves that it works: so it costs no
round trip, and nothing at all where no statement but ours was run. Settings, roles and temporary tables go; locks that
the session holds stay.
"""

from __future__ import annotations

from holdfast.storage.postgres.connect import STATEMENT_TIMEOUT_MS
from holdfast.storage.postgres.hooked import HookedAsyncConnection, HookedConnection

_NOTHING = ""
# DISCARD ALL would make the server forget the statements that psycopg believes prepared.
_UNDO = "reset all; set session authorization default; discard temp"


def tidy(connection: HookedConnection) -> None:
    """Undo what a caller's statements left behind; fails on a connection that no longer works."""
    connection.execute(_UNDO if connection.is_used else _NOTHING, prepare=False)
    connection.is_used = False


async def tidy_async(connection: HookedAsyncConnection) -> None:
    """The same in the other colour."""
    if not connection.is_used:
        await connection.execute(_NOTHING, prepare=False)
        return
    await connection.execute(_UNDO, prepare=False)
    connection.is_used = False
    connection.limit_ms = STATEMENT_TIMEOUT_MS

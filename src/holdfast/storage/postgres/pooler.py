"""Finds out whether a pooler stands before the server: what one session prepares, the next may not know there."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection, Connection

_BACKEND = "select pg_backend_pid()"


def is_pooled(connection: Connection[Any]) -> bool:
    """Say whether the backend is another than we were told at the start: a pooler makes up that number."""
    row = connection.execute(_BACKEND).fetchone()
    return row is not None and row[0] != connection.info.backend_pid


async def is_pooled_async(connection: AsyncConnection[Any]) -> bool:
    """The same in the other colour."""
    cursor = await connection.execute(_BACKEND)
    row = await cursor.fetchone()
    return row is not None and row[0] != connection.info.backend_pid

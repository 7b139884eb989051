"""The driver's connection below a transaction of SQLAlchemy; a module of its own, since not all have SQLAlchemy."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection
from sqlalchemy.orm import Session, scoped_session

from holdfast.client.adapters.sqlalchemy import begun, driver_connection, session_connection


def driver_below(tx: Session | scoped_session[Any] | Connection) -> Any:
    """Return the driver's own connection, its transaction begun as the next statement would begin it."""
    if isinstance(tx, Connection):
        return driver_connection(begun(tx))
    return driver_connection(session_connection(tx() if isinstance(tx, scoped_session) else tx))


async def driver_below_async(tx: Any) -> Any:
    """See `driver_below`, of an AsyncSession, async_scoped_session or AsyncConnection."""
    # Only a scoped session can be called; its class is in the asyncio part of SQLAlchemy, which needs greenlet.
    return await (tx() if callable(tx) else tx).run_sync(driver_below)

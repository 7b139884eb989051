"""SQLAlchemy's AsyncSession and AsyncConnection, which work inside its greenlet.

A module of its own: SQLAlchemy's asyncio part needs greenlet, which a sync application may not have.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.util import await_only

from holdfast.client.adapters import adapter_of
from holdfast.client.adapters.asyncpg import AsyncpgAdapter
from holdfast.client.adapters.base import Access, AsyncAdapter, Need
from holdfast.client.adapters.sqlalchemy import (
    AUTOCOMMIT_FIX,
    after_commit_of,
    begun,
    driver_connection,
    explain_errors,
    session_connection,
)
from holdfast.core.errors import ConnectionClosed
from holdfast.storage.after_commit import Hooks
from holdfast.storage.operation import AsyncExecutor, run_async


class AsyncConnectionAdapter(AsyncAdapter):
    """See `ConnectionAdapter`."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def open(self, need: Need) -> Access[AsyncExecutor]:
        if self._connection.sync_connection is None or self._connection.closed:
            raise ConnectionClosed("the SQLAlchemy connection is closed")
        adapter = await self._connection.run_sync(lambda each: _async_driver_adapter(begun(each)))
        return await adapter.open(need)


class AsyncSessionAdapter(AsyncAdapter):
    """See `SessionAdapter`."""

    def __init__(self, session: AsyncSession | async_scoped_session[Any]) -> None:
        self._session: AsyncSession = (
            session() if isinstance(session, async_scoped_session) else session
        )

    async def open(self, need: Need) -> Access[AsyncExecutor]:
        adapter = await self._session.run_sync(
            lambda each: _async_driver_adapter(session_connection(each))
        )
        access = await adapter.open(need)
        if need.is_last:
            await self._session.flush()

        def review(hooks: Hooks) -> None:
            # SQLAlchemy reports its commit inside its greenlet.
            await_only(run_async(hooks.review(need.store), access.executor))

        return access._replace(after_commit=after_commit_of(self._session.sync_session, review))


def _async_driver_adapter(connection: Connection) -> AsyncAdapter:
    driver = driver_connection(connection)
    adapter = adapter_of(driver, AUTOCOMMIT_FIX)
    assert isinstance(adapter, AsyncAdapter)
    if isinstance(adapter, AsyncpgAdapter) and not driver.is_in_transaction():
        # SQLAlchemy begins asyncpg's transaction with the first statement that passes through it.
        with explain_errors():
            connection.exec_driver_sql("select 1")
    return adapter

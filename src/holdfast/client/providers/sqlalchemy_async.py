"""SQLAlchemy's AsyncSession and AsyncConnection: the same meaning, found out inside their greenlet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session
from sqlalchemy.util import await_only

from holdfast.client.providers import provider_of
from holdfast.client.providers.asyncpg import AsyncpgProvider
from holdfast.client.providers.port import Access, AsyncProvider, Need
from holdfast.client.providers.sqlalchemy import (
    AUTOCOMMIT_FIX,
    after_commit_of,
    begun,
    driver_connection,
    explained,
    session_connection,
)
from holdfast.core.errors import ConnectionClosed
from holdfast.storage.after_commit import Hooks
from holdfast.storage.operation import AsyncExecutor, run_async


class AsyncConnectionProvider(AsyncProvider):
    """See `ConnectionProvider`."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def open(self, need: Need) -> Access[AsyncExecutor]:
        if self._connection.sync_connection is None or self._connection.closed:
            raise ConnectionClosed("the SQLAlchemy connection is closed")
        provider = await self._connection.run_sync(lambda each: _driver_provider(begun(each)))
        return await provider.open(need)


class AsyncSessionProvider(AsyncProvider):
    """See `SessionProvider`."""

    def __init__(self, session: AsyncSession | async_scoped_session[Any]) -> None:
        self._session: AsyncSession = (
            session() if isinstance(session, async_scoped_session) else session
        )

    async def open(self, need: Need) -> Access[AsyncExecutor]:
        provider = await self._session.run_sync(_session_provider)
        access = await provider.open(need)

        def review(hooks: Hooks) -> None:
            # SQLAlchemy tells of its commit inside its greenlet.
            await_only(run_async(hooks.review(need.store), access.executor))

        return replace(access, after_commit=after_commit_of(self._session.sync_session, review))


def _session_provider(session: Session) -> AsyncProvider:
    return _driver_provider(session_connection(session))


def _driver_provider(connection: Connection) -> AsyncProvider:
    driver = driver_connection(connection)
    provider = provider_of(driver, AUTOCOMMIT_FIX)
    assert isinstance(provider, AsyncProvider)
    if isinstance(provider, AsyncpgProvider) and not driver.is_in_transaction():
        # SQLAlchemy begins asyncpg's transaction with the first statement that passes through it.
        with explained():
            connection.exec_driver_sql("select 1")
    return provider

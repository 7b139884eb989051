"""SQLAlchemy's sessions and connections, on each driver."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast import Holdfast
from tests.client.connection_types.held import HeldAsync, HeldSync, Kind, Open, Opened


def driver_url(url: str, driver: str) -> str:
    return re.sub(r"^(\w+)://", rf"\1+{driver}://", url)


def begin_for_savepoints(engine: Engine) -> None:
    """Let SQLAlchemy begin SQLite's transactions, as its documentation advises for savepoints."""

    @event.listens_for(engine, "connect")
    def leave_to_us(connection: Any, record: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("begin")


class HeldAlchemy(HeldSync):
    """A Session or a Connection: their methods have the same names."""

    async def execute(self, sql: str) -> None:
        self.tx.execute(text(sql))

    async def savepoint(self) -> None:
        self._part = self.tx.begin_nested()

    async def undo_savepoint(self) -> None:
        self._part.rollback()

    async def keep_savepoint(self) -> None:
        self._part.commit()


class HeldAsyncAlchemy(HeldAsync):
    """Async version of HeldAlchemy."""

    async def execute(self, sql: str) -> None:
        await self.tx.execute(text(sql))

    async def savepoint(self) -> None:
        self._part = await self.tx.begin_nested()

    async def undo_savepoint(self) -> None:
        await self._part.rollback()

    async def keep_savepoint(self) -> None:
        await self._part.commit()


@asynccontextmanager
async def async_engine(url: str, driver: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(driver_url(url, driver))
    if "sqlite" in driver:
        begin_for_savepoints(engine.sync_engine)
    try:
        yield engine
    finally:
        await engine.dispose()


@asynccontextmanager
async def sync_engine(url: str, driver: str) -> AsyncIterator[Engine]:
    engine = create_engine(driver_url(url, driver))
    if "sqlite" in driver:
        begin_for_savepoints(engine)
    try:
        yield engine
    finally:
        engine.dispose()


def sessions(driver: str) -> Open:
    @asynccontextmanager
    async def opened(url: str, app: Holdfast) -> Opened:
        async with sync_engine(url, driver) as engine:
            with Session(engine) as session:
                yield HeldAlchemy(session)

    return opened


def scoped_sessions(driver: str) -> Open:
    @asynccontextmanager
    async def opened(url: str, app: Holdfast) -> Opened:
        async with sync_engine(url, driver) as engine:
            session = scoped_session(sessionmaker(engine))
            yield HeldAlchemy(session)
            session.remove()

    return opened


def connections(driver: str) -> Open:
    @asynccontextmanager
    async def opened(url: str, app: Holdfast) -> Opened:
        async with sync_engine(url, driver) as engine:
            with engine.connect() as connection:
                yield HeldAlchemy(connection)

    return opened


def async_sessions(driver: str) -> Open:
    @asynccontextmanager
    async def opened(url: str, app: Holdfast) -> Opened:
        async with async_engine(url, driver) as engine, AsyncSession(engine) as session:
            yield HeldAsyncAlchemy(session)

    return opened


def async_scoped_sessions(driver: str) -> Open:
    @asynccontextmanager
    async def opened(url: str, app: Holdfast) -> Opened:
        async with async_engine(url, driver) as engine:
            session = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 0)
            yield HeldAsyncAlchemy(session)
            await session.remove()

    return opened


def async_connections(driver: str) -> Open:
    @asynccontextmanager
    async def opened(url: str, app: Holdfast) -> Opened:
        async with async_engine(url, driver) as engine, engine.connect() as connection:
            yield HeldAsyncAlchemy(connection)

    return opened


def _kinds(form: str, open: Any, drivers: dict[str, str], tells_of_commit: bool) -> list[Kind]:
    return [
        Kind(f"{form}-{driver}", dialect, open(driver), tells_of_commit)
        for driver, dialect in drivers.items()
    ]


_SYNC = {"psycopg": "postgresql", "pysqlite": "sqlite"}
_ASYNC = {"psycopg": "postgresql", "asyncpg": "postgresql", "aiosqlite": "sqlite"}

ALCHEMY = [
    *_kinds("session", sessions, _SYNC, tells_of_commit=True),
    *_kinds("scoped-session", scoped_sessions, _SYNC, tells_of_commit=True),
    *_kinds("connection", connections, _SYNC, tells_of_commit=False),
    *_kinds("async-session", async_sessions, _ASYNC, tells_of_commit=True),
    *_kinds("async-scoped-session", async_scoped_sessions, _ASYNC, tells_of_commit=True),
    *_kinds("async-connection", async_connections, _ASYNC, tells_of_commit=False),
]

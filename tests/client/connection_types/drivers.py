"""Connections of drivers: psycopg, asyncpg, sqlite3, aiosqlite."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, closing, suppress

import aiosqlite
import asyncpg
import psycopg

from holdfast import Holdfast
from tests.client.connection_types.held import HeldAsync, HeldSync, Kind, Opened


def file_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


class HeldAsyncpg(HeldAsync):
    """asyncpg, whose transactions are objects of their own."""

    async def begin(self) -> None:
        self._transaction = self.tx.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()


@asynccontextmanager
async def open_psycopg(url: str, app: Holdfast) -> Opened:
    with closing(psycopg.connect(url)) as connection:
        yield HeldSync(connection)


@asynccontextmanager
async def open_psycopg_async(url: str, app: Holdfast) -> Opened:
    connection = await psycopg.AsyncConnection.connect(url)
    try:
        yield HeldAsync(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def open_asyncpg(url: str, app: Holdfast) -> Opened:
    connection = await asyncpg.connect(url)
    try:
        held = HeldAsyncpg(connection)
        await held.begin()
        yield held
    finally:
        await connection.close()


@asynccontextmanager
async def open_asyncpg_pool(url: str, app: Holdfast) -> Opened:
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
    ):
        held = HeldAsyncpg(connection)
        await held.begin()
        yield held
        with suppress(asyncpg.InterfaceError):
            await held.rollback()


@asynccontextmanager
async def open_sqlite3(url: str, app: Holdfast) -> Opened:
    with closing(sqlite3.connect(file_of(url))) as connection:
        yield HeldSync(connection)


@asynccontextmanager
async def open_sqlite3_begun(url: str, app: Holdfast) -> Opened:
    with closing(sqlite3.connect(file_of(url), isolation_level=None)) as connection:
        connection.execute("begin")
        yield HeldSync(connection)


@asynccontextmanager
async def open_aiosqlite(url: str, app: Holdfast) -> Opened:
    async with aiosqlite.connect(file_of(url)) as connection:
        yield HeldAsync(connection)


DRIVERS = [
    Kind("psycopg", "postgresql", open_psycopg),
    Kind("psycopg-async", "postgresql", open_psycopg_async),
    Kind("asyncpg", "postgresql", open_asyncpg),
    Kind("asyncpg-pool", "postgresql", open_asyncpg_pool),
    Kind("sqlite3", "sqlite", open_sqlite3),
    Kind("sqlite3-begun", "sqlite", open_sqlite3_begun),
    Kind("aiosqlite", "sqlite", open_aiosqlite),
]

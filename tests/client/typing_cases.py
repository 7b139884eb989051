"""What mypy and pyright know of each kind of connection; `make check` is the test."""

# mypy: allow-untyped-defs

from __future__ import annotations

import sqlite3
from typing import Any, assert_type
from uuid import UUID

import aiosqlite
import asyncpg
import psycopg
from django.db import connection as django_connection
from django.db.backends.base.base import BaseDatabaseWrapper
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from holdfast import (
    Cancel,
    Chain,
    CompletedChain,
    Continue,
    Holdfast,
    Job,
    JobInfo,
    Page,
    Snooze,
    Start,
)
from holdfast.core.records import AppliedMigration


def sync_connections_answer_at_once(
    app: Holdfast,
    psycopg_connection: psycopg.Connection[Any],
    sqlite_connection: sqlite3.Connection,
    session: Session,
    scoped: scoped_session[Session],
    alchemy_connection: Connection,
    django_wrapper: BaseDatabaseWrapper,
) -> None:
    assert_type(app.start(psycopg_connection, "mail"), Chain)
    assert_type(app.start(sqlite_connection, "mail"), Chain)
    assert_type(app.start(session, "mail"), Chain)
    assert_type(app.start(scoped, "mail"), Chain)
    assert_type(app.start(alchemy_connection, "mail"), Chain)
    assert_type(app.start(django_wrapper, "mail"), Chain)
    assert_type(app.start(django_connection, "mail"), Chain)
    with app.transaction() as tx:
        assert_type(app.start(tx, "mail", {"n": 1}, key="k", after="1h"), Chain)
        assert_type(app.start_many(tx, "mail", [1, 2], keys=["a", None]), list[Chain])
        assert_type(app.start_all(tx, [Start("mail", key="k")]), list[Chain])
        assert_type(app.publish(tx, "placed", priority=1), list[Chain])
        assert_type(app.jobs.list(tx=tx), Page[JobInfo])


async def async_connections_answer_when_awaited(
    app: Holdfast,
    psycopg_connection: psycopg.AsyncConnection[Any],
    sqlite_connection: aiosqlite.Connection,
    session: AsyncSession,
    scoped: async_scoped_session[AsyncSession],
    alchemy_connection: AsyncConnection,
) -> None:
    assert_type(await app.start(psycopg_connection, "mail"), Chain)
    assert_type(await app.start(sqlite_connection, "mail"), Chain)
    assert_type(await app.start(session, "mail"), Chain)
    assert_type(await app.start(scoped, "mail"), Chain)
    assert_type(await app.start(alchemy_connection, "mail"), Chain)
    async with app.transaction() as tx:
        assert_type(await app.start(tx, "mail"), Chain)
        assert_type(await app.start_many(tx, "mail", [1]), list[Chain])
        assert_type(await app.start_all(tx, [Start("mail")]), list[Chain])
        assert_type(await app.publish(tx, "placed"), list[Chain])
        assert_type(await app.aio.jobs.list(tx=tx), Page[JobInfo])


async def asyncpg_needs_no_stubs(
    app: Holdfast, connection: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    # No more than that: without stubs, mypy knows nothing of asyncpg.
    _: Chain = await app.start(connection, "mail")
    async with pool.acquire() as lent, lent.transaction():
        _ = await app.start(lent, "mail")
        __: list[Chain] = await app.publish(lent, "placed")
        assert_type(await app.aio.jobs.list(tx=lent), Page[JobInfo])


async def what_pages_and_applications_answer(app: Holdfast, page: Page[JobInfo]) -> None:
    assert_type(page[0], JobInfo)
    assert_type(page[:2], tuple[JobInfo, ...])
    assert_type([each.id for each in reversed(page)], list[UUID])
    assert_type(await app.aio.migrate(), list[AppliedMigration])
    async with app.worker(enabled=True) as worker:
        assert_type(worker.is_running, bool)


def mistakes_are_seen(app: Holdfast, session: Session, cursor: sqlite3.Cursor) -> None:
    app.start(session, "mail", priority="high")  # type: ignore[call-overload]
    app.start(session, "mail", colour="red")  # type: ignore[call-overload]
    app.start(cursor, "mail")  # type: ignore[call-overload]
    app.start("sqlite:///file.db", "mail")  # type: ignore[call-overload]


def inputs_are_checked_against_the_handler(app: Holdfast, session: Session) -> None:
    @app.job("order.charge")
    def charge(job: Job[str]) -> int:
        return len(job.input)

    @app.job("order.ship", batch=10)
    async def ship(jobs: list[Job[int]]) -> None:
        pass

    @app.job("clean")
    async def clean(job: Job[None]) -> None:
        pass

    assert_type(app.start(session, charge, "order 7", key="k"), Chain[int])
    assert_type(app.start(session, ship, 7), Chain[Any])
    assert_type(app.start(session, clean), Chain[None])
    assert_type(app.start_many(session, charge, ["a", "b"]), list[Chain[int]])
    app.start(session, charge, 7)  # type: ignore[arg-type]
    app.start(session, ship, "7")  # type: ignore[arg-type]
    app.start_many(session, charge, [7])  # type: ignore[arg-type]


async def outputs_are_typed_by_the_handler(
    app: Holdfast, session: Session, async_session: AsyncSession
) -> None:
    @app.job("order.charge")
    def charge(job: Job[str]) -> int:
        return len(job.input)

    @app.job("order.pack")
    async def pack(job: Job[str]) -> list[str] | Snooze | Cancel:
        return [job.input]

    @app.job("order.route")
    def route(job: Job[str]) -> int | Continue | Snooze:
        return Continue("order.pack", job.input)

    @app.job("order.begin")
    async def begin(job: Job[str]) -> Continue:
        return Continue("order.pack", job.input)

    @app.job("order.old")
    def unannotated(job):
        return 7

    charged = app.start(session, charge, "order 7")
    assert_type(app.chains.wait(charged), CompletedChain[int])
    assert_type(app.chains.wait(charged, "5s").output, int)
    assert_type(app.chains.wait(charged.id).output, Any)
    assert_type(app.chains.wait(str(charged.id)).output, Any)
    assert_type(charged.output, Any)  # None until it has completed
    len(app.chains.wait(charged).output)  # type: ignore[arg-type]

    packed = await app.start(async_session, pack, "order 7")
    assert_type(packed, Chain[list[str]])
    assert_type((await app.aio.chains.wait(packed)).output, list[str])
    (many,) = await app.start_many(async_session, pack, ["order 7"])
    assert_type((await app.aio.chains.wait(many)).output, list[str])

    # Another handler may end these.
    assert_type(app.chains.wait(app.start(session, route, "order 7")).output, Any)
    assert_type(app.chains.wait(app.start(session, begin, "order 7")).output, Any)

    assert_type(app.chains.wait(app.start(session, unannotated, 7)).output, Any)
    assert_type(app.chains.wait(app.start(session, "order.charge", 7)).output, Any)
    old: Chain = charged  # annotations from before chains had a type still fit
    assert_type(app.chains.wait(old).output, Any)

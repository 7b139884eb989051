"""Leases for an application's own table, on both stores in both colours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from holdfast.contrib.leases import Claimed, LeasedTable
from holdfast.core.errors import InvalidIdentifier, InvalidOption
from holdfast.storage.database import Database
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase

NOW = 1_760_000_000_000_000
LEASE_US = 60_000_000

_TABLES = {
    "postgres": "create table delivery (id integer primary key, status text not null, note text,"
    " locked_by text, lock_token uuid, locked_until timestamptz)",
    "sqlite": "create table delivery (id integer primary key, status text not null, note text,"
    " locked_by text, lock_token text, locked_until integer)",
}
_ROWS = "insert into delivery (id, status) values (3, 'pending'), (1, 'pending'), (2, 'pending'), (4, 'sent')"

Call = Callable[..., Coroutine[Any, Any, Any]]


class Table:
    """The leased table in one colour, each call in a transaction of its own."""

    def __init__(self, database: Database, colour: str) -> None:
        self.database = database
        self._colour = colour
        self._leases = LeasedTable("delivery", due="status like 'pend%'", order="id")

    async def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        if self._colour == "async":
            async with self.database.transaction_async() as tx:
                return await getattr(self._leases.aio, name)(tx, *arguments, **options)
        return await asyncio.to_thread(self._call_sync, name, *arguments, **options)

    def _call_sync(self, name: str, *arguments: Any, **options: Any) -> Any:
        with self.database.transaction() as tx:
            return getattr(self._leases, name)(tx, *arguments, **options)

    async def claim(self, limit: int = 10, now: int = NOW) -> Claimed:
        claimed: Claimed = await self.call("claim", "w-1", limit, "60s", now=now)
        return claimed

    async def rows(self) -> list[tuple[Any, ...]]:
        async with self.database.transaction_async() as tx:
            cursor = await tx.connection.execute(
                "select id, status, note, locked_by, lock_token is null from delivery order by id"
            )
            return [tuple(row) for row in await cursor.fetchall()]


@asynccontextmanager
async def _opened(request: pytest.FixtureRequest, kind: str) -> AsyncIterator[Database]:
    url: str = request.getfixturevalue(f"{kind}_url")
    database: Database
    if kind == "postgres":
        database = PostgresDatabase(url)
    else:
        database = SqliteDatabase(url.removeprefix("sqlite:///"))
    async with database.transaction_async() as tx:
        await tx.connection.execute(_TABLES[kind])
        await tx.connection.execute(_ROWS)
    yield database
    await database.close_async()


@pytest_asyncio.fixture(
    params=[(kind, colour) for kind in _TABLES for colour in ("sync", "async")],
    ids=lambda param: "-".join(param),
)
async def table(request: pytest.FixtureRequest) -> AsyncIterator[Table]:
    kind, colour = request.param
    async with _opened(request, kind) as database:
        yield Table(database, colour)


async def test_a_claim_takes_due_rows_in_order_under_one_token(table: Table) -> None:
    claimed = await table.claim(2)
    assert [row["id"] for row in claimed.rows] == [1, 2]
    assert {str(row["lock_token"]) for row in claimed.rows} == {claimed.token}
    assert {row["locked_by"] for row in claimed.rows} == {"w-1"}
    assert [row["id"] for row in (await table.claim()).rows] == [3]
    assert (await table.claim()).rows == []


async def test_many_claims_at_once_share_the_rows(table: Table) -> None:
    claims = await asyncio.gather(*(table.claim(1) for _ in range(6)))
    assert sorted(row["id"] for each in claims for row in each.rows) == [1, 2, 3]


async def test_finishing_changes_the_row_and_lets_go_of_it(table: Table) -> None:
    claimed = await table.claim(2)
    outcomes = {1: {"status": "sent", "note": "ok"}, 2: {"status": "pending"}}
    assert await table.call("finish", claimed.token, outcomes) == {1, 2}
    assert (await table.rows())[:2] == [
        (1, "sent", "ok", None, True),
        (2, "pending", None, None, True),
    ]


async def test_finishing_without_the_token_changes_nothing(table: Table) -> None:
    old = await table.claim(1)
    assert await table.call("reap", now=NOW + LEASE_US) == {1}
    new = await table.claim(1, now=NOW + LEASE_US)
    assert await table.call("finish", old.token, {1: {"status": "sent"}}) == set()
    assert await table.call("renew", old.token, "60s", now=NOW + LEASE_US) == set()
    assert await table.call("release", old.token) == set()
    assert await table.call("finish", new.token, {1: {"status": "done"}}) == {1}
    assert (await table.rows())[0][1] == "done"


async def test_an_expired_row_that_nobody_reaped_may_still_be_finished(table: Table) -> None:
    claimed = await table.claim(1)
    assert [row["id"] for row in (await table.claim(1, now=NOW + 5 * LEASE_US)).rows] == [2]
    assert await table.call("finish", claimed.token, {1: {"status": "sent"}}) == {1}


async def test_renewing_keeps_rows_from_the_reaper(table: Table) -> None:
    claimed = await table.claim(2)
    later = NOW + LEASE_US - 1
    assert await table.call("renew", claimed.token, "60s", now=later) == {1, 2}
    assert await table.call("reap", now=NOW + LEASE_US) == set()
    assert await table.call("reap", now=later + LEASE_US) == {1, 2}


async def test_reaping_is_bounded_and_may_change_columns(table: Table) -> None:
    await table.claim(3)
    values = {"note": "the worker died"}
    assert await table.call("reap", 2, values, now=NOW + LEASE_US) == {1, 2}
    assert await table.call("reap", 2, now=NOW + LEASE_US) == {3}
    assert [row[2] for row in await table.rows()] == [
        "the worker died",
        "the worker died",
        None,
        None,
    ]


async def test_releasing_gives_everything_back(table: Table) -> None:
    claimed = await table.claim(2)
    assert await table.call("release", claimed.token) == {1, 2}
    assert len((await table.claim()).rows) == 3


async def test_the_databases_clock_is_used_unless_told_otherwise(table: Table) -> None:
    claimed: Claimed = await table.call("claim", "w-1", 1)
    assert await table.call("reap") == set()
    assert await table.call("renew", claimed.token) == {1}


@pytest.mark.parametrize("name", ["x; drop table y", 'a"b', "a.b.c", "", "1a", "x" * 64])
def test_names_that_cannot_be_quoted_are_refused(name: str) -> None:
    with pytest.raises(InvalidIdentifier):
        LeasedTable(name, due="true")
    if "." not in name:
        with pytest.raises(InvalidIdentifier):
            LeasedTable("t", due="true", key=name)


async def test_a_column_that_cannot_be_quoted_is_refused(table: Table) -> None:
    claimed = await table.claim(1)
    with pytest.raises(InvalidIdentifier):
        await table.call("finish", claimed.token, {1: {"status = 'x' --": 1}})
    with pytest.raises(InvalidOption):
        await table.call("claim", "w-1", 0)

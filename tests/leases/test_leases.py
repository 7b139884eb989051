"""Leases for an application's own table, on both stores in both colours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from holdfast.core.errors import InvalidIdentifier, InvalidOption
from holdfast.storage.database import Database
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast_leases import PUSH_BACKOFF, Claimed, LeasedTable, Retried, RowRetry

NOW = 1_760_000_000_000_000
LEASE_US = 60_000_000
MINUTE_US = 60_000_000
RETRY = RowRetry("attempts", "next_at", PUSH_BACKOFF)

_TABLES = {
    "postgres": "create table delivery (id integer primary key, status text not null, note text,"
    " locked_by text, lock_token uuid, locked_until timestamptz,"
    " attempts integer not null default 0, next_at timestamptz)",
    "sqlite": "create table delivery (id integer primary key, status text not null, note text,"
    " locked_by text, lock_token text, locked_until integer,"
    " attempts integer not null default 0, next_at integer)",
}
_ROWS = "insert into delivery (id, status) values (3, 'pending'), (1, 'pending'), (2, 'pending'), (4, 'sent')"

Call = Callable[..., Coroutine[Any, Any, Any]]


class Table:
    """The leased table in one colour, each call in a transaction of its own."""

    def __init__(self, database: Database, colour: str, retry: RowRetry | None = None) -> None:
        self.database = database
        self._colour = colour
        self._leases = LeasedTable("delivery", due="status like 'pend%'", order="id", retry=retry)

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

    async def attempts(self) -> list[int]:
        """How many attempts each row had."""
        async with self.database.transaction_async() as tx:
            cursor = await tx.connection.execute("select attempts from delivery order by id")
            return [row[0] for row in await cursor.fetchall()]

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


each_table = pytest_asyncio.fixture(
    params=[(kind, colour) for kind in _TABLES for colour in ("sync", "async")],
    ids=lambda param: "-".join(param),
)


@each_table
async def table(request: pytest.FixtureRequest) -> AsyncIterator[Table]:
    kind, colour = request.param
    async with _opened(request, kind) as database:
        yield Table(database, colour)


@each_table
async def retrying(request: pytest.FixtureRequest) -> AsyncIterator[Table]:
    """The table with columns for retries."""
    kind, colour = request.param
    async with _opened(request, kind) as database:
        yield Table(database, colour, RETRY)


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


async def test_a_row_is_retried_after_exactly_the_minutes_of_the_push_backoff(
    retrying: Table,
) -> None:
    now = NOW
    for minutes in (1, 2, 4, 8, 16, 32, 60):
        claimed = await retrying.claim(1, now)
        assert await retrying.call(
            "retry", claimed.token, {1: {"note": "busy"}}, {"status": "failed"}, now=now
        ) == Retried({1}, set())
        now += minutes * MINUTE_US
        early = await retrying.claim(1, now - 1)
        assert [row["id"] for row in early.rows] == [2]
        await retrying.call("release", early.token)
    claimed = await retrying.claim(1, now)
    assert await retrying.call(
        "retry", claimed.token, {1: {"note": "gone"}}, {"status": "failed"}, now=now
    ) == Retried(set(), {1})
    assert (await retrying.rows())[0] == (1, "failed", "gone", None, True)
    assert (await retrying.attempts())[0] == 8


async def test_a_provider_that_asks_for_more_patience_gets_it(retrying: Table) -> None:
    claimed = await retrying.claim(1)
    await retrying.call("retry", claimed.token, {1: {}}, at_least="5m", now=NOW)
    assert [row["id"] for row in (await retrying.claim(1, NOW + 5 * MINUTE_US - 1)).rows] == [2]
    assert [row["id"] for row in (await retrying.claim(1, NOW + 5 * MINUTE_US)).rows] == [1]


async def test_a_row_that_was_lost_is_neither_retried_nor_counted(retrying: Table) -> None:
    old = await retrying.claim(1)
    assert await retrying.call("reap", now=NOW + LEASE_US) == {1}
    later = NOW + LEASE_US + MINUTE_US
    await retrying.claim(1, later)
    assert await retrying.call("retry", old.token, {1: {"note": "x"}}) == Retried(set(), set())
    assert (await retrying.rows())[0][2] is None
    assert (await retrying.attempts())[0] == 1


async def test_reaping_counts_an_attempt_and_ends_a_row_after_the_last(retrying: Table) -> None:
    now = NOW
    for attempts in range(1, 9):
        assert [row["id"] for row in (await retrying.claim(1, now)).rows] == [1]
        assert await retrying.call("reap", now=now + LEASE_US - 1) == set()
        now += LEASE_US
        assert await retrying.call("reap", 10, {"note": "died"}, now, {"status": "failed"}) == {1}
        assert (await retrying.attempts())[0] == attempts
        now += 60 * MINUTE_US
    assert (await retrying.rows())[0] == (1, "failed", "died", None, True)


async def test_finishing_counts_an_attempt_and_releasing_does_not(retrying: Table) -> None:
    claimed = await retrying.claim(2)
    assert await retrying.call("finish", claimed.token, {1: {"status": "sent"}}) == {1}
    assert await retrying.call("release", claimed.token) == {2}
    assert (await retrying.attempts())[:2] == [1, 0]


async def test_a_table_without_columns_for_retries_refuses_to_retry(table: Table) -> None:
    claimed = await table.claim(1)
    with pytest.raises(InvalidOption, match="RowRetry"):
        await table.call("retry", claimed.token, {1: {}})
    with pytest.raises(InvalidOption, match="RowRetry"):
        await table.call("reap", exhausted={"status": "failed"})
    with pytest.raises(InvalidIdentifier):
        LeasedTable("delivery", due="true", retry=RowRetry("a b", "next_at"))


async def test_queues_that_share_a_table_leave_each_others_rows_alone(table: Table) -> None:
    sending = LeasedTable("delivery", due="true", where="status like 'pend%'", retry=RETRY)
    asking = LeasedTable("delivery", due="true", where="status = 'sent'")
    async with table.database.transaction_async() as tx:
        sent = await sending.aio.claim(tx, "w-1", now=NOW)
        asked = await asking.aio.claim(tx, "w-2", now=NOW)
    assert [row["id"] for row in sent.rows] == [1, 2, 3]
    assert [row["id"] for row in asked.rows] == [4]
    async with table.database.transaction_async() as tx:
        assert await asking.aio.reap(tx, now=NOW + LEASE_US) == {4}
        assert await sending.aio.reap(tx, now=NOW + LEASE_US) == {1, 2, 3}
    assert await table.attempts() == [1, 1, 1, 0]

"""Transactions for callers: the lock at the first statement, hooks after the commit and never otherwise."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import ConnectionClosed, NoTransaction
from holdfast.storage.operation import Op, run, run_async
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.sqlite.transaction import SqliteAsyncTransaction
from tests.storage.sqlite.scene import job_ids, locked, new_job


class Failure(Exception):
    """Leaves a block."""


@pytest.fixture(autouse=True)
def orders(database: SqliteDatabase) -> None:
    """A table of the user's own beside ours."""
    with database.transaction() as transaction:
        transaction.execute("create table orders (id integer primary key, paid integer)")


def count_orders(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        number: int = connection.execute("select count(*) from orders").fetchone()[0]
        return number


def test_business_row_and_job_are_committed_together(database: SqliteDatabase, path: Path) -> None:
    job, hooks = new_job(), []
    with database.transaction() as transaction:
        transaction.connection.execute("insert into orders values (1, 0)")
        transaction.after_commit(lambda: hooks.append(job_ids(path)))
        run(database.store.jobs.insert([job]), transaction)
        assert job_ids(path) == set()
    assert hooks == [{job.id}]
    assert count_orders(path) == 1


def test_an_exception_undoes_both_and_runs_no_hook(database: SqliteDatabase, path: Path) -> None:
    hooks: list[str] = []

    def place_order() -> None:
        with database.transaction() as transaction:
            transaction.execute("insert into orders values (?, ?)", (1, 0))
            transaction.after_commit(lambda: hooks.append("ran"))
            run(database.store.jobs.insert([new_job()]), transaction)
            raise Failure

    with pytest.raises(Failure):
        place_order()
    assert hooks == []
    assert job_ids(path) == set()
    assert count_orders(path) == 0


def test_the_lock_is_taken_at_the_first_statement(database: SqliteDatabase, path: Path) -> None:
    with database.transaction() as transaction:
        with locked(path) as theirs:
            theirs.execute("insert into orders values (1, 0)")
            theirs.execute("commit")
        # Begun only now, it sees what was committed since the block was entered.
        assert transaction.execute("select count(*) from orders").fetchone() == (1,)


def test_a_transaction_that_was_never_used_ends_quietly(database: SqliteDatabase) -> None:
    hooks: list[str] = []
    with database.transaction() as transaction:
        transaction.after_commit(lambda: hooks.append("ran"))
    assert hooks == ["ran"]


def test_a_transaction_cannot_be_used_after_its_block(database: SqliteDatabase) -> None:
    with database.transaction() as transaction:
        transaction.execute("select 1")
    with pytest.raises(ConnectionClosed, match="inside the app"):
        transaction.execute("select 1")


def test_ending_it_inside_the_block_is_refused(database: SqliteDatabase, path: Path) -> None:
    def place_order() -> None:
        with database.transaction() as transaction:
            transaction.execute("insert into orders values (1, 0)")
            transaction.connection.commit()
            run(database.store.jobs.insert([new_job()]), transaction)

    with pytest.raises(NoTransaction):
        place_order()
    assert job_ids(path) == set()


def test_a_caller_who_commits_by_hand_is_told_at_the_end(database: SqliteDatabase) -> None:
    def place_order() -> None:
        with database.transaction() as transaction:
            transaction.execute("insert into orders values (1, 0)")
            transaction.connection.commit()

    with pytest.raises(NoTransaction):
        place_order()


def test_a_savepoint_of_the_caller_drops_only_its_part(
    database: SqliteDatabase, path: Path
) -> None:
    kept, dropped = new_job(), new_job()
    with database.transaction() as transaction:
        run(database.store.jobs.insert([kept]), transaction)
        transaction.execute("savepoint mine")
        run(database.store.jobs.insert([dropped]), transaction)
        transaction.execute("rollback to mine")
        transaction.execute("release mine")
    assert job_ids(path) == {kept.id}


async def test_an_async_transaction_commits_business_row_and_job(
    database: SqliteDatabase, path: Path
) -> None:
    job, hooks = new_job(), []
    async with database.transaction_async() as transaction:
        written = await transaction.connection.execute("insert into orders values (?, 0)", [7])
        transaction.after_commit(lambda: hooks.append("ran"))
        await run_async(database.store.jobs.insert([job]), transaction)
        found = await transaction.execute("select id, paid from orders")
        assert (written.rowcount, await found.fetchone()) == (1, (7, 0))
        assert await found.fetchall() == []
    assert hooks == ["ran"]
    assert job_ids(path) == {job.id}


async def test_an_exception_undoes_an_async_transaction(
    database: SqliteDatabase, path: Path
) -> None:
    hooks: list[str] = []

    async def place_order() -> None:
        async with database.transaction_async() as transaction:
            transaction.after_commit(lambda: hooks.append("ran"))
            await run_async(database.store.jobs.insert([new_job()]), transaction)
            raise Failure

    with pytest.raises(Failure):
        await place_order()
    assert hooks == []
    assert job_ids(path) == set()


async def test_the_loop_goes_on_while_an_async_transaction_waits_for_the_lock(
    database: SqliteDatabase, path: Path
) -> None:
    async def place_order() -> None:
        async with database.transaction_async() as transaction:
            await transaction.execute("insert into orders values (1, 0)")

    with locked(path) as theirs:
        waiting = asyncio.create_task(place_order())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        theirs.execute("commit")
    await waiting
    assert count_orders(path) == 1


async def test_a_cancelled_transaction_leaves_nothing_and_holds_no_lock(
    database: SqliteDatabase, path: Path
) -> None:
    begun = asyncio.Event()

    async def hang() -> None:
        async with database.transaction_async() as transaction:
            await transaction.execute("insert into orders values (1, 0)")
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert count_orders(path) == 0
    assert await database.run_async(database.store.jobs.insert([new_job()]))


async def test_a_transaction_cancelled_while_it_waits_for_the_lock_gives_up_at_once(
    database: SqliteDatabase, path: Path
) -> None:
    async def place_order() -> None:
        async with database.transaction_async() as transaction:
            await transaction.execute("insert into orders values (1, 0)")

    with locked(path):
        task = asyncio.create_task(place_order())
        await asyncio.sleep(0)
        task.cancel()
        async with asyncio.timeout(2):
            with pytest.raises(asyncio.CancelledError):
                await task
    assert count_orders(path) == 0


async def test_the_statements_of_an_operation_go_to_the_thread_at_once_and_see_the_caller_s_context(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, ways = ContextVar("place", default="nowhere"), list[str]()
    run_in_thread = SqliteAsyncTransaction.run_in_thread

    def count(transaction: SqliteAsyncTransaction, work: Callable[[], Any]) -> asyncio.Future[Any]:
        ways.append("to the thread")
        return run_in_thread(transaction, work)

    def ask_twice() -> Op[tuple[str, int]]:
        yield from database.store.schema.clock()
        yield from database.store.schema.clock()
        return place.get(), threading.get_ident()

    monkeypatch.setattr(SqliteAsyncTransaction, "run_in_thread", count)
    place.set("here")
    async with database.transaction_async() as transaction:
        seen, thread = await run_async(ask_twice(), transaction)
        assert ways == ["to the thread"]
    assert seen == "here"
    assert thread != threading.get_ident()


async def test_many_async_transactions_take_turns(database: SqliteDatabase, path: Path) -> None:
    async def place_order(number: int) -> None:
        async with database.transaction_async() as transaction:
            await transaction.execute("insert into orders values (?, 0)", [number])
            await run_async(database.store.jobs.insert([new_job()]), transaction)

    await asyncio.gather(*(place_order(number) for number in range(20)))
    assert (count_orders(path), len(job_ids(path))) == (20, 20)

"""Rows of an application's own table, kept while a block works on them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from holdfast import Aborted, CycleRun, Holdfast
from holdfast.core.cycle import HeldSlot, Slot
from holdfast.core.errors import DatabaseUnreachable, LeaseLost
from holdfast.scheduler.cycle_run import WHOLE
from holdfast_leases import Claimed, LeasedTable, Retried, RowRetry
from tests.support.until import wait_until

_TABLES = {
    "postgres_url": "create table delivery (id integer primary key, status text not null default 'pending',"
    " attempts integer not null default 0, next_at timestamptz,"
    " locked_by text, lock_token uuid, locked_until timestamptz)",
    "sqlite_url": "create table delivery (id integer primary key, status text not null default 'pending',"
    " attempts integer not null default 0, next_at integer,"
    " locked_by text, lock_token text, locked_until integer)",
}
_UNTIL = "select max(locked_until) from delivery"

deliveries = LeasedTable(
    "delivery", due="status = 'pending'", retry=RowRetry("attempts", "next_at")
)


@pytest.fixture(params=_TABLES, ids=["postgres", "sqlite"])
def app(request: pytest.FixtureRequest) -> Iterator[Holdfast]:
    made = Holdfast(request.getfixturevalue(request.param))
    made.migrate()
    with made.transaction() as tx:
        tx.execute(_TABLES[request.param])
        tx.execute("insert into delivery (id) values (1), (2), (3)")
    yield made
    made.close()


def _claim(app: Holdfast, limit: int = 3) -> Claimed:
    with app.transaction() as tx:
        return deliveries.claim(tx, "w-1", limit, "2s")


def _one(app: Holdfast, statement: str) -> Any:
    with app.transaction() as tx:
        return tx.execute(statement).fetchone()[0]


def _await_renewal(app: Holdfast) -> None:
    before = _one(app, _UNTIL)
    wait_until(lambda: _one(app, _UNTIL) > before)


def _await_renewals(app: Holdfast) -> None:
    _await_renewal(app)
    _await_renewal(app)


def _renews() -> bool:
    return any(each.name == "holdfast kept rows" for each in threading.enumerate())


def _take_the_second_away(app: Holdfast) -> None:
    with app.transaction() as tx:
        tx.execute("update delivery set lock_token = null where id = 2")


def _run(app: Holdfast, held: HeldSlot | None = None) -> CycleRun:
    slot = Slot("2026-11-16T03:00:00Z", 0)
    return CycleRun("dispatch", slot, "r-1", "w-1", WHOLE, app.database, held)


def test_rows_are_renewed_while_the_block_works_and_no_longer(app: Holdfast) -> None:
    claimed = _claim(app)
    with deliveries.keep(app, claimed) as kept:
        _await_renewals(app)
        kept.checkpoint()
        assert kept.holds(1)
    assert not kept.lost
    assert not _renews()


async def test_a_handler_that_blocks_its_event_loop_keeps_its_rows(app: Holdfast) -> None:
    claimed = await asyncio.to_thread(_claim, app)
    async with deliveries.aio.keep(app, claimed) as kept:
        _await_renewals(app)
        kept.checkpoint()
        async with app.transaction() as tx:
            assert await kept.finish(tx, {1: {"status": "sent"}}) == {1}
            assert await kept.retry(tx, {2: {}}) == Retried({2}, set())
            assert await kept.release(tx) == {3}
        kept.checkpoint()


def test_the_block_learns_that_a_row_was_taken_away(app: Holdfast) -> None:
    told: list[frozenset[Any]] = []
    claimed = _claim(app)
    with deliveries.keep(app, claimed, told.append) as kept:
        _await_renewal(app)
        _take_the_second_away(app)
        wait_until(lambda: kept.lost)
        assert kept.lost == {2}
        assert not kept.holds(2)
        with pytest.raises(LeaseLost, match="taken_by_another_worker"):
            kept.checkpoint()
        _await_renewals(app)
        with app.transaction() as tx:
            outcomes = {each: {"status": "sent"} for each in (1, 2, 3)}
            assert kept.finish(tx, outcomes) == {1, 3}
    assert told == [{2}]


def test_what_was_finished_is_not_reported_as_lost(app: Holdfast) -> None:
    claimed = _claim(app)
    with deliveries.keep(app, claimed) as kept:
        with app.transaction() as tx:
            assert kept.finish(tx, {1: {"status": "sent"}}) == {1}
            assert kept.retry(tx, {2: {}}) == Retried({2}, set())
        _await_renewals(app)
        kept.checkpoint()
        with app.transaction() as tx:
            assert kept.release(tx) == {3}
        kept.checkpoint()


def test_a_callback_that_fails_does_not_end_the_renewals(app: Holdfast) -> None:
    def fail(keys: frozenset[Any]) -> None:
        raise ValueError("no")

    with deliveries.keep(app, _claim(app), fail) as kept:
        _take_the_second_away(app)
        wait_until(lambda: kept.lost)
        _await_renewals(app)


def test_an_aborted_run_keeps_no_rows(app: Holdfast) -> None:
    run = _run(app)
    with deliveries.keep(run, _claim(app)) as kept:
        _await_renewals(app)
        run.abort("timeout")
        with pytest.raises(Aborted):
            kept.checkpoint()
        wait_until(lambda: not _renews())


def test_a_run_that_lost_its_slot_loses_its_rows(app: Holdfast) -> None:
    slot = Slot("2026-11-16T03:00:00Z", 0)
    token = str(app.new_id())
    held = HeldSlot("dispatch", slot, token, token, 1)
    with deliveries.keep(_run(app, held), _claim(app)) as kept:
        wait_until(lambda: kept.lost)
        assert kept.lost == {1, 2, 3}
        with pytest.raises(LeaseLost, match="slot_lost"):
            kept.checkpoint()


class _Cut:
    """An application whose database cannot be reached."""

    def transaction(self) -> AbstractContextManager[Any]:
        raise DatabaseUnreachable("cut off")


def test_rows_count_as_lost_before_a_lease_that_cannot_be_renewed_ends(app: Holdfast) -> None:
    claimed = _claim(app)
    with deliveries.keep(_Cut(), claimed) as kept:
        kept.checkpoint()
        wait_until(lambda: kept.lost)
        with pytest.raises(LeaseLost, match="error"):
            kept.checkpoint()

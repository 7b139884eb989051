"""Cycles in a user's own tests: each run is claimed, fenced and recorded like a worker's, on both stores."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from holdfast import CycleRun, Holdfast, Job
from holdfast.errors import CycleNotFound
from holdfast_testing.kit import Kit

app = Holdfast()
threads: list[int] = []


@app.job("cart.drop")
def drop(job: Job[int]) -> None:
    """What the cycle starts."""


@app.cycle("cleanup", cron="17 3 * * *", max_items=2)
def cleanup(run: CycleRun) -> None:
    threads.append(threading.get_ident())
    with run.transaction() as tx:
        app.start_many(tx, drop, [1, 2, 3][: run.room(100)])
        run.count("processed", run.room(100))


@app.cycle("poll", every="1m", singleton=False)
async def poll(run: CycleRun) -> dict[str, int]:
    async with run.transaction() as tx:
        await app.start(tx, drop, run.attempt)
    return {"seen": 7}


@app.cycle("fragile", every="1m", attempts=3)
def fragile(run: CycleRun) -> None:
    with run.transaction() as tx:
        app.start(tx, drop, 1)
        raise ConnectionError("the shop is closed")


@app.cycle("slow", every="1m", timeout="1s")
def slow(run: CycleRun) -> None:
    run.wait_for_abort(30)
    run.checkpoint()


@pytest.fixture
def holdfast_app() -> Holdfast:
    threads.clear()
    return app


def test_a_cycle_runs_once_within_its_items_and_is_recorded(holdfast: Kit) -> None:
    run = holdfast.run_cycle("cleanup")
    assert (run.outcome, run.counters["processed"]) == ("completed", 2)
    assert len(holdfast.started("cart.drop")) == 2
    assert [each.id for each in app.cycles.runs("cleanup")] == [run.id]


def test_time_that_has_passed_brings_no_run_beside_the_one_of_the_test(holdfast: Kit) -> None:
    holdfast.run_cycle("cleanup")
    holdfast.advance("50h")
    run = holdfast.run_cycle("cleanup")
    assert len(app.cycles.runs("cleanup")) == 2
    assert run.started_at > app.cycles.runs("cleanup")[1].started_at
    assert len(holdfast.started("cart.drop")) == 4


def test_what_the_handler_raised_reaches_the_test_and_its_transaction_is_undone(
    holdfast: Kit,
) -> None:
    for _ in range(2):
        with pytest.raises(ConnectionError, match="the shop is closed"):
            holdfast.run_cycle("fragile")
        holdfast.advance("1h")
    assert [each.outcome for each in app.cycles.runs("fragile")] == ["failed", "failed"]
    assert holdfast.started() == []


def test_a_cycle_that_takes_too_long_is_aborted(holdfast: Kit) -> None:
    with pytest.raises(TimeoutError, match="the cycle slow was cancelled after 1000 ms"):
        holdfast.run_cycle("slow")


def test_an_unknown_cycle_is_refused_with_the_nearest_name(holdfast: Kit) -> None:
    with pytest.raises(CycleNotFound, match="cleanup"):
        holdfast.run_cycle("clean-up")


def test_an_async_cycle_of_every_replica_runs_as_well(holdfast: Kit) -> None:
    assert holdfast.run_cycle("poll").counters["seen"] == 7
    assert [each.input for each in holdfast.started()] == [1]


async def test_async_tests_await_their_cycles(holdfast: Kit) -> None:
    assert (await holdfast.run_cycle_async("cleanup")).counters["processed"] == 2
    assert (await holdfast.run_cycle_async("poll")).outcome == "completed"
    with pytest.raises(RuntimeError, match="run_cycle_async"):
        holdfast.run_cycle("cleanup")
    await app.aclose()


@pytest.fixture
def joined(holdfast_url: str) -> Iterator[Kit]:
    restore = app.bind(holdfast_url)
    app.migrate()
    url = holdfast_url.replace("postgresql:", "postgresql+psycopg:")
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        transaction = connection.begin()
        kit = Kit.joined(app, connection)
        yield kit
        kit.close()
        transaction.rollback()
    assert app.cycles.runs("cleanup") == []
    restore()


def test_a_cycle_runs_in_the_transaction_and_the_thread_of_the_test(joined: Kit) -> None:
    threads.clear()
    assert joined.run_cycle("cleanup").counters["processed"] == 2
    assert joined.run_cycle("poll").counters["seen"] == 7
    assert threads == [threading.get_ident()]
    assert len(joined.started("cart.drop")) == 3

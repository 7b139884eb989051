"""The nouns `cycles`, `workers` and `subscriptions`: what is scheduled, who works, who gets which event."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Holdfast, Job
from holdfast.core.errors import CycleNotFound, SubscriptionNotFound, WorkerNotFound
from holdfast.notify.base import is_about_cycles
from holdfast.scheduler.cycle_run import CycleRun
from holdfast.settings import read_settings
from holdfast.worker.options import WorkerOptions
from tests.client.conftest import Heard
from tests.support.until import PATIENCE_S, breath


async def test_a_cycle_that_is_asked_to_run_before_the_first_tick_runs_at_it(app: Holdfast) -> None:
    keys: list[str] = []

    @app.cycle("cleanup", cron="17 3 * * *")
    async def cleanup(run: CycleRun) -> None:
        keys.append(run.key)

    with app.transaction() as tx:
        app.cycles.run_now(tx, "cleanup")
    with app.transaction() as tx, pytest.raises(CycleNotFound, match="there is no cycle 'clenup'"):
        app.cycles.run_now(tx, "clenup")
    tick = app.assembly(read_settings({})).tick()
    await tick.run()
    await tick.close()
    assert len(keys) == 1


async def test_a_cycle_is_listed_paused_resumed_and_run_now(app: Holdfast, heard: Heard) -> None:
    keys: list[str] = []

    @app.cycle("cleanup", cron="17 3 * * *", tz="America/Santiago")
    async def cleanup(run: CycleRun) -> int:
        keys.append(run.key)
        return 3

    tick = app.assembly(read_settings({})).tick()
    await tick.run()
    (cycle,) = app.cycles.list()
    assert (cycle.name, cycle.zone, cycle.paused) == ("cleanup", "America/Santiago", False)
    assert cycle.last_slot <= datetime.now(UTC)
    with app.transaction() as tx:
        app.cycles.pause(tx, "cleanup", by="ana")
    assert [(each.paused, each.paused_by) for each in await app.aio.cycles.list()] == [
        (True, "ana")
    ]
    heard.hints.clear()
    async with app.transaction() as async_tx:
        await app.cycles.run_now(async_tx, "cleanup")
        assert heard.hints == []
    assert [is_about_cycles(each) for each in heard.hints] == [True]
    await tick.run()
    assert len(keys) == 1
    (run,) = app.cycles.runs("cleanup")
    assert (run.outcome, run.counters["processed"], run.error) == ("completed", 3, None)
    assert await app.aio.cycles.runs("cleanup") == [run]
    with app.transaction() as tx:
        app.cycles.resume(tx, "cleanup")
    assert [each.paused for each in app.cycles.list()] == [False]
    with pytest.raises(CycleNotFound), app.transaction() as tx:
        app.cycles.pause(tx, "nobody")
    await tick.close()


async def test_a_worker_is_listed_and_asked_to_drain(app: Holdfast) -> None:
    @app.job("report")
    async def report(job: Job[Any]) -> None: ...

    worker = app.make_worker(WorkerOptions(name="w", slots=3, heartbeat_ms=50))
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await app.aio.workers.list()):
            await breath()
        (known,) = found
        assert (known.id, known.name, known.slots, known.types) == (worker.id, "w", 3, ("report",))
        async with app.transaction() as async_tx:
            await app.workers.drain(async_tx, worker.id)
        await running
    (gone,) = app.workers.list(everyone=True)
    assert gone.stopped_at is not None
    with pytest.raises(WorkerNotFound), app.transaction() as tx:
        app.workers.drain(tx, worker.id)


async def test_a_subscription_is_listed_and_removed(app: Holdfast) -> None:
    @app.on("order.placed")
    def mail(job: Job[Any]) -> None: ...

    @app.on("order.placed")
    def stock(job: Job[Any]) -> None: ...

    app.migrate()
    found = app.subscriptions.list()
    assert [(each.event, each.handler, each.type) for each in found] == [
        ("order.placed", "mail", "order.placed/mail"),
        ("order.placed", "stock", "order.placed/stock"),
    ]
    assert await app.aio.subscriptions.list(limit=1) == found[:1]
    with app.transaction() as tx:
        app.subscriptions.remove(tx, "order.placed", "mail")
    async with app.transaction() as async_tx:
        await app.subscriptions.remove(async_tx, "order.placed", "stock")
    assert app.subscriptions.list() == []
    with (
        pytest.raises(SubscriptionNotFound, match="no handler 'mail' subscribes"),
        app.transaction() as tx,
    ):
        app.subscriptions.remove(tx, "order.placed", "mail")

"""What a tick reads and leaves in the database: its run, the global pause, the identity."""

from __future__ import annotations

import json

import pytest

from holdfast.core.errors import CopiedDatabase
from holdfast.core.instants import to_datetime
from holdfast.scheduler.runner import RunnerContext, RunnerReport
from holdfast.storage.database import Database
from tests.scheduler.scene import SECOND, ManualClock, pause_all
from tests.scheduler.ticks import FunctionRunner, Log, MakeTick, failing


async def test_a_single_tick_is_recorded_as_a_run(
    make_tick: MakeTick, log: Log, database: Database, clock: ManualClock
) -> None:
    summary = await make_tick(log.runner("a"), FunctionRunner("bad", failing)).run()
    (run,) = await database.run_async(database.store.runs.page(10, 1_000, "tick", clock.now()))
    assert (run.id, run.name, run.worker) == (summary.run_id, "tick", "w-1")
    assert (run.outcome, run.error) == ("failed", "failed: bad")
    assert to_datetime(run.started_at) == summary.started_at
    counted = run.counters.pop("counters")
    assert run.counters == json.loads(json.dumps(summary.as_dict()))
    assert (counted["ticks"], counted["processed"]) == (1, 0)


async def test_in_the_background_only_work_and_failures_are_recorded_and_seldom(
    make_tick: MakeTick, log: Log, database: Database, clock: ManualClock
) -> None:
    async def recorded() -> int:
        runs = await database.run_async(database.store.runs.page(50, 1_000, "tick", clock.now()))
        return len(runs)

    await make_tick(log.runner("idle"), mode="background").run()
    assert await recorded() == 0
    busy = make_tick(log.runner("busy", RunnerReport(processed=1)), mode="background")
    for _ in range(5):
        await busy.run()
    assert await recorded() == 1
    clock.advance(60)
    await busy.run()
    assert await recorded() == 2
    await make_tick(FunctionRunner("bad", failing), mode="background").run()
    assert await recorded() == 3


async def test_a_tick_of_the_background_is_recorded_from_its_beginning(
    make_tick: MakeTick, database: Database, clock: ManualClock
) -> None:
    async def work(context: RunnerContext) -> RunnerReport:
        clock.advance(5)
        return RunnerReport(processed=1)

    summary = await make_tick(FunctionRunner("slow", work), mode="background").run()
    (run,) = await database.run_async(database.store.runs.page(10, 1_000, "tick", clock.now()))
    assert to_datetime(run.started_at) == summary.started_at
    assert run.finished_at is not None
    assert run.finished_at - run.started_at == 5 * SECOND


async def test_a_global_pause_leaves_only_the_reaper(
    make_tick: MakeTick, log: Log, database: Database
) -> None:
    await pause_all(database)
    tick = make_tick(log.runner("reaper"), log.runner("outbox"))
    summary = await tick.run()
    assert log.ran == ["reaper"]
    assert summary.runner_results["outbox"].note == "paused"
    await pause_all(database, paused=False)
    await tick.run()
    assert log.ran == ["reaper", "reaper", "outbox"]


async def test_a_copied_database_is_not_worked_off_until_it_is_adopted(
    make_tick: MakeTick, log: Log, database: Database
) -> None:
    await pause_all(database, paused=False)
    table = "holdfast.identity" if database.store.dialect == "postgresql" else "holdfast_identity"
    async with database.transaction_async() as tx:
        await tx.connection.execute(f"update {table} set database_name = 'production'")  # noqa: S608
    tick = make_tick(log.runner("outbox"))
    with pytest.raises(CopiedDatabase, match=r"HF045.*production.*holdfast adopt"):
        await tick.run()
    assert log.ran == []
    adoption = database.store.schema.adopt("00000000-0000-7000-8000-000000000002")
    await database.run_async(adoption)
    await tick.run()
    assert log.ran == ["outbox"]

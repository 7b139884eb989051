"""Singleton cycles on a real PostgreSQL: eight replicas and 500 slots, and a lock that is lost during a run."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest

from holdfast.core.cycle import cycle_spec, slot_at
from holdfast.core.errors import LeaseLost
from holdfast.scheduler.cycle_run import CycleRun
from holdfast.storage.postgres.database import PostgresDatabase
from tests.scheduler.conftest import MakeReplica
from tests.scheduler.scene import NOON, SECOND, ManualClock, soon

pytestmark = pytest.mark.parametrize("database", ["postgres"], indirect=True)

_HOLDER = """
select pg_terminate_backend(pid, 5000) from pg_stat_activity
 where application_name = 'holdfast singleton' and datname = current_database()
"""


async def _execute(database: PostgresDatabase, text: str) -> list[tuple[Any, ...]]:
    async with database.transaction_async() as tx:
        cursor = await tx.execute(text)
        return await cursor.fetchall() if cursor.description else []


# Thousands of transactions, one after another: a slow disk may need a while.
@pytest.mark.timeout(600)
async def test_eight_replicas_complete_each_of_500_slots_once(
    database: PostgresDatabase, replica: MakeReplica, clock: ManualClock
) -> None:
    await _execute(database, "create table done (slot text)")
    random = Random(3)
    running: Counter[str] = Counter()

    async def work(run: CycleRun) -> None:
        running["now"] += 1
        running["most"] = max(running["most"], running["now"])
        try:
            async with run.transaction() as tx:
                await tx.execute("insert into done values (%s)", [run.key])
                if random.random() < 0.05:
                    raise RuntimeError("tripped")
        finally:
            running["now"] -= 1

    spec = cycle_spec(work, "cleanup", every="1m", missed="all(1000)", attempts=100)
    replicas = [replica(spec, worker=f"w-{number}") for number in range(8)]
    await replicas[0].run()
    for _ in range(25):
        clock.advance(20 * 60)
        await asyncio.gather(*(each.run() for each in replicas))
    # Failed slots rest before they run again, and a later slot waits for an earlier one.
    last = NOON + 500 * 60 * SECOND
    while (await _last_slot(database, clock)) < last:
        clock.advance(30)
        await asyncio.gather(*(each.run() for each in replicas))
    done = [row[0] for row in await _execute(database, "select slot from done")]
    due = [f"cleanup:{slot_at(NOON + minute * 60 * SECOND).name}" for minute in range(1, 501)]
    assert set(due) <= set(done)
    assert len(done) == len(set(done))
    assert running["most"] == 1
    outcomes = Counter(each.outcome for each in await replicas[0].runs())
    assert outcomes["completed"] == len(done)
    assert outcomes["failed"] > 0


async def _last_slot(database: PostgresDatabase, clock: ManualClock) -> int:
    (record,) = await database.run_async(database.store.cycles.page(clock.now()))
    return record.last_slot


async def test_a_run_whose_lock_is_lost_is_aborted_and_its_writes_are_refused(
    database: PostgresDatabase, replica: MakeReplica, clock: ManualClock
) -> None:
    await _execute(database, "create table done (slot text)")
    began = asyncio.Event()
    reasons: list[Any] = []

    async def work(run: CycleRun) -> int:
        if run.worker == "w-2":
            return 1
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            reasons.append(run.abort_reason)
            kept.append(run)
            raise
        return 0

    kept: list[CycleRun] = []
    spec = cycle_spec(work, "cleanup", every="1h")
    one, two = replica(spec, worker="w-1", mode="tick"), replica(spec, worker="w-2")
    await one.run()
    await two.run()
    clock.advance(3_600)
    running = asyncio.create_task(one.run())
    await soon(began)
    await _execute(database, _HOLDER)
    await clock.asleep(within=15)
    clock.advance(15)
    summary = await running
    assert reasons == ["lock_lost"]
    assert summary.failed_runners == ["cleanup"]
    assert (await two.run()).total_processed == 1
    with pytest.raises(LeaseLost):
        async with kept[0].transaction() as tx:
            await tx.execute("insert into done values ('zombie')")
    assert await _execute(database, "select slot from done") == []
    assert [(each.worker, each.outcome) for each in await two.runs()] == [
        ("w-2", "completed"),
        ("w-1", "aborted"),
    ]
    assert one.recorder.named("cycle_finished")[0]["outcome"] == "aborted"


async def test_a_lock_that_somebody_holds_skips_the_cycle_on_this_replica(
    database: PostgresDatabase, replica: MakeReplica, clock: ManualClock
) -> None:
    async def work(run: CycleRun) -> int:
        return 1

    made = replica(cycle_spec(work, "cleanup", every="1h"))
    await made.run()
    clock.advance(3_600)
    lock = database.singleton("worker:scheduler:cleanup")
    assert await lock.acquire()
    result = (await made.run()).runner_results["cleanup"]
    assert (result.processed, result.skipped, result.failed) == (0, 1, False)
    assert made.recorder.named("cycle_skipped")[0]["reason"] == "lock_is_held"
    await lock.release()
    assert (await made.run()).total_processed == 1

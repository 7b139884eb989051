"""Cycles across replicas: each slot once, caught up by policy, again after a failure, and when people ask."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.commands.cycles import pause_cycle, request_cycle
from holdfast.core.cycle import CycleSpec, cycle_spec
from holdfast.core.errors import InvalidOption
from holdfast.scheduler.cycle_run import CycleRun, Shard
from holdfast.scheduler.runner import Mode, RunnerReport
from holdfast.scheduler.tick import TickOptions
from holdfast.storage.database import Database
from holdfast.storage.operation import at
from tests.scheduler.conftest import MakeReplica
from tests.scheduler.scene import ManualClock, soon
from tests.support.until import breath

MINUTE = 60
HOUR = 3_600


class Diary:
    """Handlers that write down which slots they ran."""

    def __init__(self, answer: Any = None) -> None:
        self.keys: list[str] = []
        self.answer = answer
        self.error: Exception | None = None

    async def __call__(self, run: CycleRun) -> Any:
        self.keys.append(run.key)
        if self.error is not None:
            raise self.error
        return self.answer

    def spec(self, name: str = "cleanup", **options: Any) -> CycleSpec:
        async def handler(run: CycleRun) -> Any:
            return await self(run)

        return cycle_spec(handler, name, **({"every": "1m"} | options))


@pytest.fixture
def diary() -> Diary:
    return Diary()


async def test_a_new_cycle_begins_with_its_next_slot(
    replica: MakeReplica, clock: ManualClock, diary: Diary
) -> None:
    made = replica(diary.spec())
    await made.run()
    assert diary.keys == []
    assert made.tick.next_in_ms == MINUTE * 1_000 + 1
    clock.advance(MINUTE)
    await made.run()
    await made.run()
    assert diary.keys == ["cleanup:2025-01-01T12:01:00Z"]


async def test_of_two_replicas_one_runs_the_slot(
    replica: MakeReplica, clock: ManualClock, diary: Diary
) -> None:
    one, two = replica(diary.spec(), worker="w-1"), replica(diary.spec(), worker="w-2")
    await one.run()
    await two.run()
    for minute in range(1, 6):
        clock.advance(MINUTE)
        await asyncio.gather(one.run(), two.run())
        assert len(diary.keys) == minute
    assert len(set(diary.keys)) == 5


async def test_a_slot_missed_by_an_hour_is_caught_up_once(
    replica: MakeReplica, clock: ManualClock, diary: Diary
) -> None:
    spec = diary.spec(every=None, cron="17 12 * * *")
    await replica(spec).run()
    clock.advance(17 * MINUTE + HOUR)
    restarted = replica(spec)
    await restarted.run()
    await restarted.run()
    assert diary.keys == ["cleanup:2025-01-01T12:17:00Z"]


@pytest.mark.parametrize(("missed", "times"), [("none", 0), ("last", 1), ("all(3)", 3)])
async def test_missed_slots_follow_the_policy(
    replica: MakeReplica, clock: ManualClock, diary: Diary, missed: str, times: int
) -> None:
    made = replica(diary.spec(every="1h", missed=missed))
    await made.run()
    clock.advance(10 * HOUR + 20 * MINUTE)
    await made.run()
    await made.run()
    assert len(diary.keys) == times


@pytest.mark.parametrize("mode", ["tick", "background"])
async def test_each_run_that_is_caught_up_has_a_timeout_of_its_own(
    replica: MakeReplica, clock: ManualClock, mode: Mode
) -> None:
    async def take_long(run: CycleRun) -> None:
        clock.advance(2.5)
        await breath()

    spec = cycle_spec(take_long, "cleanup", every="1m", missed="all(10)", timeout="6s")
    made = replica(spec, mode=mode)
    await made.run()
    clock.advance(10 * MINUTE)
    await made.run()
    assert [each.outcome for each in await made.runs()] == ["completed"] * 10


async def test_a_slot_that_the_tick_s_budget_would_cut_is_left_to_the_next_tick(
    replica: MakeReplica, clock: ManualClock
) -> None:
    async def take_long(run: CycleRun) -> None:
        clock.advance(4.5)
        await breath()

    spec = cycle_spec(take_long, "cleanup", every="1h", missed="all(3)", timeout="5s")
    made = replica(spec, mode="tick", options=TickOptions(overall_ms=12_000))
    await made.run()
    clock.advance(3 * HOUR)
    summary = await made.run()
    assert (summary.failed_runners, len(await made.runs()), made.tick.next_in_ms) == ([], 2, 0)
    await made.run()
    assert [each.outcome for each in await made.runs()] == ["completed"] * 3


async def test_a_failed_slot_runs_again_under_the_same_key_until_its_attempts_are_spent(
    replica: MakeReplica, clock: ManualClock, diary: Diary
) -> None:
    diary.error = RuntimeError("no disk")
    made = replica(diary.spec(every="1d", attempts=2))
    await made.run()
    clock.advance(12 * HOUR)
    summary = await made.run()
    assert summary.failed_runners == ["cleanup"]
    assert summary.runner_results["cleanup"].note == "RuntimeError: no disk"
    await made.run()
    assert len(diary.keys) == 1
    assert made.tick.next_in_ms == 30_001
    clock.advance(30)
    await made.run()
    clock.advance(6 * HOUR)
    await made.run()
    assert diary.keys == ["cleanup:2025-01-02T00:00:00Z"] * 2
    assert [each.outcome for each in await made.runs()] == ["failed", "failed"]
    assert (await made.runs())[0].error == "RuntimeError: no disk"


@pytest.mark.parametrize(
    "answer",
    [
        {"processed": float("nan")},
        {"found": float("inf")},
        {"a \0": 1},
        {"a \ud800": 1},
        {7: 1},
        {"found": True},
        -5,
        10**30,
        True,
        "many",
    ],
    ids=ascii,
)
async def test_an_answer_that_cannot_be_kept_fails_the_run_and_is_recorded(
    replica: MakeReplica, clock: ManualClock, answer: Any
) -> None:
    made = replica(Diary(answer).spec())
    await made.run()
    clock.advance(MINUTE)
    summary = await made.run()
    assert summary.failed_runners == ["cleanup"]
    (run,) = await made.runs()
    assert run.outcome == "failed"
    assert "HF025" in str(run.error)


@pytest.mark.parametrize(
    ("answer", "counters"),
    [
        (None, {"processed": 0}),
        (0, {"processed": 0}),
        (7, {"processed": 7}),
        (RunnerReport(4, 3, 2, 1), {"processed": 4, "updated": 3, "skipped": 2, "errors": 1}),
        ({"processed": 2, "found": 9}, {"processed": 2, "found": 9}),
    ],
)
async def test_a_handlers_answer_is_counted_and_recorded(
    replica: MakeReplica, clock: ManualClock, answer: Any, counters: dict[str, int]
) -> None:
    made = replica(Diary(answer).spec())
    await made.run()
    clock.advance(MINUTE)
    summary = await made.run()
    assert summary.total_processed == counters["processed"]
    (run,) = await made.runs()
    nothing = {"processed": 0, "updated": 0, "skipped": 0, "errors": 0}
    assert (run.outcome, run.counters) == ("completed", nothing | counters)


async def test_a_run_counts_things_of_its_own(replica: MakeReplica, clock: ManualClock) -> None:
    async def ingest(run: CycleRun) -> None:
        run.count("tenders_new", 3)
        run.count("tenders_new")
        run.count("processed", 2)

    made = replica(cycle_spec(ingest, "ingest", every="1m"))
    await made.run()
    clock.advance(MINUTE)
    assert (await made.run()).total_processed == 2
    (run,) = await made.runs("ingest")
    assert run.counters["tenders_new"] == 4
    (finished,) = made.recorder.named("cycle_finished")
    assert finished["counters"] == {"processed": 2, "tenders_new": 4}


async def test_counters_are_visible_while_the_run_goes_on(
    replica: MakeReplica, clock: ManualClock
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def ingest(run: CycleRun) -> None:
        run.count("tenders_new", 3)
        began.set()
        await go_on.wait()

    made = replica(cycle_spec(ingest, "ingest", every="1m", timeout="1h"), mode="tick")
    await made.run()
    clock.advance(MINUTE)
    running = asyncio.create_task(made.run())
    await soon(began)
    assert await clock.asleep(within=15) == 15
    clock.advance(15)
    await clock.asleep(within=15)
    (run,) = await made.runs("ingest")
    assert (run.outcome, run.counters["tenders_new"]) == ("running", 3)
    go_on.set()
    await running


@pytest.mark.parametrize(
    ("name", "number"),
    [("", 1), ("a b", 1), ("x" * 61, 1), (7, 1), ("a", -1), ("a", float("nan")), ("a", True)],
)
async def test_what_cannot_be_counted_is_refused(
    replica: MakeReplica, clock: ManualClock, name: Any, number: Any
) -> None:
    async def ingest(run: CycleRun) -> None:
        run.count(name, number)

    made = replica(cycle_spec(ingest, "ingest", every="1m"))
    await made.run()
    clock.advance(MINUTE)
    await made.run()
    (run,) = await made.runs("ingest")
    assert "InvalidOption" in str(run.error)


async def test_a_run_has_no_more_than_32_counters_of_its_own(
    replica: MakeReplica, clock: ManualClock
) -> None:
    async def ingest(run: CycleRun) -> None:
        for tenant in range(100):
            run.count(f"tenant-{tenant}")

    made = replica(cycle_spec(ingest, "ingest", every="1m"))
    await made.run()
    clock.advance(MINUTE)
    await made.run()
    (run,) = await made.runs("ingest")
    assert "more than 32 counters" in str(run.error)
    assert len(run.counters) == 4 + 32


async def test_a_cycle_has_its_own_budget_of_items(
    replica: MakeReplica, clock: ManualClock
) -> None:
    rooms: dict[str, list[int]] = {}

    async def take(run: CycleRun) -> None:
        before = run.room(1_000_000)
        run.count("processed", 3)
        rooms[run.name] = [before, run.room(5), run.room(1_000_000)]

    specs = [
        cycle_spec(take, "ingest", every="1m", max_items=7),
        cycle_spec(take, "dispatch", every="1m"),
    ]
    made = replica(*specs)
    await made.run()
    clock.advance(MINUTE)
    await made.run()
    assert rooms["ingest"] == [7, 4, 4]
    assert rooms["dispatch"][0] > 7
    with pytest.raises(InvalidOption):
        cycle_spec(take, "ingest", every="1m", max_items=0)


async def test_a_paused_cycle_rests_and_is_run_when_asked(
    replica: MakeReplica, clock: ManualClock, database: Database, diary: Diary
) -> None:
    made = replica(diary.spec())
    await made.run()
    store = database.store
    await database.run_async(at(pause_cycle(store, "cleanup", True, "ana"), clock.now()))
    clock.advance(MINUTE)
    await made.run()
    assert diary.keys == []
    await database.run_async(at(request_cycle(store, "cleanup", "by-ana"), clock.now()))
    await made.run()
    await made.run()
    assert diary.keys == ["cleanup:now-by-ana"]
    await database.run_async(at(pause_cycle(store, "cleanup", False, None), clock.now()))
    await made.run()
    assert len(diary.keys) == 1
    clock.advance(MINUTE)
    await made.run()
    assert diary.keys[1:] == ["cleanup:2025-01-01T12:02:00Z"]


async def test_a_cycle_that_is_not_a_singleton_runs_on_every_replica(
    replica: MakeReplica, clock: ManualClock, diary: Diary, database: Database
) -> None:
    spec = diary.spec("dispatch", singleton=False)
    one, two = replica(spec, worker="w-1"), replica(spec, worker="w-2")
    await one.run()
    await two.run()
    clock.advance(MINUTE)
    await asyncio.gather(one.run(), two.run())
    await asyncio.gather(one.run(), two.run())
    assert diary.keys == ["dispatch:2025-01-01T12:01:00Z"] * 2
    assert {each.worker for each in await one.runs("dispatch")} == {"w-1", "w-2"}
    await database.run_async(at(request_cycle(database.store, "dispatch", "me"), clock.now()))
    await asyncio.gather(one.run(), two.run())
    assert diary.keys[2:] == ["dispatch:now-me"]


async def test_single_ticks_remember_a_cycle_that_is_not_a_singleton(
    replica: MakeReplica, clock: ManualClock, diary: Diary
) -> None:
    spec = diary.spec("dispatch", singleton=False)
    await replica(spec, mode="tick").run()
    clock.advance(MINUTE)
    for _ in range(3):
        await replica(spec, mode="tick").run()
    assert diary.keys == ["dispatch:2025-01-01T12:01:00Z"]


async def test_a_cycle_that_is_not_sharded_serves_all_tenants_on_whichever_replica_it_runs(
    replica: MakeReplica, clock: ManualClock
) -> None:
    served: list[str] = []

    async def bill(run: CycleRun) -> None:
        served.extend(tenant for tenant in "abcdefgh" if run.shard.owns(tenant))

    spec = cycle_spec(bill, "bill", every="1m")
    made = [replica(spec, shard=Shard(index, 2)) for index in (0, 1)]
    for each in made:
        await each.run()
    clock.advance(MINUTE)
    await asyncio.gather(*(each.run() for each in made))
    assert served == list("abcdefgh")


async def test_each_shard_of_a_sharded_cycle_runs_for_its_own_tenants(
    replica: MakeReplica, clock: ManualClock
) -> None:
    served: list[tuple[str, str]] = []

    async def bill(run: CycleRun) -> None:
        served.extend((run.key, tenant) for tenant in "abcdefgh" if run.shard.owns(tenant))

    spec = cycle_spec(bill, "bill", every="1m", sharded=True)
    made = [replica(spec, shard=Shard(index, 2)) for index in (0, 1, 1)]
    for each in made:
        await each.run()
    clock.advance(MINUTE)
    await asyncio.gather(*(each.run() for each in made))
    assert sorted(tenant for _, tenant in served) == list("abcdefgh")
    assert {key for key, _ in served} == {
        "bill:0/2:2025-01-01T12:01:00Z",
        "bill:1/2:2025-01-01T12:01:00Z",
    }

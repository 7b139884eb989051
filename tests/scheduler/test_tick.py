"""One tick: its order, its budgets, the isolation of its runners, and what it leaves behind."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.errors import DuplicateCycle
from holdfast.scheduler.runner import RunnerContext, RunnerReport, TickSkipped, TickSummary
from tests.scheduler.scene import ManualClock, Recorder, soon
from tests.scheduler.ticks import FunctionRunner, Log, MakeTick, failing

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


async def _for_ever(context: RunnerContext) -> RunnerReport:
    context.counts.processed = 3
    await asyncio.Event().wait()
    raise AssertionError


async def test_runners_run_in_the_order_of_their_names(make_tick: MakeTick, log: Log) -> None:
    tick = make_tick(*map(log.runner, "abc"), names=("c", "a"))
    await tick.run()
    assert log.ran == ["c", "a"]


async def test_without_names_all_runners_run_as_registered(make_tick: MakeTick, log: Log) -> None:
    await make_tick(*map(log.runner, "abc")).run()
    assert log.ran == ["a", "b", "c"]


@pytest.mark.parametrize("names", [None, ("a",), ("a", "reaper")])
async def test_the_reaper_comes_first_whatever_the_names_say(
    make_tick: MakeTick, log: Log, names: tuple[str, ...] | None
) -> None:
    await make_tick(log.runner("a"), log.runner("reaper"), names=names).run()
    assert log.ran == ["reaper", "a"]


async def test_an_unknown_name_is_warned_of_and_skipped(
    make_tick: MakeTick, log: Log, recorder: Recorder
) -> None:
    summary = await make_tick(log.runner("a"), names=("x", "a")).run()
    assert log.ran == ["a"]
    assert list(summary.runner_results) == ["a"]
    assert recorder.named("runner_skipped") == [
        {"worker": "w-1", "runner": "x", "reason": "unknown"}
    ]


async def test_two_runners_of_one_name_are_refused(make_tick: MakeTick, log: Log) -> None:
    with pytest.raises(DuplicateCycle):
        make_tick(log.runner("a"), log.runner("a"))


async def test_afailing_runner_stops_neither_the_next_nor_the_tick(
    make_tick: MakeTick, log: Log
) -> None:
    summary = await make_tick(FunctionRunner("bad", failing), log.runner("good")).run()
    assert log.ran == ["good"]
    assert summary.failed_runners == ["bad"]
    assert summary.total_errors == 1
    assert summary.exit_code == 1
    assert summary.runner_results["bad"].note == "RuntimeError: token=••• broke"


async def test_errors_of_single_items_do_not_fail_the_runner(make_tick: MakeTick, log: Log) -> None:
    summary = await make_tick(log.runner("a", RunnerReport(5, 1, 2, 3))).run()
    assert (summary.total_processed, summary.total_errors, summary.exit_code) == (5, 3, 0)


async def test_a_runner_is_cancelled_at_the_end_of_its_budget_and_reported(
    make_tick: MakeTick, log: Log, clock: ManualClock
) -> None:
    tick = make_tick(FunctionRunner("slow", _for_ever), log.runner("next"), runner_ms=2_000)
    running = asyncio.create_task(tick.run())
    assert await clock.asleep() == 2.0
    clock.advance(2)
    summary = await running
    slow = summary.runner_results["slow"]
    assert (slow.processed, slow.errors, slow.duration_ms, slow.failed) == (3, 1, 2_000, True)
    assert slow.note == "cancelled after 2000 ms, the end of its budget"
    assert log.ran == ["next"]


async def test_a_runner_may_have_a_longer_budget_of_its_own(
    make_tick: MakeTick, clock: ManualClock
) -> None:
    tick = make_tick(FunctionRunner("slow", _for_ever, max_ms=9_000), runner_ms=2_000)
    running = asyncio.create_task(tick.run())
    assert await clock.asleep() == 9.0
    clock.advance(9)
    assert (await running).failed_runners == ["slow"]


async def test_what_the_whole_tick_may_take_bounds_every_runner(
    make_tick: MakeTick, log: Log, clock: ManualClock, recorder: Recorder
) -> None:
    tick = make_tick(
        FunctionRunner("slow", _for_ever), log.runner("next"), runner_ms=2_000, overall_ms=500
    )
    running = asyncio.create_task(tick.run())
    assert await clock.asleep() == 0.5
    clock.advance(0.5)
    summary = await running
    assert log.ran == []
    assert summary.runner_results["next"].note == "tick_budget_spent"
    assert summary.failed_runners == ["slow"]


async def test_a_runner_that_does_not_stop_is_skipped_until_it_has(
    make_tick: MakeTick, clock: ManualClock
) -> None:
    let_go = asyncio.Event()

    async def stubborn(context: RunnerContext) -> RunnerReport:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return RunnerReport(processed=1)

    tick = make_tick(FunctionRunner("stubborn", stubborn), runner_ms=1_000)
    running = asyncio.create_task(tick.run())
    for _ in range(2):
        clock.advance(await clock.asleep())
    assert (await running).failed_runners == ["stubborn"]
    skipped = (await tick.run()).runner_results["stubborn"]
    assert (skipped.skipped, skipped.note, skipped.failed) == (1, "worker_already_running", False)
    let_go.set()
    await asyncio.sleep(0)
    assert (await tick.run()).total_processed == 1


async def test_the_budget_of_items_is_handed_to_the_runner(make_tick: MakeTick) -> None:
    rooms: list[int] = []

    async def counting(context: RunnerContext) -> RunnerReport:
        rooms.append(context.room(1_000))
        context.counts.processed += 7
        rooms.append(context.room(1_000))
        assert not context.is_spent()
        context.counts.processed += 3
        assert context.is_spent()
        return context.counts

    await make_tick(FunctionRunner("a", counting), items=10).run()
    assert rooms == [10, 3]


async def test_ticks_do_not_overlap(make_tick: MakeTick) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    runs = 0

    async def waiting(context: RunnerContext) -> RunnerReport:
        nonlocal runs
        runs += 1
        began.set()
        await go_on.wait()
        return RunnerReport()

    tick = make_tick(FunctionRunner("a", waiting))
    first = asyncio.create_task(tick.run())
    await soon(began)
    joined = asyncio.create_task(tick.run())
    assert await tick.run_once() == TickSkipped(True, "tick_already_in_progress")
    go_on.set()
    assert await first is await joined
    assert runs == 1
    assert isinstance(await tick.run_once(), TickSummary)


async def test_the_summary_has_the_names_that_everybody_knows(
    make_tick: MakeTick, log: Log, clock: ManualClock
) -> None:
    summary = await make_tick(log.runner("a", RunnerReport(2, 1, 0, 0))).run()
    assert summary.as_dict() == {
        "runId": summary.run_id,
        "startedAt": "2025-01-01T12:00:00Z",
        "finishedAt": "2025-01-01T12:00:00Z",
        "durationMs": 0,
        "runnerResults": {
            "a": {"processed": 2, "updated": 1, "skipped": 0, "errors": 0, "durationMs": 0}
        },
        "totalProcessed": 2,
        "totalErrors": 0,
    }

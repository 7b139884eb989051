"""The outbox in single ticks: drained within its budget, with what it led to, and put together from the settings."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from holdfast import Holdfast, Job, Retry
from holdfast.core.outcome import Continue
from holdfast.notify.local import NullNotifier
from holdfast.scheduler.assembly import Assembly
from holdfast.scheduler.runner import RunnerContext, RunnerReport
from holdfast.settings import read_settings
from tests.scheduler.scene import Recorder, soon
from tests.scheduler.ticks import FunctionRunner


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def app(request: pytest.FixtureRequest) -> AsyncIterator[Holdfast]:
    made = Holdfast(request.getfixturevalue(f"{request.param}_url"), notifier=NullNotifier())
    await asyncio.to_thread(made.migrate)
    yield made
    await made.aclose()


def _assembly(app: Holdfast, **environ: str) -> Assembly:
    return Assembly(
        database=app.database,
        settings=read_settings(environ),
        make_worker=lambda options, types: app.make_worker(options, types=types),
    )


async def _start(app: Holdfast, type: str, count: int) -> None:
    async with app.transaction() as tx:
        await app.start_many(tx, type, [None] * count)


async def test_a_tick_drains_what_is_due_and_what_it_leads_to(app: Holdfast) -> None:
    ran: Counter[str] = Counter()

    @app.job("first")
    async def first(job: Job[Any]) -> Continue:
        ran["first"] += 1
        return Continue("second")

    @app.job("second")
    async def second(job: Job[Any]) -> None:
        ran["second"] += 1

    await _start(app, "first", 5)
    tick = _assembly(app).tick()
    summary = await tick.run()
    await tick.close()
    assert ran == {"first": 5, "second": 5}
    assert summary.runner_results["outbox"].processed == 10
    assert summary.exit_code == 0
    assert list(summary.runner_results) == ["reaper", "outbox", "retention"]


async def test_the_budget_of_items_leaves_the_rest_to_the_next_tick(app: Holdfast) -> None:
    @app.job("greet")
    async def greet(job: Job[Any]) -> None: ...

    await _start(app, "greet", 50)
    tick = _assembly(app, WORKER_TICK_RUNNER_MAX_ITEMS="30").tick()
    counts = [(await tick.run()).total_processed for _ in range(3)]
    await tick.close()
    assert counts == [30, 20, 0]


async def test_failed_attempts_are_errors_of_items_not_of_the_runner(app: Holdfast) -> None:
    @app.job("greet", retry=Retry(max_attempts=1))
    async def greet(job: Job[Any]) -> None:
        raise RuntimeError("no")

    await _start(app, "greet", 3)
    tick = _assembly(app).tick()
    summary = await tick.run()
    await tick.close()
    assert (summary.total_errors, summary.exit_code) == (3, 0)


async def test_a_handler_that_outlives_the_runners_budget_runs_to_its_end_within_the_ticks(
    app: Holdfast,
) -> None:
    go_on = asyncio.Event()
    order: list[str] = []

    @app.job("slow")
    async def slow(job: Job[Any]) -> None:
        await go_on.wait()
        order.append("slow")

    async def next_one(context: RunnerContext) -> RunnerReport:
        order.append("next")
        go_on.set()
        return RunnerReport()

    await _start(app, "slow", 1)
    assembly = replace(
        _assembly(app, WORKER_TICK_RUNNER_MAX_MS="300"), runners=[FunctionRunner("next", next_one)]
    )
    tick = assembly.tick(names=("outbox", "next"))
    summary = await tick.run()
    await tick.close()
    # Nobody waits for it longer than for its budget, and nobody cuts it short.
    assert order == ["next", "slow"]
    assert summary.runner_results["outbox"].processed == 1
    assert summary.exit_code == 0


async def test_a_handler_that_outlives_the_tick_has_failed_and_says_why(app: Holdfast) -> None:
    reasons: list[Any] = []

    @app.job("endless", retry=Retry(max_attempts=2, base="1ms"))
    async def endless(job: Job[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(job.abort_reason)

    await _start(app, "endless", 1)
    assembly = _assembly(app, WORKER_TICK_RUNNER_MAX_MS="100", WORKER_TICK_OVERALL_MAX_MS="500")
    errors = 0
    while errors < 2:
        tick = assembly.tick(names=("outbox",))
        errors += (await tick.run()).runner_results["outbox"].errors
        await tick.close()
    assert reasons == ["timeout", "timeout"]
    (job,) = (await app.aio.jobs.list()).items
    assert (job.state, job.attempt) == ("failed", 2)
    history = await app.aio.jobs.attempts(job.id)
    assert [each.kind for each in history] == ["retry", "fail"]
    assert all("exceeded the tick's time budget" in str(each.error) for each in history)


async def test_a_tick_that_is_stopped_lets_handlers_end_and_begins_nothing_more(
    app: Holdfast,
) -> None:
    began, go, events = asyncio.Event(), asyncio.Event(), Recorder()
    app.observe(events)

    @app.job("greet")
    async def greet(job: Job[Any]) -> None:
        began.set()
        await go.wait()

    await _start(app, "greet", 3)
    tick = _assembly(app, HOLDFAST_SLOTS="1").tick()
    running = asyncio.create_task(tick.run())
    await soon(began)
    tick.stop()
    await events.seen("worker_stopping")
    go.set()
    summary = await running
    await tick.close()
    assert summary.exit_code == 0
    assert summary.runner_results["retention"].note == "stopping"
    jobs = (await app.aio.jobs.list()).items
    assert Counter((each.state, each.attempt) for each in jobs) == {
        ("completed", 1): 1,
        ("pending", 0): 2,
    }


async def test_a_tick_that_is_stopped_twice_gives_back_what_runs(app: Holdfast) -> None:
    began = asyncio.Event()

    @app.job("greet")
    async def greet(job: Job[Any]) -> None:
        began.set()
        await asyncio.Event().wait()

    await _start(app, "greet", 1)
    tick = _assembly(app).tick()
    running = asyncio.create_task(tick.run())
    await soon(began)
    tick.stop()
    tick.stop()
    summary = await running
    await tick.close()
    assert summary.failed_runners == ["outbox"]
    (job,) = (await app.aio.jobs.list()).items
    assert (job.state, job.attempt) == ("pending", 0)


async def test_the_names_decide_what_runs_and_an_applications_own_runners_may_be_among_them(
    app: Holdfast,
) -> None:
    async def own(context: RunnerContext) -> RunnerReport:
        return RunnerReport(processed=7)

    recorder = Recorder()
    assembly = Assembly(
        database=app.database,
        settings=read_settings({"WORKER_TICK_RUNNERS": "mine, invoiceReminders"}),
        make_worker=lambda options, types: app.make_worker(options, types=types),
        runners=[FunctionRunner("mine", own)],
        observer=recorder,
    )
    tick = assembly.tick()
    summary = await tick.run()
    await tick.close()
    assert list(summary.runner_results) == ["reaper", "mine"]
    assert summary.total_processed == 7
    assert recorder.named("runner_skipped")[0]["runner"] == "invoiceReminders"
    other = assembly.tick(names=("retention",))
    assert other.names == ["reaper", "retention"]
    await other.close()


async def test_two_ticks_at_once_share_the_work(app: Holdfast) -> None:
    ran: Counter[str] = Counter()

    @app.job("greet")
    async def greet(job: Job[Any]) -> None:
        ran[str(job.id)] += 1

    await _start(app, "greet", 60)
    ticks = [_assembly(app).tick() for _ in range(2)]
    summaries = await asyncio.gather(*(tick.run() for tick in ticks))
    for tick in ticks:
        await tick.close()
    assert sum(each.total_processed for each in summaries) == 60
    assert set(ran.values()) == {1}

"""Background mode: when its loops run, what wakes them, how they stop, and that a slow one delays no other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio

from holdfast import Holdfast, Job
from holdfast.commands.cycles import request_cycle
from holdfast.core.cycle import CycleSpec, cycle_spec
from holdfast.core.errors import CopiedDatabase, DatabaseUnreachable
from holdfast.core.records import Claim, LeaseClass, Probe
from holdfast.notify.base import cycle_hint
from holdfast.notify.local import LocalNotifier
from holdfast.scheduler.assembly import Assembly
from holdfast.scheduler.background import Background, BackgroundReport
from holdfast.scheduler.cycle_run import CycleRun
from holdfast.scheduler.runner import Runner, RunnerContext, RunnerReport
from holdfast.settings import read_settings
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import at
from holdfast.worker.options import WorkerOptions
from holdfast.worker.worker import Worker
from tests.scheduler.scene import ManualClock, Recorder, soon
from tests.scheduler.ticks import FunctionRunner
from tests.support.until import breath

Start = Callable[..., "Running"]


class Running:
    """A background mode at work. The loop lives by the test's clock, the worker by the real one."""

    def __init__(self, app: Holdfast, assembly: Assembly, recorder: Recorder) -> None:
        self.app = app
        self.recorder = recorder
        self.background: Background = assembly.background()
        self.task: asyncio.Task[BackgroundReport] = asyncio.create_task(self.background.run())

    async def ticked(self, times: int) -> None:
        await self.recorder.seen("tick_finished", times)

    async def stop(self) -> BackgroundReport:
        self.background.stop("test")
        return await self.task


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a database of either kind."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest_asyncio.fixture
async def app(url: str) -> AsyncIterator[Holdfast]:
    made = Holdfast(url, notifier=LocalNotifier())
    await asyncio.to_thread(made.migrate)
    yield made
    await made.aclose()


@pytest_asyncio.fixture
async def start(app: Holdfast, clock: ManualClock) -> AsyncIterator[Start]:
    made: list[Running] = []

    def begin(
        *cycles: CycleSpec, environ: dict[str, str] | None = None, runners: Sequence[Runner] = ()
    ) -> Running:
        recorder = Recorder()
        app.observe(recorder)
        assembly = Assembly(
            database=app.database,
            settings=read_settings(environ or {}),
            make_worker=lambda options, types: app.make_worker(options, types=types),
            cycles=cycles,
            runners=runners,
            notifier=app.notifier,
            observer=recorder,
            clock=clock,
            now=clock.now,
        )
        made.append(Running(app, assembly, recorder))
        return made[-1]

    yield begin
    for each in made:
        if not each.task.done():
            await each.stop()


async def test_the_first_tick_comes_at_once_and_idle_ones_ever_more_seldom(
    start: Start, clock: ManualClock
) -> None:
    running = start()
    pauses = []
    for number in range(1, 8):
        await running.ticked(number)
        pauses.append(await clock.asleep())
        clock.advance(pauses[-1])
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


async def test_idle_means_idle(start: Start, clock: ManualClock) -> None:
    running = start()
    ticks = 0
    while clock.time < 600:
        ticks += 1
        await running.ticked(ticks)
        clock.advance(await clock.asleep())
    assert ticks <= 5 + 600 / 30


async def test_the_streaming_workers_jobs_are_reported_by_the_next_tick(
    app: Holdfast, start: Start, clock: ManualClock
) -> None:
    done = asyncio.Event()

    @app.job("greet")
    async def greet(job: Job[Any]) -> None:
        done.set()

    running = start()
    await running.ticked(1)
    async with app.transaction() as tx:
        await app.start(tx, "greet", None)
    await soon(done)
    await running.recorder.seen("job_completed")
    clock.advance(await clock.asleep())
    await running.ticked(2)
    reports = [
        each for each in running.recorder.named("runner_finished") if each["runner"] == "outbox"
    ]
    assert [each["processed"] for each in reports] == [0, 1]
    assert await clock.asleep() == 0.25


async def test_a_cycle_runs_at_its_slot_whatever_the_idle_pause(
    start: Start, clock: ManualClock
) -> None:
    slots: list[float] = []

    async def work(run: CycleRun) -> None:
        slots.append(clock.time)

    running = start(cycle_spec(work, "cleanup", every="20s"))
    while len(slots) < 3:
        clock.advance(await clock.resting(loops=2))
    assert [round(each) for each in slots] == [20, 40, 60]
    assert len(running.recorder.named("tick_finished")) < 40


async def test_a_request_for_a_cycle_wakes_the_loop(
    app: Holdfast, start: Start, clock: ManualClock
) -> None:
    keys: list[str] = []

    async def work(run: CycleRun) -> None:
        keys.append(run.key)

    running = start(cycle_spec(work, "cleanup", every="1d"))
    await clock.resting(loops=2)
    op = at(request_cycle(app.database.store, "cleanup", "ana"), clock.now())
    await app.database.run_async(op)
    app.notifier.send([cycle_hint("cleanup")])
    await running.recorder.seen("cycle_finished")
    assert keys == ["cleanup:now-ana"]


async def test_a_failed_tick_is_told_and_tried_again_after_a_long_pause(
    app: Holdfast, start: Start, clock: ManualClock
) -> None:
    running = start()
    await running.ticked(1)
    is_postgres = app.database.store.dialect == "postgresql"
    before, after = (
        ("holdfast.identity", "holdfast.gone") if is_postgres else ("holdfast_identity", "gone")
    )
    async with app.transaction() as tx:
        await tx.execute(f"alter table {before} rename to {after.rpartition('.')[2]}")
    clock.advance(await clock.asleep())
    failure = await running.recorder.seen("tick_failed")
    assert "HF040" in failure["error"]
    assert await clock.asleep() == 30
    async with app.transaction() as tx:
        await tx.execute(f"alter table {after} rename to {before.rpartition('.')[2]}")
    clock.advance(30)
    await running.ticked(2)


async def test_a_slow_cycle_delays_neither_jobs_nor_the_reaper(
    app: Holdfast, start: Start, clock: ManualClock
) -> None:
    began, done, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.job("greet")
    async def greet(job: Job[Any]) -> None:
        done.set()

    async def slow(run: CycleRun) -> None:
        began.set()
        await go_on.wait()

    often = {"OUTBOX_REAPER_INTERVAL_MS": "100"}
    running = start(cycle_spec(slow, "slow", every="1s"), environ=often)
    clock.advance(await clock.resting(loops=2))
    await soon(began)
    async with app.transaction() as tx:
        await app.start(tx, "greet", None)
    await soon(done)
    await running.recorder.seen("reaper_ran", len(running.recorder.named("reaper_ran")) + 1)
    go_on.set()
    await running.recorder.seen("cycle_finished")


async def test_a_slow_cycle_delays_no_other_and_its_own_tick_tells_what_it_did(
    start: Start, clock: ManualClock
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    quick_at: list[float] = []

    async def slow(run: CycleRun) -> int:
        began.set()
        await go_on.wait()
        return 7

    async def quick(run: CycleRun) -> None:
        quick_at.append(clock.time)

    running = start(
        cycle_spec(slow, "slow", every="1s", timeout="1h", missed="none"),
        cycle_spec(quick, "quick", every="1s"),
    )
    while len(quick_at) < 9:
        clock.advance(await clock.asleep(within=5))
        await breath()
    assert began.is_set()
    ticks = len(running.recorder.named("tick_finished"))
    assert running.recorder.named("runner_skipped") == [], "nobody asks for it meanwhile"
    go_on.set()
    await running.recorder.seen("cycle_finished")
    while sum(each["processed"] for each in running.recorder.named("tick_finished")[ticks:]) < 7:
        clock.advance(await clock.asleep(within=5))
        await breath()


async def test_a_slow_runner_of_an_extension_delays_no_other(
    start: Start, clock: ManualClock
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    ran: list[float] = []

    async def slow(context: RunnerContext) -> RunnerReport:
        began.set()
        await go_on.wait()
        return RunnerReport(processed=1)

    async def quick(run: CycleRun) -> None:
        ran.append(clock.time)

    running = start(cycle_spec(quick, "quick", every="1s"), runners=[FunctionRunner("slow", slow)])
    await soon(began)
    while len(ran) < 3:
        clock.advance(await clock.resting(loops=2))
    assert {each["runner"] for each in running.recorder.named("runner_finished")} == {
        "reaper",
        "outbox",
        "retention",
        "quick",
    }
    go_on.set()
    await clock.resting(loops=3)
    reports = running.recorder.named("runner_finished")
    assert [each["processed"] for each in reports if each["runner"] == "slow"] == [1]


async def test_a_database_that_went_away_is_told_once_for_all_loops(
    app: Holdfast, start: Start, clock: ManualClock
) -> None:
    async def work(run: CycleRun) -> None: ...

    running = start(*(cycle_spec(work, f"cycle-{number}", every="1d") for number in range(3)))
    await clock.resting(loops=4)
    is_postgres = app.database.store.dialect == "postgresql"
    table = "holdfast.identity" if is_postgres else "holdfast_identity"
    async with app.transaction() as tx:
        await tx.execute(f"alter table {table} rename to gone")
    for _ in range(3):
        clock.advance(await clock.resting(loops=4))
    await clock.resting(loops=4)
    told = Counter(each["error"] for each in running.recorder.named("tick_failed"))
    assert max(told.values()) == 3, "one for each of the three times that all four failed"


async def test_stopping_lets_the_running_tick_end(start: Start, clock: ManualClock) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    ended: list[bool] = []

    async def slow(run: CycleRun) -> None:
        began.set()
        await go_on.wait()
        ended.append(True)

    running = start(cycle_spec(slow, "slow", every="1s"))
    clock.advance(await clock.resting(loops=2))
    await soon(began)
    running.background.stop("SIGTERM")
    go_on.set()
    report = await running.task
    assert ended == [True]
    assert (report.reason, report.ticks, report.exit_code) == ("SIGTERM", 4, 0), "two of each loop"
    assert running.background.worker.counters.ticks == 4


async def test_the_second_stop_ends_the_running_tick_now(start: Start, clock: ManualClock) -> None:
    began = asyncio.Event()
    reasons: list[Any] = []

    async def slow(run: CycleRun) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(run.abort_reason)

    running = start(cycle_spec(slow, "slow", every="1s"))
    clock.advance(await clock.resting(loops=2))
    await soon(began)
    running.background.stop()
    running.background.stop()
    await running.task
    assert reasons == ["shutdown"]


async def test_a_cycle_that_is_abandoned_is_counted_by_the_worker_that_stopped(
    start: Start, clock: ManualClock
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def deaf(run: CycleRun) -> None:
        began.set()
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()

    running = start(cycle_spec(deaf, "deaf", every="1s"))
    clock.advance(await clock.resting(loops=2))
    await soon(began)
    for _ in range(2):
        running.background.stop("SIGTERM")
    while not running.task.done():
        clock.advance(1)
        await breath()
    report = await running.task
    go_on.set()
    (stopped,) = running.recorder.named("worker_stopped")
    assert (stopped["abandoned"], report.abandoned) == (1, ("deaf",))


async def test_a_worker_that_is_drained_from_outside_ends_the_loop(
    app: Holdfast, start: Start
) -> None:
    running = start(environ={"OUTBOX_LEASE_DURATION_MS": "300"})
    await running.ticked(1)
    database = app.database
    await running.recorder.seen("worker_started")
    drained = False
    while not drained:
        drained = await database.run_async(
            database.store.workers.drain(running.background.worker.id)
        )
    report = await running.task
    assert report.reason == "drained"


async def test_without_the_outbox_among_the_runners_no_job_is_taken(
    app: Holdfast, start: Start
) -> None:
    @app.job("greet")
    async def greet(job: Job[Any]) -> None: ...

    running = start(environ={"WORKER_TICK_RUNNERS": "retention"})
    await running.ticked(1)
    started = await running.recorder.seen("worker_started")
    assert started["types"] == []


async def test_a_copied_database_is_refused_before_anything_is_claimed(
    app: Holdfast, start: Start
) -> None:
    ran: list[str] = []

    @app.job("greet")
    async def greet(job: Job[Any]) -> None:
        ran.append("greet")

    is_postgres = app.database.store.dialect == "postgresql"
    table = "holdfast.identity" if is_postgres else "holdfast_identity"
    async with app.transaction() as tx:
        await app.start(tx, "greet", None)
        await tx.execute(f"update {table} set database_name = 'production'")  # noqa: S608
    running = start()
    with pytest.raises(CopiedDatabase):
        await running.task
    assert ran == []


async def test_two_replicas_share_jobs_and_run_each_slot_once(
    app: Holdfast, start: Start, clock: ManualClock
) -> None:
    jobs: Counter[str] = Counter()
    slots: Counter[str] = Counter()
    done = asyncio.Event()

    @app.job("greet")
    async def greet(job: Job[Any]) -> None:
        jobs[str(job.id)] += 1
        if len(jobs) == 40:
            done.set()

    async def work(run: CycleRun) -> None:
        slots[run.key] += 1

    spec = cycle_spec(work, "cleanup", every="10s")
    replicas = [start(spec), start(spec)]
    for each in replicas:
        await each.ticked(1)
    async with app.transaction() as tx:
        await app.start_many(tx, "greet", [None] * 40)
    await soon(done)
    while len(slots) < 3:
        clock.advance(await clock.resting(loops=4))
    for each in replicas:
        await each.stop()
    assert set(jobs.values()) == {1}
    assert set(slots.values()) == {1}


async def test_there_is_one_reaper_in_a_process_and_it_knows_of_outages(
    app: Holdfast, clock: ManualClock
) -> None:
    database, recorder, token = app.database, Recorder(), new_id()
    app.observe(recorder)
    app.declare("greet")
    async with app.transaction() as tx:
        started = await app.start(tx, "greet", None)
    probe = Probe("greet", 5, token, 1, 0, "00000000-0000-0000-0000-000000000000")
    claim = Claim("gone", 1, (probe,), (LeaseClass(token, 1, 25, 1_000, 5_000),))
    assert await database.run_async(database.store.jobs.claim(claim))

    def make_worker(options: WorkerOptions, types: Sequence[str] | None) -> Worker:
        worker = app.make_worker(options, types=types)
        # As if it had just missed the database, and with it the one that holds the job.
        worker._context.health.report_error("claim", DatabaseUnreachable("away"))
        return worker

    assembly = Assembly(database, read_settings({}), make_worker, observer=recorder, clock=clock)
    background = assembly.background()
    running = asyncio.create_task(background.run())
    for number in range(1, 4):
        await recorder.seen("tick_finished", number)
        clock.advance(await clock.asleep())
    background.stop()
    await running
    assert recorder.named("job_reaped") == []
    assert (await app.aio.jobs.get(started.id)).crashes == 0

"""One run of a cycle: kept by its heartbeat, ended by its budget or the shutdown, fenced when its slot was taken."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from holdfast.commands.cycles import request_cycle
from holdfast.core.cycle import HeldSlot, cycle_spec
from holdfast.core.errors import DatabaseUnreachable, LeaseLost
from holdfast.scheduler.cycle_run import CycleRun
from holdfast.storage.database import Database
from holdfast.storage.operation import at
from tests.scheduler.conftest import MakeReplica
from tests.scheduler.scene import LEASE_MS, ManualClock, Replica, soon
from tests.support.links import DisturbedDatabase
from tests.support.until import PATIENCE_S, until

T = TypeVar("T")

MINUTE = 60
HOUR = 3_600


async def test_a_long_run_keeps_its_slot_by_its_heartbeat(
    replica: MakeReplica, clock: ManualClock, database: Database
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(run: CycleRun) -> int:
        began.set()
        await go_on.wait()
        return 1

    spec = cycle_spec(slow, "cleanup", every="1m", timeout="1h")
    one, two = replica(spec, worker="w-1", mode="tick"), replica(spec, worker="w-2")
    await one.run()
    await two.run()
    clock.advance(MINUTE)
    running = asyncio.create_task(one.run())
    await soon(began)
    for _ in range(10):
        assert await clock.asleep(within=15) == 15
        clock.advance(15)
    await clock.asleep(within=15)
    result = (await two.run()).runner_results["cleanup"]
    assert result.skipped == 1
    assert two.recorder.named("cycle_skipped")[0]["reason"] == "slot_is_running"
    (record,) = await database.run_async(database.store.cycles.page(clock.now()))
    assert record.held_by == "w-1"
    go_on.set()
    assert (await running).total_processed == 1


async def test_a_run_that_takes_too_long_is_cancelled_and_tried_again(
    replica: MakeReplica, clock: ManualClock
) -> None:
    began = asyncio.Event()

    async def slow(run: CycleRun) -> None:
        began.set()
        await asyncio.Event().wait()

    made = replica(cycle_spec(slow, "cleanup", every="1h", timeout="10s"), mode="tick")
    await made.run()
    clock.advance(HOUR)
    running = asyncio.create_task(made.run())
    await soon(began)
    clock.advance(10)
    summary = await running
    assert summary.failed_runners == ["cleanup"]
    (run,) = await made.runs()
    assert (run.outcome, run.error) == ("aborted", "aborted: timeout")
    began.clear()
    clock.advance(30)
    running = asyncio.create_task(made.run())
    await soon(began)
    clock.advance(10)
    await running


class Defiant(Exception):
    def __str__(self) -> str:
        raise SystemExit("no words")


STRANGE_ERRORS = [
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    asyncio.CancelledError(),
    StopIteration(),
    Defiant(),
]


@pytest.mark.parametrize("colour", ["async", "sync"])
@pytest.mark.parametrize("error", STRANGE_ERRORS, ids=lambda error: type(error).__name__)
async def test_a_strange_error_fails_its_run_and_nothing_else(
    replica: MakeReplica, clock: ManualClock, error: BaseException, colour: str
) -> None:
    async def fail(run: CycleRun) -> None:
        raise error

    def fail_in_a_thread(run: CycleRun) -> None:
        raise error

    handler = fail if colour == "async" else fail_in_a_thread
    made = replica(cycle_spec(handler, "cleanup", every="1h", attempts=1))
    await made.run()
    clock.advance(HOUR)
    assert (await made.run()).failed_runners == ["cleanup"]
    (run,) = await made.runs()
    assert run.outcome == "failed"
    assert run.error


async def test_a_run_that_was_asked_for_and_failed_is_tried_again_under_its_key(
    replica: MakeReplica, clock: ManualClock, database: Database
) -> None:
    keys: list[str] = []

    async def fails_once(run: CycleRun) -> None:
        keys.append(run.key)
        if len(keys) == 1:
            raise ValueError("no")

    made = replica(cycle_spec(fails_once, "cleanup", every="1h"))
    await made.run()
    await database.run_async(at(request_cycle(database.store, "cleanup", "1"), clock.now()))
    assert (await made.run()).failed_runners == ["cleanup"]
    clock.advance(MINUTE)
    await made.run()
    await made.run()
    assert keys == ["cleanup:now-1"] * 2
    assert [each.outcome for each in await made.runs()] == ["completed", "failed"]


async def test_at_shutdown_a_run_is_aborted_and_its_slot_is_free_at_once(
    replica: MakeReplica, clock: ManualClock
) -> None:
    began = asyncio.Event()
    keys: list[str] = []

    async def slow(run: CycleRun) -> None:
        began.set()
        await asyncio.Event().wait()

    async def quick(run: CycleRun) -> None:
        keys.append(run.key)

    stopping = replica(cycle_spec(slow, "cleanup", every="1h"))
    await stopping.run()
    clock.advance(HOUR)
    running = asyncio.create_task(stopping.run())
    await soon(began)
    await stopping.tick.close()
    with pytest.raises(asyncio.CancelledError):
        await running
    other = replica(cycle_spec(quick, "cleanup", every="1h"), worker="w-2")
    await other.run()
    assert keys == ["cleanup:2025-01-01T13:00:00Z"]
    assert [each.error for each in await other.runs()] == [None, "aborted: shutdown"]


async def test_a_sync_handler_runs_in_a_thread_and_obeys_its_signal(
    replica: MakeReplica, clock: ManualClock
) -> None:
    began = threading.Event()
    threads: list[int] = []

    def work(run: CycleRun) -> None:
        threads.append(threading.get_ident())
        began.set()
        while not run.wait_for_abort(20):
            pass
        run.checkpoint()

    made = replica(cycle_spec(work, "cleanup", every="1h", timeout="10s"), mode="tick")
    await made.run()
    clock.advance(HOUR)
    running = asyncio.create_task(made.run())
    await asyncio.to_thread(began.wait, 20)
    clock.advance(10)
    assert (await running).failed_runners == ["cleanup"]
    assert threads != [threading.get_ident()]
    assert (await made.runs())[0].error == "aborted: timeout"


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_a_handler_that_does_not_obey_is_abandoned_and_its_slot_starts_again(
    replica: MakeReplica, clock: ManualClock, colour: str
) -> None:
    began, go_on = threading.Event(), threading.Event()

    def deaf(run: CycleRun) -> int:
        began.set()
        go_on.wait(60)
        return 1

    async def deaf_async(run: CycleRun) -> int:
        began.set()
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await until(go_on.is_set)
        return 1

    handler = deaf if colour == "sync" else deaf_async
    spec = cycle_spec(handler, "cleanup", every="1h", timeout="10s")
    made, other = replica(spec, mode="tick"), replica(spec, worker="w-2", mode="tick")
    await made.run()
    clock.advance(HOUR)
    running = asyncio.create_task(made.run())
    await asyncio.to_thread(began.wait, 20)
    clock.advance(10)
    await clock.asleep(within=1)
    clock.advance(1)
    result = (await running).runner_results["cleanup"]
    assert result.failed
    assert result.note is not None
    assert result.note.endswith("it did not stop and was abandoned")
    (run,) = await made.runs()
    assert run.error is not None
    assert (run.outcome, run.error.partition(";")[0]) == ("aborted", "aborted: timeout")
    assert "abandoned" in run.error
    # In its own process it waits for the handler's end; elsewhere the slot may be had again.
    clock.advance(MINUTE)
    assert (await made.run()).runner_results["cleanup"].note == "worker_already_running"
    began.clear()
    again = asyncio.create_task(other.run())
    await asyncio.to_thread(began.wait, 20)
    assert made.tick.running == ["cleanup"]
    go_on.set()
    assert (await again).total_processed == 1


async def _note(tx: Any, dialect: str, text: str) -> None:
    mark = "%s" if dialect == "postgresql" else "?"
    await tx.execute(f"insert into note (text) values ({mark})", [text])  # noqa: S608


async def test_a_run_whose_slot_was_taken_over_can_commit_nothing_any_more(
    replica: MakeReplica, clock: ManualClock, database: Database
) -> None:
    async with database.transaction_async() as tx:
        await tx.connection.execute("create table note (text text)")
    began, go_on = asyncio.Event(), asyncio.Event()
    refused: list[str] = []
    dialect = database.store.dialect

    async def stalled(run: CycleRun) -> None:
        async with run.transaction() as tx:
            await _note(tx, dialect, "in time")
        began.set()
        await go_on.wait()
        try:
            async with run.transaction() as tx:
                await _note(tx, dialect, "too late")
        except LeaseLost as error:
            refused.append(error.reason)
            raise

    def second(run: CycleRun) -> int:
        with run.transaction() as tx:
            mark = "%s" if dialect == "postgresql" else "?"
            tx.execute(f"insert into note (text) values ({mark})", ["second"])  # noqa: S608
        return 1

    old = replica(cycle_spec(stalled, "cleanup", every="1h"), worker="w-1", mode="tick")
    await old.run()
    clock.advance(HOUR)
    running = asyncio.create_task(old.run())
    await soon(began)
    # The old process stalls: nobody renews its slot, and its lock goes with its connection.
    stalled_clock = ManualClock()
    stalled_clock.time = clock.time + LEASE_MS / 1000
    if database.store.dialect == "postgresql":
        await _end_locks(database)
    new = replica(
        cycle_spec(second, "cleanup", every="1h"), worker="w-2", mode="tick", clock=stalled_clock
    )
    assert (await new.run()).total_processed == 1
    go_on.set()
    assert (await running).failed_runners == ["cleanup"]
    assert refused == ["slot_lost"]
    async with database.transaction_async() as tx:
        rows = await (await tx.execute("select text from note")).fetchall()
    assert [row[0] for row in rows] == ["in time", "second"]
    outcomes = {each.worker: each.outcome for each in await new.runs()}
    assert outcomes == {"w-1": "crashed", "w-2": "completed"}


async def _end_locks(database: Database) -> None:
    async with database.transaction_async() as tx:
        await tx.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where application_name = 'holdfast singleton' and datname = current_database()"
        )


class CutAfterBegin:
    """A link whose answer to the claim of a slot takes ten seconds, and that is cut from then on."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.asked_at = 0.0
        self.is_cut = False

    async def around(self, purpose: str, call: Callable[[], Awaitable[T]]) -> T:
        if self.is_cut:
            raise DatabaseUnreachable("the line was cut")
        asked_at = self._clock.time
        answer = await call()
        if isinstance(answer, HeldSlot):
            self.asked_at, self.is_cut = asked_at, True
            self._clock.advance(10)
        return answer


async def test_a_run_without_a_database_stops_before_its_lease_ends_however_late_its_slot_came(
    clock: ManualClock, database: Database
) -> None:
    stopped: list[tuple[float, str | None]] = []
    began, ended = asyncio.Event(), asyncio.Event()
    cut = CutAfterBegin(clock)

    async def slow(run: CycleRun) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append((clock.time, run.abort_reason))
            ended.set()
            raise

    spec = cycle_spec(slow, "cleanup", every="1h", timeout="1h")
    made: Any = DisturbedDatabase(database, cut)
    replica = Replica(made, clock, spec)
    await replica.run()
    clock.advance(HOUR)
    running = asyncio.create_task(replica.run())
    await soon(began)
    async with asyncio.timeout(PATIENCE_S):
        while not stopped:
            # Only its heartbeat sleeps for so short a time: the clock waits while it asks the server.
            sleeping = asyncio.create_task(clock.asleep(within=15))
            ending = asyncio.create_task(ended.wait())
            await asyncio.wait({sleeping, ending}, return_when=asyncio.FIRST_COMPLETED)
            clock.advance(sleeping.result() if sleeping.done() else 0)
            for each in (sleeping, ending):
                each.cancel()
    cut.is_cut = False
    await running
    await replica.close()
    ((stopped_at, reason),) = stopped
    assert reason == "slot_lost"
    assert stopped_at - cut.asked_at < LEASE_MS / 1000

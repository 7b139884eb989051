"""Records are accepted under the current token only; what the database does not take is waited for, or lost with it."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.commands.chains import cancel_chain, end_chain
from holdfast.core.errors import LeaseLost
from holdfast.core.retry import Retry
from holdfast.worker.job import Job, SyncJob
from tests.steps.functions import Calls, completed, ended, parked, records, send, start, starts
from tests.support.until import until
from tests.worker.faults import Faults
from tests.worker.workshop import Workshop


class Gate:
    """A step that waits inside, so that a test can do something to its job meanwhile."""

    def __init__(self, write: str) -> None:
        self.inside = threading.Event()
        self.go = threading.Event()
        self.write = write
        self.errors: list[BaseException] = []
        self.calls = 0

    async def plain(self) -> str:
        return await asyncio.to_thread(self._pass)

    async def atomic(self, tx: Any) -> str:
        number = await asyncio.to_thread(self._pass)
        await tx.execute(self.write, [number])
        return number

    def _pass(self) -> str:
        self.calls += 1
        number = self.calls
        self.inside.set()
        if number == 1:
            assert self.go.wait(60)
        return str(number)

    async def function(self, job: Job[Any]) -> str:
        try:
            if job.input == "atomic":
                return str(await job.step("gate", self.atomic, atomic=True))
            return str(await job.step("gate", self.plain))
        except BaseException as error:
            self.errors.append(error)
            raise


KINDS = ("plain", "atomic")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["cancel", "complete"])
async def test_after_its_end_from_outside_nothing_of_a_function_is_recorded(
    workshop: Workshop, kind: str, how: str
) -> None:
    gate = Gate(workshop.ledger.write_effect)
    workshop.handle("function", gate.function)
    async with workshop.working():
        job_id = await start(workshop, "function", kind)
        await asyncio.to_thread(gate.inside.wait)
        if how == "cancel":
            await workshop.run(cancel_chain(workshop.store, job_id))
        else:
            await workshop.run(end_chain(workshop.store, job_id, "completed", output='"outside"'))
        gate.go.set()
        await until(lambda: gate.errors)
    assert await records(workshop, job_id) == {}
    assert workshop.ledger.effects() == []
    assert (await workshop.job(job_id)).state == ("cancelled" if how == "cancel" else "completed")


async def test_a_record_is_refused_after_another_worker_took_the_job_over(
    takeover: tuple[Workshop, str],
) -> None:
    workshop, kind = takeover
    gate = Gate(workshop.ledger.write_effect)
    workshop.handle("function", gate.function)
    first = workshop.begin()
    job_id = await start(workshop, "function", kind)
    await asyncio.to_thread(gate.inside.wait)
    assert await workshop.reap_as_if_later() == [job_id]
    # The second worker, or the first again, runs it under another token.
    second = workshop.begin()
    assert await completed(workshop, job_id) == '"2"'
    gate.go.set()
    await until(lambda: gate.errors)
    await first.stop()
    await second.stop()
    assert isinstance(gate.errors[0], LeaseLost | asyncio.CancelledError)
    found = await records(workshop, job_id)
    assert found["gate"].output == '"2"'
    assert workshop.ledger.effects() == (["2"] if kind == "atomic" else [])


async def test_a_swallowed_end_does_not_let_a_function_go_on(workshop: Workshop) -> None:
    calls = Calls()
    inside = asyncio.Event()
    ends: list[str] = []

    async def function(job: Job[Any]) -> str:
        inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            try:
                await job.step("late", calls.echo, "late")
            except Exception as error:
                ends.append(type(error).__name__)
        return "swallowed"

    workshop.handle("function", function)
    async with workshop.working(notifier=workshop.notifier) as worker:
        job_id = await start(workshop, "function")
        await inside.wait()
        await workshop.run(cancel_chain(workshop.store, job_id))
        workshop.have_leases_checked(worker)
        await until(lambda: ends)
    assert ends == ["Aborted"]
    assert calls.of == {}


@pytest.mark.parametrize("is_sync", [False, True], ids=["async", "sync"])
async def test_a_step_that_runs_at_shutdown_is_recorded_or_run_again(
    workshop: Workshop, is_sync: bool
) -> None:
    calls = Calls()
    inside = threading.Event()
    is_over = threading.Event()

    def slow(is_aborted: Callable[[float], bool]) -> str:
        inside.set()
        if not is_over.is_set():
            assert is_aborted(60)
        return "slow"

    async def slow_async() -> str:
        inside.set()
        if not is_over.is_set():
            await asyncio.Event().wait()
        return "slow"

    async def function(job: Job[Any]) -> str:
        await job.step("slow", slow_async)
        return str(await job.step("next", calls.echo, "next"))

    def function_sync(job: SyncJob[Any]) -> str:
        job.step("slow", slow, job.wait_for_abort)
        return str(job.step("next", calls.echo_sync, "next"))

    workshop.handle("function", function_sync if is_sync else function)
    worker = workshop.begin()
    job_id = await start(workshop, "function")
    await asyncio.to_thread(inside.wait)
    await worker.stop(2)
    is_over.set()
    if is_sync:
        # Its thread could not be stopped: what it did was recorded, and it went no further.
        assert set(await records(workshop, job_id)) == {"slow"}
        assert calls.of == {}
    async with workshop.working():
        assert await completed(workshop, job_id) == '"next"'
    assert calls.of == {"next": 1}
    assert (await workshop.job(job_id)).attempt == 1


@pytest.mark.parametrize("fault", ["before", "after"])
async def test_a_record_waits_until_the_database_is_back(workshop: Workshop, fault: Any) -> None:
    calls, faults = Calls(), Faults()

    async def function(job: Job[Any]) -> str:
        await asyncio.gather(*(job.step("part", calls.echo, each, key=each) for each in range(5)))
        await job.sleep("1ms")
        return "ended"

    workshop.handle("function", function)
    faults.set(fault, "steps")
    async with workshop.working(faults=faults):
        job_id = await start(workshop, "function")
        await faults.ran("steps", 2)
        faults.clear()
        assert await completed(workshop, job_id) == '"ended"'
    assert set(calls.of.values()) == {1}


async def test_records_of_one_function_are_written_together(workshop: Workshop) -> None:
    calls, faults = Calls(), Faults()

    async def function(job: Job[Any]) -> None:
        await asyncio.gather(*(job.step("part", calls.echo, each, key=each) for each in range(50)))

    workshop.handle("function", function)
    async with workshop.working(faults=faults):
        job_id = await start(workshop, "function")
        await completed(workshop, job_id)
    assert len(await records(workshop, job_id)) == 50
    assert faults.runs("steps") <= 5


@pytest.mark.parametrize("fault", ["before", "after", "hang", "lost"])
async def test_a_step_that_was_cancelled_while_it_was_recorded_is_recorded(
    workshop: Workshop, fault: Any
) -> None:
    calls, faults = Calls(), Faults()

    async def function(job: Job[Any]) -> int:
        # From the second one on a step that is alone is written by its own caller, which is what is cancelled.
        for name in ("first", "second"):
            await job.step(name, calls.echo, name)
        written = faults.runs("steps")
        faults.set(fault, "steps")
        step = asyncio.create_task(job.step("part", calls.echo, 1, key="k"))
        await faults.ran("steps", written + 1)
        step.cancel()
        faults.clear()
        await asyncio.wait({step})
        return int(await job.step("part", calls.echo, 1, key="k"))

    workshop.handle("function", function)
    async with workshop.working(faults=faults):
        job_id = await start(workshop, "function")
        assert await completed(workshop, job_id) == "1"
    assert calls.of == {"first": 1, "second": 1, "1": 1}
    assert len(await records(workshop, job_id)) == 3


async def test_a_lone_step_whose_record_was_not_answered_is_recorded_once(
    workshop: Workshop,
) -> None:
    calls, faults = Calls(), Faults()

    async def function(job: Job[Any]) -> int:
        for name in ("first", "second"):
            await job.step(name, calls.echo, name)
        written = faults.runs("steps")
        faults.set("after", "steps")
        step = asyncio.create_task(job.step("third", calls.echo, 3))
        await faults.ran("steps", written + 1)
        faults.clear()
        return int(await step)

    workshop.handle("function", function)
    async with workshop.working(faults=faults):
        job_id = await start(workshop, "function")
        assert await completed(workshop, job_id) == "3"
    assert calls.of == {"first": 1, "second": 1, "3": 1}
    assert len(await records(workshop, job_id)) == 3


async def test_an_atomic_step_whose_commit_was_not_answered_is_not_done_twice(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls()
    write = workshop.ledger.write_effect
    lost = [True]
    from holdfast.worker.handler_transactions import AtomicStep

    leave = AtomicStep.__aexit__

    async def leave_and_lose(self: Any, *raised: Any) -> None:
        await leave(self, *raised)
        if lost:
            lost.clear()
            raise ConnectionError("the answer was lost")

    monkeypatch.setattr(AtomicStep, "__aexit__", leave_and_lose)

    async def book(tx: Any) -> str:
        calls.of["book"] += 1
        await tx.execute(write, ["booked"])
        return "booked"

    async def function(job: Job[Any]) -> str:
        return str(await job.step("book", book, atomic=True, retry=Retry(max_attempts=1)))

    workshop.handle("function", function)
    async with workshop.working():
        assert await completed(workshop, await start(workshop, "function")) == '"booked"'
    assert workshop.ledger.effects() == ["booked"]
    assert calls.of == {"book": 1}


async def test_an_atomic_step_that_is_rolled_back_leaves_its_attempt_unmarked(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls()
    broken = [True]
    from holdfast.worker.handler_transactions import AtomicStep

    commit = AtomicStep._commit_async

    async def fail_once(self: Any, last: Any) -> Any:
        if broken:
            broken.clear()
            error = ConnectionError("the line was cut")
            await self.roll_back_async(error)
            raise error
        return await commit(self, last)

    monkeypatch.setattr(AtomicStep, "_commit_async", fail_once)

    async def book(tx: Any) -> str:
        calls.of["book"] += 1
        return "booked"

    async def function(job: Job[Any]) -> str:
        retry = Retry(base="1ms", cap="1ms", max_attempts=2)
        found = await job.step("book", book, atomic=True, retry=retry)
        await job.step("after", calls.echo, "after")
        await job.wait_for("go")
        return found

    workshop.handle("function", function)
    async with workshop.working(notifier=workshop.notifier):
        job_id = await start(workshop, "function")
        await until(lambda: calls.of["after"])
        await parked(workshop, job_id)
        await send(workshop, "go")
        assert await completed(workshop, job_id) == '"booked"'
    assert calls.of == {"book": 2, "after": 1}


async def test_replays_ask_the_database_once_whatever_was_recorded(workshop: Workshop) -> None:
    calls, faults = Calls(), Faults()

    async def function(job: Job[Any]) -> None:
        for each in range(job.input):
            await job.step("part", calls.echo, each)
        await job.wait_for("go")

    asked: list[int] = []
    workshop.handle("function", function)
    for count in (3, 40):
        async with workshop.working(faults=faults, notifier=workshop.notifier):
            job_id = await start(workshop, "function", count)
            await parked(workshop, job_id)
            before = faults.runs("read") + faults.runs("steps")
            await send(workshop, "go")
            await completed(workshop, job_id)
            asked.append(faults.runs("read") + faults.runs("steps") - before)
            assert starts(workshop, job_id) == 2
    assert asked[0] == asked[1] <= 3


async def test_a_lease_that_is_lost_while_a_record_waits_ends_the_function(
    workshop: Workshop,
) -> None:
    calls, faults = Calls(), Faults()
    errors: list[str] = []

    async def function(job: Job[Any]) -> str:
        try:
            await job.step("part", calls.echo, 1)
        except BaseException as error:
            errors.append(type(error).__name__)
            raise
        return "ended"

    workshop.handle("function", function)
    faults.set("before", "steps")
    async with workshop.working(faults=faults):
        job_id = await start(workshop, "function")
        await faults.ran("steps", 2)
        await workshop.run(cancel_chain(workshop.store, job_id))
        faults.clear()
        await until(lambda: errors)
    assert errors[0] in ("LeaseLost", "CancelledError")
    assert (await ended(workshop, job_id)).state == "cancelled"
    assert await records(workshop, job_id) == {}

"""Parking: a function that only waits holds nothing, and its code cannot swallow that."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from holdfast.steps import parking
from holdfast.worker.job import Job, SyncJob
from tests.steps.functions import Calls, completed, parked, records, send, start, starts, stored
from tests.support.until import breath, until
from tests.worker.workshop import Workshop

Case = Callable[[Job[Any]], Awaitable[Any]]


async def work(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "ok"


async def plain(job: Job[Any]) -> Any:
    return await job.wait_for("w")


async def gather(job: Job[Any]) -> Any:
    return (await asyncio.gather(job.step("slow", work, 0.05), job.wait_for("w")))[1]


async def gather_with_exceptions(job: Job[Any]) -> Any:
    waited = [job.step("slow", work, 0.05), job.wait_for("w")]
    return (await asyncio.gather(*waited, return_exceptions=True))[1]


async def two_waits(job: Job[Any]) -> Any:
    return (await asyncio.gather(job.wait_for("w"), job.wait_for("v")))[0]


async def task_group(job: Job[Any]) -> Any:
    async with asyncio.TaskGroup() as group:
        group.create_task(job.step("slow", work, 0.05))
        waits = group.create_task(job.wait_for("w"))
    return waits.result()


async def task_group_swallowed(job: Job[Any]) -> Any:
    found = []

    async def wait() -> None:
        found.append(await job.wait_for("w"))

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(job.step("slow", work, 0.05))
            group.create_task(wait())
    except* Exception:
        found.append("swallowed")
    return found[0]


async def wait_for(job: Job[Any]) -> Any:
    return await asyncio.wait_for(job.wait_for("w"), 50)


async def timeout(job: Job[Any]) -> Any:
    async with asyncio.timeout(50):
        return await job.wait_for("w")


async def wait_for_all(job: Job[Any]) -> Any:
    slow = asyncio.create_task(job.step("slow", work, 0.05))
    waits = asyncio.create_task(job.wait_for("w"))
    await asyncio.wait({slow, waits})
    return waits.result()


async def except_exception(job: Job[Any]) -> Any:
    try:
        return await job.wait_for("w")
    except Exception:
        return "swallowed"


async def bare_except(job: Job[Any]) -> Any:
    try:
        return await job.wait_for("w")
    except:  # noqa: E722
        return "swallowed"


async def suppressed(job: Job[Any]) -> Any:
    with contextlib.suppress(BaseException):
        return await job.wait_for("w")
    return "swallowed"


async def finally_awaits(job: Job[Any]) -> Any:
    try:
        return await job.wait_for("w")
    finally:
        await asyncio.sleep(0.02)


async def finally_steps(job: Job[Any]) -> Any:
    try:
        return await job.wait_for("w")
    finally:
        await job.step("cleanup", work, 0)


async def finally_awaits_for_ever(job: Job[Any]) -> Any:
    try:
        return await job.wait_for("w")
    except asyncio.CancelledError:
        await asyncio.sleep(3600)


async def nested(job: Job[Any]) -> Any:
    async def inner() -> Any:
        return await asyncio.create_task(job.wait_for("w"))

    return await asyncio.create_task(inner())


async def shield(job: Job[Any]) -> Any:
    return await asyncio.shield(job.wait_for("w"))


async def anyio_group(job: Job[Any]) -> Any:
    found = []

    async def wait() -> None:
        found.append(await job.wait_for("w"))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        group.start_soon(job.step, "slow", work, 0.05)
    return found[0]


async def anyio_scope(job: Job[Any]) -> Any:
    with anyio.move_on_after(50):
        return await job.wait_for("w")
    return "swallowed"


async def anyio_shield(job: Job[Any]) -> Any:
    with anyio.CancelScope(shield=True):
        return await job.wait_for("w")


async def through_a_thread(job: Job[Any]) -> Any:
    loop = asyncio.get_running_loop()

    def call() -> Any:
        return asyncio.run_coroutine_threadsafe(job.wait_for("w"), loop).result()

    return await asyncio.to_thread(call)


LATER = asyncio.Event()
"""Set once a function was parked: plain code beside its wait goes on, and what swallows everything gives up."""


async def swallowing_loop(job: Job[Any]) -> Any:
    while True:
        try:
            return await job.wait_for("w")
        except BaseException:
            if LATER.is_set():
                raise
            await asyncio.sleep(0)


async def plain_code_beside(job: Job[Any]) -> Any:
    async def other() -> None:
        await until(LATER.is_set)
        await job.step("late", work, 0)

    return (await asyncio.gather(job.wait_for("w"), other()))[0]


async def steps_beside(job: Job[Any]) -> Any:
    async def other() -> None:
        for each in range(3):
            await job.step(f"s{each}", work, 0.02)
            await asyncio.sleep(0)

    return (await asyncio.gather(job.wait_for("w"), other()))[0]


CASES: dict[Case, set[str]] = {
    plain: set(),
    gather: {"slow"},
    gather_with_exceptions: {"slow"},
    two_waits: {"wait:v"},
    task_group: {"slow"},
    task_group_swallowed: {"slow"},
    wait_for: set(),
    timeout: set(),
    wait_for_all: {"slow"},
    except_exception: set(),
    bare_except: set(),
    suppressed: set(),
    finally_awaits: set(),
    finally_steps: set(),
    finally_awaits_for_ever: set(),
    nested: set(),
    shield: set(),
    anyio_group: {"slow"},
    anyio_scope: set(),
    anyio_shield: set(),
    through_a_thread: set(),
    swallowing_loop: set(),
    plain_code_beside: set(),
    steps_beside: {"s0", "s1", "s2"},
}
"""Each with what it has recorded besides its wait, when it is parked."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
async def test_parking_cannot_be_swallowed(
    workshop: Workshop, case: Case, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case is steps_beside:
        # On a busy machine even a turn of the loop may take longer than it gives branches to reach their next step.
        monkeypatch.setattr(parking, "SETTLE_S", 1.0)

    async def function(job: Job[Any]) -> Any:
        if job.input == "first":
            return await job.step("quick", work, 0)
        return await case(job)

    workshop.handle("function", function)
    LATER.clear()
    async with workshop.working(notifier=workshop.notifier, slots=1):
        if not is_first:
            await completed(workshop, await start(workshop, "function", "first"))
        job_id = await start(workshop, "function", "then")
        await parked(workshop, job_id)
        assert {"wait:w"} | CASES[case] == set(await records(workshop, job_id))
        # The only slot is free again.
        await completed(workshop, await start(workshop, "function", "first"))
        LATER.set()
        if case is two_waits:
            await send(workshop, "v")
        await send(workshop, "w", data="came")
        assert await completed(workshop, job_id) == '"came"'


def sync_plain(job: SyncJob[Any]) -> Any:
    return job.wait_for("w")


def sync_bare_except(job: SyncJob[Any]) -> Any:
    try:
        return job.wait_for("w")
    except:  # noqa: E722
        return "swallowed"


def sync_finally_steps(job: SyncJob[Any]) -> Any:
    try:
        return job.wait_for("w")
    finally:
        job.step("cleanup", Calls().echo_sync, 1)


def sync_twice(job: SyncJob[Any]) -> Any:
    with contextlib.suppress(BaseException):
        return job.wait_for("w")
    with contextlib.suppress(BaseException):
        job.sleep("1h")
    with contextlib.suppress(BaseException):
        job.step("late", Calls().echo_sync, 1)
    return "swallowed"


@pytest.mark.parametrize(
    "case",
    [sync_plain, sync_bare_except, sync_finally_steps, sync_twice],
    ids=lambda case: case.__name__,
)
async def test_parking_cannot_be_swallowed_by_a_sync_handler(
    workshop: Workshop, case: Callable[[Job[Any]], Any]
) -> None:
    workshop.handle("function", case)
    async with workshop.working(notifier=workshop.notifier, slots=1):
        job_id = await start(workshop, "function")
        await parked(workshop, job_id)
        assert set(await records(workshop, job_id)) == {"wait:w"}
        await send(workshop, "w", data="came")
        assert await completed(workshop, job_id) == '"came"'


def is_of_a_function(task: asyncio.Task[Any]) -> bool:
    return "holdfast/steps/" in str(task) and "StepRecorder" not in str(task)


async def test_a_parked_function_holds_no_slot_lease_or_task(workshop: Workshop) -> None:
    async def function(job: Job[Any]) -> Any:
        return await job.wait_for("w", key=job.input)

    async def quick(job: Job[Any]) -> None: ...

    workshop.handle("function", function)
    workshop.handle("quick", quick)
    async with workshop.working(slots=1):
        ids = [await start(workshop, "function", each) for each in range(20)]
        for each in ids:
            await parked(workshop, each)
        await completed(workshop, await start(workshop, "quick"))
        # The recorder has one for all functions of its worker.
        await until(lambda: not any(map(is_of_a_function, asyncio.all_tasks())))
        assert workshop.ledger.leases() == []
    for each in ids:
        record = await workshop.job(each)
        assert (record.state, record.attempt) == ("blocked", 0)
    assert stored(workshop, "attempt") == []


async def test_a_parked_function_holds_no_thread_and_no_connection(workshop: Workshop) -> None:
    """There are more of them than threads and connections of a pool, and others still get all of these."""
    parallel, gate = 4, threading.Barrier(5)

    async def row(tx: Any) -> None:
        await tx.execute(workshop.ledger.write_effect, ["waits"])

    def row_sync(tx: Any) -> None:
        tx.execute(workshop.ledger.write_effect, ["waits"])

    async def function(job: Job[Any]) -> Any:
        await job.step("row", row, atomic=True)
        return await job.wait_for("w", key=job.input)

    def function_sync(job: SyncJob[Any]) -> Any:
        job.step("row", row_sync, atomic=True)
        return job.wait_for("w", key=job.input)

    def quick(job: SyncJob[Any]) -> None:
        # Each needs a thread while the others have theirs.
        gate.wait(30)

    for name, handler in (("async", function), ("sync", function_sync), ("quick", quick)):
        workshop.handle(name, handler)
    async with workshop.working(slots=parallel):
        ids = [
            await start(workshop, name, each) for name in ("async", "sync") for each in range(12)
        ]
        for each in ids:
            await parked(workshop, each)
        assert workshop.ledger.effects() == ["waits"] * len(ids)
        others = [await start(workshop, "quick") for _ in range(parallel)]
        await asyncio.to_thread(gate.wait, 30)
        for each in others:
            await completed(workshop, each)
    assert {(await workshop.job(each)).state for each in ids} == {"blocked"}


async def test_a_wait_that_asyncio_ended_does_not_park(workshop: Workshop) -> None:
    async def function(job: Job[Any]) -> Any:
        try:
            return await asyncio.wait_for(job.wait_for("w"), 0.002)
        except TimeoutError:
            await asyncio.sleep(0.05)
            return "timed out by asyncio"

    workshop.handle("function", function)
    job_id = await start(workshop, "function")
    async with workshop.working():
        assert await completed(workshop, job_id) == '"timed out by asyncio"'
    assert workshop.events.of("job_parked") == []


async def test_what_a_function_left_behind_cannot_hurt_the_next_job_of_its_slot(
    workshop: Workshop,
) -> None:
    left: list[asyncio.Task[Any]] = []

    async def function(job: Job[Any]) -> str:
        async def forgotten() -> None:
            await asyncio.gather(job.step("slow", work, 0.03), job.wait_for("w"))

        left.append(asyncio.create_task(forgotten()))
        await asyncio.sleep(0.005)
        return "ended"

    async def next_one(job: Job[Any]) -> str:
        await asyncio.sleep(0.2)
        return "undisturbed"

    workshop.handle("function", function)
    workshop.handle("next", next_one)
    async with workshop.working(slots=1):
        first = await start(workshop, "function")
        second = await start(workshop, "next")
        assert await completed(workshop, first) == '"ended"'
        assert await completed(workshop, second) == '"undisturbed"'
        assert starts(workshop, second) == 1
        await until(lambda: left[0].done())
        assert left[0].cancelled() or left[0].exception() is not None


async def test_the_exit_of_a_handler_is_a_result_like_any_other(workshop: Workshop) -> None:
    calls = Calls()

    async def function(job: Job[Any]) -> str:
        await job.step("one", calls.echo, 1)
        if job.input == "exit":
            raise SystemExit(3)
        return "ok"

    workshop.handle("function", function)
    async with workshop.working(slots=1):
        for _ in range(2):
            await completed(workshop, await start(workshop, "function"))
            job_id = await start(workshop, "function", "exit")
            await workshop.events.seen("job_retried", job_id=job_id)
        await breath()


async def test_a_step_cannot_wait_inside_of_another(workshop: Workshop) -> None:
    async def function(job: Job[Any]) -> str:
        async def inner() -> None:
            await job.sleep("1ms")

        try:
            await job.step("outer", inner)
        except Exception as error:
            return str(getattr(error, "kind", type(error).__name__))
        return "slept"

    workshop.handle("function", function)
    job_id = await start(workshop, "function")
    async with workshop.working():
        assert await completed(workshop, job_id) == '"StepsRefused"'


async def detached(job: Job[Any]) -> str:
    forgotten = asyncio.create_task(job.wait_for("w"))
    await job.step("fast", work, 0.01)
    await job.step("more", work, 0.01)
    return "ended" if not forgotten.done() else "waited"


async def ends_late(job: Job[Any]) -> str:
    forgotten = asyncio.create_task(job.wait_for("w"))
    await job.step("fast", work, 0.01)
    # A busy loop: its next turn comes when the function would be parked.
    time.sleep(0.03)  # noqa: ASYNC251
    return "ended" if not forgotten.done() else "waited"


async def wait_first(job: Job[Any]) -> str:
    tasks = {asyncio.create_task(job.step("fast", work, 0.02))}
    tasks.add(asyncio.create_task(job.wait_for("w")))
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for each in pending:
        each.cancel()
    return ",".join(each.result() for each in done)


@pytest.mark.parametrize(
    ("case", "output"), [(detached, "ended"), (ends_late, "ended"), (wait_first, "ok")]
)
async def test_a_wait_that_nobody_awaits_does_not_park(
    workshop: Workshop, case: Case, output: str
) -> None:
    workshop.handle("function", case)
    async with workshop.working(notifier=workshop.notifier, slots=1):
        job_id = await start(workshop, "function")
        assert await completed(workshop, job_id) == f'"{output}"'
    assert workshop.events.of("job_parked") == []
    # The signal is there for another one.
    workshop.handle("other", plain)
    await send(workshop, "w", data="came")
    async with workshop.working():
        assert await completed(workshop, await start(workshop, "other")) == '"came"'


async def called(job: Job[Any]) -> Any:
    return await job.run("child", None)


@pytest.mark.parametrize("old", [plain, called], ids=lambda each: each.__name__)
async def test_what_the_code_waits_for_no_longer_does_not_keep_a_function_awake(
    workshop: Workshop, old: Case
) -> None:
    code: list[Case] = [old]

    async def function(job: Job[Any]) -> Any:
        return await code[-1](job)

    async def new(job: Job[Any]) -> Any:
        return await job.wait_for("new")

    async def child(job: Job[Any]) -> None: ...

    workshop.handle("function", function)
    async with workshop.working(notifier=workshop.notifier):
        job_id = await start(workshop, "function")
        await parked(workshop, job_id)
    code.append(new)
    workshop.handle("child", child)
    async with workshop.working(notifier=workshop.notifier):
        await send(workshop, "w")
        await parked(workshop, job_id, 2)
        assert (await workshop.job(job_id)).state == "blocked"
        await send(workshop, "new", data="came")
        assert await completed(workshop, job_id) == '"came"'
        assert starts(workshop, job_id) == 3


async def test_a_branch_that_is_slow_to_reach_its_wait_again_is_waited_for(
    workshop: Workshop,
) -> None:
    """A loop that is busy must not park a function before it has come to where it was."""
    pace = [0.0]

    async def function(job: Job[Any]) -> Any:
        async def other() -> Any:
            await asyncio.sleep(pace[0])
            return await job.wait_for("w")

        waits = {asyncio.create_task(other()), asyncio.create_task(job.wait_for("v"))}
        (done, *_), _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return done.result()

    workshop.handle("function", function)
    async with workshop.working(notifier=workshop.notifier):
        job_id = await start(workshop, "function")
        await parked(workshop, job_id)
        pace[0] = 0.05
        await send(workshop, "w", data="came")
        assert await completed(workshop, job_id) == '"came"'
        assert starts(workshop, job_id) == 2

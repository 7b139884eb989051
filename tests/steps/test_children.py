"""Functions that call other chains, and cursors of long loops."""

import asyncio
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import pytest

from holdfast import Seal
from holdfast.commands.chains import cancel_chain
from holdfast.commands.retention import FIRST_ID, Ages, remove_chains
from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.errors import ChildFailed, Permanent
from holdfast.core.records import NewJob
from holdfast.core.registry import job_type_of
from holdfast.core.sealing import seal_input
from holdfast.steps import cursor as cursors
from holdfast.storage.id_generator import new_id
from holdfast.worker.job import Job, SyncJob
from tests.steps.functions import (
    AT_ONCE,
    completed,
    ended,
    parked,
    records,
    send,
    start,
    starts,
    stored,
)
from tests.support.until import until
from tests.worker.workshop import Workshop

A_WEEK = 7 * 86_400_000_000


async def double(job: Job[int]) -> int:
    if job.input < 0:
        raise Permanent("negative")
    return 2 * job.input


async def test_a_function_gets_the_outputs_of_the_chains_that_it_calls(workshop: Workshop) -> None:
    async def parent(job: Job[Any]) -> list[int]:
        one = await job.run(double, 4)
        many = await job.run_many(double, range(100))
        none = await job.run_many(double, [])
        return [one, sum(many), len(none)]

    workshop.handle("double", double)
    workshop.handle("parent", parent)
    async with workshop.working():
        job_id = await start(workshop, "parent")
        assert await completed(workshop, job_id) == "[8,9900,0]"
    assert len(workshop.events.of("job_completed")) == 102
    assert starts(workshop, job_id) <= 6


async def test_a_sync_function_calls_chains_too(workshop: Workshop) -> None:
    def parent(job: SyncJob[Any]) -> list[int]:
        return job.run_many(double, [1, 2, 3])

    workshop.handle("double", double)
    workshop.handle("parent", parent)
    async with workshop.working():
        assert await completed(workshop, await start(workshop, "parent")) == "[2,4,6]"


@pytest.mark.parametrize("kind", ["run", "signal"])
async def test_what_has_ended_does_not_keep_a_function_from_parking(
    workshop: Workshop, kind: str
) -> None:
    go = asyncio.Event()

    async def slow(job: Job[Any]) -> str:
        await go.wait()
        return "slow"

    async def parent(job: Job[Any]) -> str:
        other = job.run(slow) if kind == "run" else job.wait_for("go")
        await asyncio.gather(job.run(double, 1), other)
        return "both"

    workshop.handle("double", double)
    workshop.handle("slow", slow)
    workshop.handle("parent", parent)
    async with workshop.working(notifier=workshop.notifier):
        job_id = await start(workshop, "parent")
        await parked(workshop, job_id, 2)
        await asyncio.sleep(0.3)
        assert starts(workshop, job_id) <= 3
        go.set()
        await send(workshop, "go")
        assert await completed(workshop, job_id) == '"both"'


async def test_one_run_after_the_other_parks_for_each(workshop: Workshop) -> None:
    go = asyncio.Event()

    async def slow(job: Job[Any]) -> int:
        await go.wait()
        return 1

    async def parent(job: Job[Any]) -> int:
        return await job.run(double, 1) + int(await job.run(slow))

    workshop.handle("double", double)
    workshop.handle("slow", slow)
    workshop.handle("parent", parent)
    async with workshop.working():
        job_id = await start(workshop, "parent")
        await parked(workshop, job_id, 2)
        await asyncio.sleep(0.3)
        assert starts(workshop, job_id) <= 3
        go.set()
        assert await completed(workshop, job_id) == "3"


async def test_a_child_that_fails_or_is_cancelled_raises_the_same_in_every_replay(
    workshop: Workshop,
) -> None:
    seen: list[str] = []

    async def never(job: Job[Any]) -> None:
        await asyncio.Event().wait()

    async def parent(job: Job[Any]) -> str:
        for target, input in (("double", -1), ("never", None)):
            try:
                await job.run(target, input)
            except ChildFailed as error:
                seen.append(f"{error.state} {error.error}")
        await job.wait_for("go")
        return "went on"

    workshop.handle("double", double)
    workshop.handle("never", never)
    workshop.handle("parent", parent)
    async with workshop.working(notifier=workshop.notifier) as running:
        job_id = await start(workshop, "parent")
        (told,) = await workshop.events.seen("job_started", type="never")
        await workshop.run(cancel_chain(workshop.store, told.fields["chain_id"]))
        workshop.have_leases_checked(running)

        async def is_waiting() -> bool:
            return "wait:go" in await records(workshop, job_id)

        workshop.have_due()
        await until(is_waiting)
        await send(workshop, "go")
        assert await completed(workshop, job_id) == '"went on"'
    failed, cancelled = seen[-2:]
    assert failed.startswith("failed ")
    assert "negative" in failed
    assert cancelled.startswith("cancelled ")
    assert set(seen) == {failed, cancelled}


@pytest.mark.parametrize("keep", ["0s", "30d"])
async def test_what_a_live_function_called_outlives_retention(
    workshop: Workshop, keep: str
) -> None:
    go = asyncio.Event()

    async def slow(job: Job[Any]) -> int:
        await go.wait()
        return 1

    async def parent(job: Job[Any]) -> int:
        many, one = await asyncio.gather(job.run_many(double, [1, 2, 3]), job.run(slow))
        more = await job.wait_for("more")
        return int(sum(many) + one + more)

    workshop.handle("double", double, keep=keep)
    workshop.handle("slow", slow, keep=keep)
    workshop.handle("parent", parent)

    async def remove_old() -> int:
        now = await workshop.run(workshop.store.schema.clock()) + 50 * A_WEEK
        ages = Ages(chains=30, dead_letters=30, runs=30)
        op = remove_chains(workshop.store, ages, FIRST_ID, 100, now)
        return int((await workshop.run(op)).removed)

    async with workshop.working(notifier=workshop.notifier):
        job_id = await start(workshop, "parent")
        # Its three chains have ended, and it has parked again for the fourth.
        await parked(workshop, job_id, 2)
        assert await remove_old() == 0
        go.set()
        await until(lambda: workshop.events.of("job_parked", job_id=job_id)[2:])
        assert await remove_old() == 0
        await send(workshop, "more", data=5)
        assert await completed(workshop, job_id) == "18"
    assert await remove_old() > 0
    assert stored(workshop, "step") == []


async def test_a_key_finds_the_chain_that_runs_already(workshop: Workshop) -> None:
    async def parent(job: Job[Any]) -> int:
        return await job.run(double, job.input, key="same")

    workshop.handle("double", double)
    workshop.handle("parent", parent)
    first, second = [await start(workshop, "parent", each) for each in (1, 1)]
    async with workshop.working():
        assert await completed(workshop, first) == "2"
        assert await completed(workshop, second) == "2"


async def test_what_a_job_waited_for_is_not_mixed_with_what_it_called(workshop: Workshop) -> None:
    seen: list[int] = []

    async def parent(job: Job[Any]) -> int:
        seen.append(len(job.blockers))
        return await job.run(double, 1)

    workshop.handle("double", double)
    workshop.handle("parent", parent)
    async with workshop.working():
        job_id = await start(workshop, "parent")
        assert await completed(workshop, job_id) == "2"
    assert set(seen) == {0}


@dataclass
class Patient:
    name: str


SECRET = "Wolverine-4711"


async def test_nothing_of_a_sealed_function_is_stored_in_clear(workshop: Workshop) -> None:
    seal = Seal({"k": Seal.new_key()})
    seen: list[Any] = []

    async def treat(patient: Patient) -> Patient:
        if not seen:
            seen.append("failed")
            raise ValueError(f"no bed for {patient.name}")
        return Patient(f"{patient.name} in bed")

    async def child(job: Job[Patient]) -> str:
        return job.input.name

    async def function(job: Job[Patient]) -> str:
        patient = await job.step("treat", treat, job.input, retry=AT_ONCE)
        seen.append(patient)
        cursor = await job.cursor("at", job.input.name)
        await cursor.set(f"{cursor.value}!")
        told = await job.wait_for("told")
        name = await job.run(child, job.input)
        await job.wait_for("end")
        return f"{patient.name} {told} {name} {cursor.value}"

    for name, handler in (("child", child), ("function", function)):
        made = job_type_of(handler, name, Job, {"sealed": True})
        workshop.types[name] = replace(made, sealer=seal)
    text = f'{{"name":"{SECRET}"}}'

    job_id = new_id()
    sealed = seal_input(seal, text, job_id, "function")
    job = NewJob(id=job_id, chain_id=job_id, type="function", input=sealed)
    await workshop.run(start_chains(workshop.store, [StartRequest(job)]))
    async with workshop.working(notifier=workshop.notifier):
        workshop.have_due()
        await send(workshop, "told", data="x")

        async def is_waiting() -> bool:
            return "wait:end" in await records(workshop, job_id)

        await until(is_waiting)
        await send(workshop, "end")
        output = str(await completed(workshop, job_id))
    assert SECRET not in output
    assert seen[-1] == Patient(f"{SECRET} in bed")
    for table in ("step", "signal", "attempt", "outcome", "job", "queue"):
        assert SECRET not in str(stored(workshop, table)), table
    assert len(stored(workshop, "step")) >= 6
    # Nor what would tell that a guess is right.
    assert (await records(workshop, job_id))["treat"].arguments is None


async def test_a_cursor_keeps_its_value_and_type_over_attempts(workshop: Workshop) -> None:
    seen: list[Any] = []

    async def function(job: Job[Any]) -> str:
        days = await job.cursor("days", date(2026, 1, 1))
        count = await job.cursor("count", 0)
        seen.append((days.value, count.value))
        await days.set(date(2026, 2, len(seen)))
        await count.set(len(seen))
        if len(seen) == 1:
            raise ValueError("between")
        await job.wait_for("go")
        return "end"

    workshop.handle("function", function, retry=AT_ONCE)
    async with workshop.working(notifier=workshop.notifier):
        job_id = await start(workshop, "function")
        await parked(workshop, job_id)
        await send(workshop, "go")
        await completed(workshop, job_id)
    assert seen == [(date(2026, 1, 1), 0), (date(2026, 2, 1), 1), (date(2026, 2, 2), 2)]


async def test_a_cursor_is_saved_when_the_worker_shuts_down(workshop: Workshop) -> None:
    seen: list[int] = []
    is_set: list[bool] = []

    async def function(job: Job[Any]) -> None:
        cursor = await job.cursor("rows", 0)
        seen.append(cursor.value)
        if cursor.value:
            return
        await cursor.set(7)
        is_set.append(True)
        await asyncio.Event().wait()

    workshop.handle("function", function)
    worker = workshop.begin()
    job_id = await start(workshop, "function")
    await until(lambda: is_set)
    await worker.stop(2)
    async with workshop.working():
        await ended(workshop, job_id)
    assert seen == [0, 7]


async def test_a_cursor_is_written_once_a_second(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursors, "SAVED_EVERY_S", 0.0)
    values: list[str | None] = []

    async def function(job: Job[Any]) -> None:
        cursor = await job.cursor("rows", 0)
        for each in range(3):
            await cursor.set(each)
            values.append((await records(workshop, str(job.id)))["rows"].output)

    workshop.handle("function", function)
    async with workshop.working():
        await completed(workshop, await start(workshop, "function"))
    assert values == ["0", "1", "2"]

"""What surrounds a handler: middlewares, the job's context, its progress, what it waited for."""

import asyncio
from typing import Any, cast

import pytest

from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.records import NewBlocker, NewJob
from holdfast.observe.context import JobContext, current_job
from holdfast.storage.id_generator import new_id
from holdfast.worker.job import BlockerResult, Job, Middleware, Next
from tests.support.manual_clock import ManualClock
from tests.worker.workshop import Workshop


async def test_middlewares_surround_the_handler_like_an_onion(workshop: Workshop) -> None:
    told: list[str] = []

    def layer(name: str) -> Middleware:
        async def middleware(job: Job[Any], next: Next) -> Any:
            told.append(f"{name} before {job.attempt}")
            try:
                answer = await next()
            except OSError:
                told.append(f"{name} saw the error")
                raise
            told.append(f"{name} saw {answer}")
            return f"{answer}, {name}"

        return middleware

    async def work(job: Job[Any]) -> str:
        told.append("handler")
        if job.attempt == 1:
            raise OSError
        return "done"

    workshop.handle("work", work)
    job_id = await workshop.start_one("work")
    layers = (layer("outer"), layer("inner"))
    await workshop.until_idle(middlewares=layers)
    await workshop.run(workshop.store.jobs.trigger([job_id]))
    await workshop.until_idle(middlewares=layers)
    assert told == [
        "outer before 1",
        "inner before 1",
        "handler",
        "inner saw the error",
        "outer saw the error",
        "outer before 2",
        "inner before 2",
        "handler",
        "inner saw done",
        "outer saw done, inner",
    ]
    assert (await workshop.job(job_id)).output == '"done, inner, outer"'


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_middleware_that_fails_is_a_failed_attempt(workshop: Workshop, when: str) -> None:
    calls = 0

    async def middleware(job: Job[Any], next: Next) -> Any:
        if when == "after":
            await next()
        raise RuntimeError("the tracer is broken")

    async def work(job: Job[Any]) -> None:
        nonlocal calls
        calls += 1

    workshop.handle("work", work)
    job_id = await workshop.start_one("work", max_attempts=1)
    await workshop.until_idle(middlewares=(middleware,))
    assert calls == (1 if when == "after" else 0)
    record = await workshop.job(job_id)
    assert record.state == "failed"
    assert "the tracer is broken" in str(record.error)


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_the_jobs_context_is_set_around_the_handler_and_nowhere_else(
    workshop: Workshop, colour: str
) -> None:
    seen: dict[str, JobContext | None] = {}

    async def middleware(job: Job[Any], next: Next) -> Any:
        seen["middleware"] = current_job.get()
        return await next()

    async def work(job: Job[Any]) -> None:
        seen["handler"] = current_job.get()
        seen["task"] = await asyncio.create_task(in_a_task())

    async def in_a_task() -> JobContext | None:
        return current_job.get()

    def work_in_thread(job: Job[Any]) -> None:
        seen["handler"] = seen["task"] = current_job.get()

    workshop.handle("work", work if colour == "async" else work_in_thread)
    job_id = await workshop.start_one("work", trace="00-trace-span-01")
    worker = workshop.begin(stop_when_idle=True, middlewares=(middleware,))
    await worker.ended()
    context = JobContext(job_id, "work", job_id, worker.id, 1, "00-trace-span-01")
    assert seen == {"middleware": context, "handler": context, "task": context}
    assert current_job.get() is None


async def test_progress_is_recorded_with_the_heartbeat_and_forgotten_at_the_end(
    workshop: Workshop,
) -> None:
    further, go = asyncio.Event(), asyncio.Event()

    async def work(job: Job[Any]) -> None:
        job.progress(0.4, "rendering \x00 page 3")
        await further.wait()
        job.progress(7.0)
        await go.wait()

    workshop.handle("work", work)
    job_id = await workshop.start_one("work")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", job_id=job_id)
    progress = workshop.store.leases.progress
    await workshop.beat(worker)
    (told,) = await workshop.run(progress([job_id]))
    assert (told.fraction, told.note) == (0.4, "rendering \N{REPLACEMENT CHARACTER} page 3")
    assert told.fence == (await workshop.job(job_id)).fence
    further.set()
    await asyncio.sleep(0)
    await workshop.beat(worker)
    (told,) = await workshop.run(progress([job_id]))
    assert (told.fraction, told.note) == (1.0, "")
    go.set()
    await workshop.events.seen("job_completed", job_id=job_id)
    assert await workshop.run(progress([job_id])) == []
    await workshop.beat(worker)
    await worker.stop()
    assert workshop.ledger.rows("progress") == 0


@pytest.mark.parametrize("fraction", ["half", None, 10**400])
async def test_progress_that_says_nothing_is_refused(
    sqlite_workshop: Workshop, fraction: Any
) -> None:
    async def work(job: Job[Any]) -> None:
        job.progress(0.5, cast(str, None))
        job.progress(fraction)

    sqlite_workshop.handle("work", work)
    job_id = await sqlite_workshop.start_one("work")
    await sqlite_workshop.until_idle()
    record = await sqlite_workshop.job(job_id)
    assert record.state == "failed"
    assert str(record.error).startswith("InvalidOption: ")


async def test_progress_of_an_attempt_that_lost_its_job_is_not_shown(workshop: Workshop) -> None:
    go = asyncio.Event()

    async def work(job: Job[Any]) -> None:
        job.progress(job.attempt / 10)
        await go.wait()

    workshop.handle("work", work)
    job_id = await workshop.start_one("work")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", job_id=job_id)
    await workshop.beat(worker)
    assert await workshop.reap_as_if_later() == [job_id]
    assert await workshop.run(workshop.store.leases.progress([job_id])) == []
    await workshop.run(workshop.store.jobs.trigger([job_id]))
    workshop.have_due()
    await workshop.events.seen("job_started", job_id=job_id, attempt=2)
    await workshop.beat(worker)
    await workshop.beat(worker)
    (told,) = await workshop.run(workshop.store.leases.progress([job_id]))
    assert told.fraction == 0.2
    go.set()
    await workshop.events.seen("job_completed", job_id=job_id)


@pytest.mark.parametrize("batch", [None, 10])
async def test_a_handler_sees_what_its_job_waited_for(
    workshop: Workshop, batch: int | None
) -> None:
    seen: list[tuple[BlockerResult, ...]] = []

    async def part(job: Job[int]) -> int:
        return job.input * 10

    async def whole(job: Job[Any]) -> None:
        seen.append(job.blockers)

    async def whole_in_batches(jobs: list[Job[Any]]) -> None:
        seen.extend(job.blockers for job in jobs)

    workshop.handle("part", part)
    if batch is None:
        workshop.handle("whole", whole)
    else:
        workshop.handle("whole", whole_in_batches, batch=batch)
    parts = [await workshop.start_one("part", number) for number in (3, 1, 2)]
    job_id = new_id()
    job = NewJob(id=job_id, chain_id=job_id, type="whole", input="null", blockers=3)
    edges = tuple(NewBlocker(job_id, place, chain) for place, chain in enumerate(parts))
    await workshop.run(start_chains(workshop.store, [StartRequest(job, blockers=edges)]))
    worker = workshop.begin(ManualClock())
    await workshop.events.seen("job_unblocked", job_id=job_id)
    await workshop.events.seen("job_completed", job_id=job_id)
    await worker.stop()
    assert [(str(each.chain_id), each.state, each.output) for each in seen[0]] == [
        (parts[0], "completed", 30),
        (parts[1], "completed", 10),
        (parts[2], "completed", 20),
    ]

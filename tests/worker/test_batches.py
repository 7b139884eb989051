"""Batch handlers: many jobs in one call, an outcome for each."""

import asyncio
import threading
from typing import Any

import pytest

from holdfast.commands.jobs import cancel_jobs
from holdfast.core.errors import HandlerInvalid, Permanent
from holdfast.core.outcome import Cancel, Snooze
from holdfast.worker.job import Job, Next
from tests.support.manual_clock import ManualClock
from tests.support.until import until
from tests.worker.workshop import Workshop


async def test_a_batch_handler_takes_what_there_is_and_waits_for_no_more(
    workshop: Workshop,
) -> None:
    sizes: list[int] = []

    async def send(jobs: list[Job[int]]) -> list[int]:
        sizes.append(len(jobs))
        return [job.input + 1 for job in jobs]

    workshop.handle("send", send, batch=20)
    ids = [await workshop.start_one("send", number) for number in range(33)]
    await workshop.until_idle(slots=1)
    assert sizes == [20, 13]
    outputs = [(await workshop.job(job_id)).output for job_id in ids]
    assert outputs == [str(number + 1) for number in range(33)]


async def test_a_batch_handler_in_a_thread_answers_with_nothing_and_completes_all(
    workshop: Workshop,
) -> None:
    names: list[str] = []

    def send(jobs: list[Job[Any]]) -> None:
        names.append(threading.current_thread().name)

    workshop.handle("send", send, batch=10)
    ids = await workshop.start("send", count=5)
    await workshop.until_idle()
    assert await workshop.states(ids) == ["completed"] * 5
    assert names == [names[0]]
    assert names[0].startswith("holdfast-handler")


async def test_each_job_of_a_batch_has_an_outcome_of_its_own(workshop: Workshop) -> None:
    answers: list[Any] = [7, Snooze("1h"), Cancel("no"), OSError("busy"), Permanent("never")]

    async def send(jobs: list[Job[int]]) -> list[Any]:
        return [answers[job.input] for job in jobs]

    workshop.handle("send", send, batch=10)
    ids = [await workshop.start_one("send", number) for number in range(5)]
    await workshop.until_idle()
    states = ["completed", "pending", "cancelled", "pending", "failed"]
    assert await workshop.states(ids) == states
    retried = await workshop.job(ids[3])
    assert retried.attempt == 1
    assert len(await workshop.attempts(ids[3])) == 1


async def test_an_exception_fails_every_job_of_the_batch(workshop: Workshop) -> None:
    async def send(jobs: list[Job[Any]]) -> None:
        raise OSError("the provider is down")

    workshop.handle("send", send, batch=10)
    ids = await workshop.start("send", count=4, max_attempts=1)
    await workshop.until_idle()
    assert await workshop.states(ids) == ["failed"] * 4
    assert "the provider is down" in str((await workshop.job(ids[-1])).error)


async def test_too_few_answers_fail_the_batch(workshop: Workshop) -> None:
    async def send(jobs: list[Job[Any]]) -> list[int]:
        return [1]

    workshop.handle("send", send, batch=10)
    ids = await workshop.start("send", count=2)
    await workshop.until_idle()
    assert await workshop.states(ids) == ["failed"] * 2
    assert "a list of 2" in str((await workshop.job(ids[0])).error)


async def test_middlewares_wrap_the_batch_as_a_whole(workshop: Workshop) -> None:
    seen: list[int] = []

    async def count(jobs: Any, next: Next) -> Any:
        seen.append(len(jobs))
        return await next()

    async def send(jobs: list[Job[Any]]) -> None: ...

    workshop.handle("send", send, batch=10)
    await workshop.start("send", count=3)
    await workshop.until_idle(middlewares=(count,))
    assert seen == [3]


async def test_a_limit_of_concurrent_calls_counts_batches_not_jobs(workshop: Workshop) -> None:
    now, most, go = 0, 0, asyncio.Event()

    async def send(jobs: list[Job[Any]]) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await go.wait()
        now -= 1

    workshop.handle("send", send, batch=2, concurrency=2)
    ids = await workshop.start("send", count=12)
    worker = workshop.begin(slots=10)
    await workshop.events.seen("job_started", count=4)
    go.set()
    await workshop.events.seen("job_completed", count=12)
    await worker.stop()
    assert most == 2
    assert await workshop.states(ids) == ["completed"] * 12


async def test_a_batch_goes_on_until_none_of_its_jobs_is_wanted(workshop: Workshop) -> None:
    reasons: list[Any] = []
    cancelled = asyncio.Event()

    async def send(jobs: list[Job[Any]]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            reasons.extend(job.abort_reason for job in jobs)
            cancelled.set()
            raise

    workshop.handle("send", send, batch=10)
    first, second = await workshop.start("send", count=2)
    worker = workshop.begin(ManualClock())
    await workshop.events.seen("job_started", count=2)
    await workshop.run(cancel_jobs(workshop.store, [first]))
    worker.advance(15)
    await workshop.events.seen("lease_lost", job_id=first, reason="cancelled")
    assert not cancelled.is_set()
    await workshop.run(cancel_jobs(workshop.store, [second]))
    worker.advance(15)
    await until(cancelled.is_set)
    assert reasons == ["cancelled", "cancelled"]
    await worker.stop()
    assert await workshop.states([first, second]) == ["cancelled"] * 2


async def test_a_batch_has_no_transaction_of_a_job(workshop: Workshop) -> None:
    async def send(jobs: list[Job[Any]]) -> None:
        jobs[0].complete()

    workshop.handle("send", send, batch=10)
    job_id = await workshop.start_one("send")
    await workshop.until_idle()
    assert "WrongState" in str((await workshop.job(job_id)).error)


async def test_a_batch_handler_can_neither_be_atomic_nor_run_in_a_process(
    workshop: Workshop,
) -> None:
    async def send(jobs: list[Job[Any]]) -> None: ...

    workshop.handle("send", send, batch=10, atomic=True)
    with pytest.raises(HandlerInvalid, match="send"):
        workshop.worker()

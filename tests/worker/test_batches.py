"""Batch handlers: many jobs in one call, an outcome for each."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from holdfast.commands.jobs import cancel_jobs
from holdfast.core.errors import HandlerInvalid, Permanent
from holdfast.core.outcome import Cancel, Snooze
from holdfast.core.sealing import NEVER_LARGE, PayloadStore, Sealed
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


async def start_for(workshop: Workshop, tenant: str | None, count: int = 1) -> list[str]:
    """Start jobs of a tenant as an application does: in their line."""
    flow = workshop.types["send"].flow
    assert flow is not None
    input = {"tenant": tenant}
    gate = flow.partition_of(msgspec.json.encode(input).decode())
    return await workshop.start("send", input, count, gate=gate)


class CallsByKey:
    """A batch handler that notes which tenants each call had."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    async def __call__(self, jobs: list[Job[dict[str, Any]]]) -> None:
        self.calls.append([job.input["tenant"] for job in jobs])


async def test_a_call_takes_jobs_of_one_key(workshop: Workshop) -> None:
    handler = CallsByKey()
    workshop.handle("send", handler, batch=20, batch_by="tenant")
    for _ in range(3):
        await start_for(workshop, "a", 5)
        await start_for(workshop, "b", 10)
    await workshop.until_idle(slots=2)
    assert sorted((len(call), *set(call)) for call in handler.calls) == [
        (10, "b"),
        (15, "a"),
        (20, "b"),
    ]


async def test_a_part_of_a_batch_waits_for_more_and_holds_no_slot(workshop: Workshop) -> None:
    handler = CallsByKey()
    workshop.handle("send", handler, batch=3, batch_by="tenant", batch_wait="1h")
    ids = await start_for(workshop, "a", 2)
    async with workshop.working(slots=1) as worker:
        await start_for(workshop, "b", 3)
        await workshop.events.seen("job_completed", count=3)
        assert await workshop.states(ids) == ["pending"] * 2
        assert worker.worker.counters.claimed == 3
        ids += await start_for(workshop, "a", 1)
        await workshop.events.seen("job_completed", count=6)
    assert handler.calls == [["b"] * 3, ["a"] * 3]


async def test_a_part_of_a_batch_goes_when_the_wait_is_over(workshop: Workshop) -> None:
    handler = CallsByKey()
    workshop.handle("send", handler, batch=100, batch_wait="300ms")
    await start_for(workshop, "a", 2)
    await start_for(workshop, "b", 1)
    async with workshop.working(slots=1):
        await workshop.events.seen("job_completed", count=3)
    assert [sorted(call) for call in handler.calls] == [["a", "a", "b"]]


async def test_a_worker_that_ends_when_idle_waits_for_no_more(workshop: Workshop) -> None:
    handler = CallsByKey()
    workshop.handle("send", handler, batch=100, batch_by="tenant", batch_wait="1h")
    await start_for(workshop, "a", 2)
    await workshop.until_idle()
    assert handler.calls == [["a", "a"]]


async def test_small_batches_of_many_keys_are_claimed_only_into_free_slots(
    workshop: Workshop,
) -> None:
    go = asyncio.Event()
    calls: list[int] = []

    async def send(jobs: list[Job[Any]]) -> None:
        calls.append(len(jobs))
        await go.wait()

    workshop.handle("send", send, batch=100, batch_by="tenant")
    for tenant in "abcdef":
        await start_for(workshop, tenant, 2)
    async with workshop.working(slots=2) as worker:
        await until(lambda: len(calls) == 2)
        assert worker.worker.counters.claimed == 4
        go.set()
        await workshop.events.seen("job_completed", count=12)
    assert calls == [2] * 6


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


class SlowFiles(PayloadStore):
    """Keeps large payloads elsewhere, which takes long the first time."""

    def __init__(self) -> None:
        self.sealer = None
        self.is_asked = asyncio.Event()

    async def restore(self, records: list[Any]) -> None: ...

    async def keep(self, records: list[Any]) -> None:
        if not self.is_asked.is_set():
            self.is_asked.set()
            await asyncio.Event().wait()

    def seal(self, plain: bytes, bound_to: bytes) -> Sealed:
        raise NotImplementedError

    def open(self, sealed: Sealed, bound_to: bytes) -> bytes:
        raise NotImplementedError


async def test_a_batch_that_is_interrupted_while_its_results_are_kept_gives_its_jobs_back(
    workshop: Workshop,
) -> None:
    async def send(jobs: list[Job[Any]]) -> list[str]:
        return ["large" * NEVER_LARGE for _ in jobs]

    files = SlowFiles()
    workshop.types["send"] = replace(workshop.handle("send", send, batch=10), sealer=files)
    ids = await workshop.start("send", count=2)
    worker = workshop.begin()
    await until(files.is_asked.is_set)
    report = await worker.stop(times=2)
    assert report.abandoned == 0
    assert sorted(await workshop.states(ids)) == ["completed", "pending"]


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

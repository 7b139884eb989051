"""Attempts that run too long are stopped, and recorded by the heartbeat's thread whatever the loop does."""

import asyncio
import threading
import time
from typing import Any

import pytest

from holdfast.worker.completer import RETRY_MIN_S
from holdfast.worker.job import Job
from tests.support.manual_clock import ManualClock
from tests.support.until import until
from tests.worker.faults import Faults
from tests.worker.workshop import Workshop


async def test_a_coroutine_is_cancelled_at_its_timeout(workshop: Workshop) -> None:
    reasons: list[Any] = []

    async def wait(job: Job[Any]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            reasons.append(job.abort_reason)
            raise

    workshop.handle("wait", wait, timeout="40s")
    job_id = await workshop.start_one("wait", max_attempts=2)
    worker = workshop.begin(ManualClock())
    await workshop.events.seen("job_started", job_id=job_id)
    worker.advance(41)
    (told,) = await workshop.events.seen("job_retried", job_id=job_id)
    words = "TimedOut: the attempt was stopped after 41 s: its timeout is 40s; to allow more"
    assert told.fields["error"].startswith(words)
    await worker.stop()
    assert reasons == ["timeout"]
    assert (await workshop.job(job_id)).state == "pending"
    assert workshop.ledger.leases() == []


async def test_the_error_names_the_default_that_an_attempt_exceeded(workshop: Workshop) -> None:
    async def wait(job: Job[Any]) -> None:
        await asyncio.Event().wait()

    workshop.handle("wait", wait, lease="1s")
    job_id = await workshop.start_one("wait", max_attempts=1)
    worker = workshop.begin()
    (told,) = await workshop.events.seen("job_failed", job_id=job_id)
    await worker.stop()
    assert "its timeout is 3s, the default of three leases; to allow more" in told.fields["error"]
    assert told.fields["error"].endswith("set timeout= on the job type")


async def test_a_thread_sees_its_abort_flag(workshop: Workshop) -> None:
    reasons: list[Any] = []

    def wait(job: Job[Any]) -> str:
        assert job.wait_for_abort(30)
        reasons.append(job.abort_reason)
        return "an answer that comes too late"

    workshop.handle("wait", wait, timeout="40s")
    job_id = await workshop.start_one("wait", max_attempts=1)
    worker = workshop.begin(ManualClock())
    await workshop.events.seen("job_started", job_id=job_id)
    worker.advance(41)
    await workshop.events.seen("job_failed", job_id=job_id)
    await worker.stop()
    assert reasons == ["timeout"]
    assert (await workshop.job(job_id)).output is None


async def test_a_timeout_is_recorded_while_the_handler_blocks_the_loop(workshop: Workshop) -> None:
    clock = ManualClock()
    seen: dict[str, Any] = {}
    pause = threading.Event()

    async def block(job: Job[Any]) -> None:
        clock.advance(41)
        seen["told"] = job.wait_for_abort(30)
        deadline = time.monotonic() + 30
        while workshop.ledger.leases() and time.monotonic() < deadline:
            pause.wait(0.001)
        seen["leases"] = workshop.ledger.leases()

    workshop.handle("block", block, timeout="40s")
    job_id = await workshop.start_one("block", max_attempts=1)
    worker = workshop.begin(clock)
    await workshop.events.seen("job_failed", job_id=job_id)
    await worker.stop()
    assert seen == {"told": True, "leases": []}
    assert "TimedOut" in str((await workshop.job(job_id)).error)


async def test_a_timeout_much_shorter_than_the_heartbeat_is_kept(workshop: Workshop) -> None:
    async def wait(job: Job[Any]) -> None:
        await asyncio.Event().wait()

    async def quick(job: Job[Any]) -> None: ...

    workshop.handle("quick", quick)
    workshop.handle("wait", wait, timeout="500ms")
    quick_id = await workshop.start_one("quick")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_completed", job_id=quick_id)
    job_id = await workshop.start_one("wait", max_attempts=1)
    workshop.have_due()
    await workshop.events.seen("job_started", job_id=job_id)
    worker.advance(0.6)
    await workshop.events.seen("job_failed", job_id=job_id)
    await worker.stop()


async def test_without_a_timeout_of_its_own_a_type_has_three_leases(workshop: Workshop) -> None:
    async def wait(job: Job[Any]) -> None:
        await asyncio.Event().wait()

    workshop.handle("wait", wait, lease="20s")
    job_id = await workshop.start_one("wait", max_attempts=1)
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", job_id=job_id)
    for _ in range(11):
        worker.advance(5)
        await workshop.beat(worker)
    assert (await workshop.job(job_id)).state == "running"
    worker.advance(6)
    await workshop.events.seen("job_failed", job_id=job_id)
    await worker.stop()


async def test_a_timeout_set_at_run_time_stands_before_the_codes(workshop: Workshop) -> None:
    async def wait(job: Job[Any]) -> None:
        await asyncio.Event().wait()

    workshop.handle("wait", wait, timeout="1h")
    await workshop.run(workshop.store.workers.set_type("wait", timeout_ms=5_000))
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("worker_started")
    await workshop.beat(worker)
    job_id = await workshop.start_one("wait", max_attempts=1)
    workshop.have_due()
    await workshop.events.seen("job_started", job_id=job_id)
    worker.advance(6)
    await workshop.events.seen("job_failed", job_id=job_id)
    await worker.stop()


async def test_a_handler_that_swallows_its_cancellation_spoils_nothing_for_the_next(
    workshop: Workshop,
) -> None:
    async def deaf(job: Job[Any]) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "I did not hear"
        return ""

    async def grouped(job: Job[Any]) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        return "well"

    workshop.handle("deaf", deaf, timeout="10s")
    workshop.handle("grouped", grouped)
    deaf_id = await workshop.start_one("deaf", max_attempts=1)
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, slots=1)
    await workshop.events.seen("job_started", job_id=deaf_id)
    worker.advance(11)
    await workshop.events.seen("job_failed", job_id=deaf_id)
    grouped_id = await workshop.start_one("grouped")
    workshop.have_due()
    await workshop.events.seen("job_completed", job_id=grouped_id)
    await worker.stop()
    assert (await workshop.job(deaf_id)).state == "failed"
    assert (await workshop.job(grouped_id)).output == '"well"'


async def test_a_timeout_waits_for_the_transaction_that_has_locked_the_row(
    postgres_workshop: Workshop,
) -> None:
    workshop = postgres_workshop

    async def wait(job: Job[Any]) -> None:
        await asyncio.Event().wait()

    workshop.handle("wait", wait, timeout="10s")
    job_id = await workshop.start_one("wait", max_attempts=1)
    faults = Faults()
    worker = workshop.begin(ManualClock(), faults=faults)
    await workshop.events.seen("job_started", job_id=job_id)
    with workshop.ledger.lock(job_id):
        worker.advance(11)
        await faults.ran("fan-in")
        assert (await workshop.job(job_id)).state == "running"
        await worker.asleep(RETRY_MIN_S / 2)
    worker.advance(3)
    await workshop.events.seen("job_failed", job_id=job_id)
    await worker.stop()


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_a_checkpoint_raises_the_abort_reason(workshop: Workshop, colour: str) -> None:
    """A handler that blocks the loop between checkpoints is told as well."""
    clock = ManualClock()
    raised = threading.Event()

    def work(job: Job[Any]) -> None:
        clock.advance(41)
        try:
            while True:
                job.checkpoint()
        finally:
            raised.set()

    async def work_on_the_loop(job: Job[Any]) -> None:
        work(job)

    workshop.handle("work", work if colour == "thread" else work_on_the_loop, timeout="40s")
    job_id = await workshop.start_one("work", max_attempts=1)
    worker = workshop.begin(clock)
    await workshop.events.seen("job_failed", job_id=job_id)
    await worker.stop()
    assert raised.is_set()


async def test_a_timeout_recorded_with_an_unknown_answer_counts_once(workshop: Workshop) -> None:
    faults = Faults()

    async def wait(job: Job[Any]) -> None:
        await asyncio.Event().wait()

    workshop.handle("wait", wait, timeout="40s")
    job_id = await workshop.start_one("wait")
    worker = workshop.begin(ManualClock(), faults=faults)
    await workshop.events.seen("job_started", job_id=job_id)
    faults.set("after", "heartbeat")
    worker.advance(40)
    await until(lambda: workshop.ledger.leases() == [])
    await workshop.events.seen("database_unreachable", purpose="heartbeat")
    faults.clear()
    await workshop.seen_in_time(worker, "job_retried", job_id=job_id)
    report = await worker.stop()
    assert (report.counters["retried"], report.counters["refused"]) == (1, 0)
    assert (await workshop.job(job_id)).attempt == 1

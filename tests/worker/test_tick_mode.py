"""A worker that ends by itself: when nothing is left, after so many jobs, or when its time is over."""

import asyncio
from typing import Any

from holdfast.core.outcome import Continue
from holdfast.core.retry import Retry
from holdfast.worker.job import Job
from tests.support.manual_clock import ManualClock
from tests.worker.workshop import Workshop


async def test_it_ends_when_nothing_is_due_and_nothing_runs(workshop: Workshop) -> None:
    async def step(job: Job[int]) -> Any:
        return Continue("step", job.input - 1) if job.input else None

    workshop.handle("step", step)
    await workshop.start("step", 3, count=5)
    report = await workshop.until_idle(clock=ManualClock())
    assert (report.reason, report.abandoned) == ("idle", 0)
    assert report.counters["processed"] == 20


async def test_an_empty_queue_ends_it_at_once(workshop: Workshop) -> None:
    workshop.handle_quick()
    report = await workshop.until_idle(clock=ManualClock())
    assert (report.reason, report.counters["claimed"]) == ("idle", 0)


async def test_it_waits_for_handlers_but_not_for_jobs_that_are_due_later(
    workshop: Workshop,
) -> None:
    go = asyncio.Event()

    async def work(job: Job[Any]) -> None:
        await go.wait()
        raise OSError

    workshop.handle("work", work, retry=Retry(base="1h", cap="1h"))
    job_id = await workshop.start_one("work")
    worker = workshop.begin(ManualClock(), stop_when_idle=True)
    await workshop.events.seen("job_started", job_id=job_id)
    assert workshop.events.of("worker_stopping") == []
    go.set()
    report = await worker.ended()
    assert (report.reason, report.counters["retried"]) == ("idle", 1)


async def test_a_paused_queue_is_as_good_as_an_empty_one(workshop: Workshop) -> None:
    workshop.handle_quick()
    await workshop.run(workshop.store.schema.pause(True, "ana"))
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.beat(worker)
    await worker.stop()
    report = await workshop.until_idle(clock=ManualClock())
    assert report.reason == "idle"


async def test_after_so_many_jobs_it_claims_no_more_and_ends_with_the_last(
    workshop: Workshop,
) -> None:
    workshop.handle_quick()
    ids = await workshop.start("quick", count=30)
    worker = workshop.begin(ManualClock(), max_items=12, stop_when_idle=True, slots=5)
    report = await worker.ended()
    assert report.reason == "budget"
    assert (report.counters["claimed"], report.counters["processed"]) == (12, 12)
    assert (await workshop.states(ids)).count("completed") == 12
    assert workshop.ledger.leases() == []
    report = await workshop.until_idle(max_items=200)
    assert (report.reason, report.counters["processed"]) == ("idle", 18)


async def test_when_its_time_is_over_it_gives_back_what_it_did_not_start(
    workshop: Workshop,
) -> None:
    go = asyncio.Event()

    async def wait(job: Job[Any]) -> None:
        await go.wait()

    workshop.handle("wait", wait)
    workshop.handle_quick()
    worker = workshop.begin(
        ManualClock(), notifier=workshop.notifier, deadline_s=20, stop_when_idle=False, slots=1
    )
    ids = await workshop.prefetched("wait", 3)
    await worker.asleep(20)
    worker.advance(20)
    await workshop.events.seen("worker_stopping", reason="deadline")
    go.set()
    report = await worker.ended()
    assert (report.reason, report.abandoned) == ("deadline", 0)
    assert report.counters["released"] == 2
    assert sorted(await workshop.states(ids)) == ["completed", "pending", "pending"]

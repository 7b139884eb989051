"""A process that was paused past its leases: when it wakes, nothing begins under a lease that is over."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.registry import TypeOptions
from holdfast.worker.clock import SystemClock
from holdfast.worker.job import Job, Next
from tests.support.manual_clock import ManualClock
from tests.worker import process_handlers
from tests.worker.workshop import Workshop

PAST_THE_LEASE_S = 61


class Began:
    """Handlers of every mode that note that they began."""

    def __init__(self) -> None:
        self.count = 0

    async def alone(self, job: Job[Any]) -> None:
        self.count += 1

    def in_thread(self, job: Job[Any]) -> None:
        self.count += 1

    async def together(self, jobs: list[Job[Any]]) -> None:
        self.count += 1

    async def staged(self, job: Job[Any]) -> None:
        self.count += 1
        async with job.prepare():
            pass
        async with job.complete():
            pass


async def given_back(workshop: Workshop, job_id: str) -> tuple[str, int, int]:
    """Wait until a worker gave a job back, and say how it is then."""
    await workshop.events.seen("lease_lost", job_id=job_id, reason="error")
    await workshop.events.seen("job_released", job_id=job_id)
    record = await workshop.job(job_id)
    return record.state, record.attempt, record.crashes


async def test_nothing_begins_that_waited_while_its_lease_ended(workshop: Workshop) -> None:
    go = asyncio.Event()
    began: list[Any] = []

    async def wait(job: Job[Any]) -> None:
        began.append(job.id)
        await go.wait()

    workshop.handle("wait", wait)
    workshop.handle_quick()
    clock = ManualClock()
    worker = workshop.begin(clock, notifier=workshop.notifier, slots=1)
    _, *waiting = await workshop.prefetched("wait", 5)
    clock.jump(PAST_THE_LEASE_S)
    go.set()
    for job_id in waiting:
        await workshop.events.seen("lease_lost", job_id=job_id, reason="error")
    # They are free again, and each begins under the lease of a new claim.
    await workshop.events.seen("job_completed", count=10)
    fences = {
        each.fields["job_id"]: each.fields["fence"] for each in workshop.events.of("lease_lost")
    }
    for each in workshop.events.of("job_started", type="wait"):
        assert each.fields["fence"] > fences.get(each.fields["job_id"], 0)
    assert len(began) == 5
    await worker.stop()


MODES: dict[str, Callable[[Began], tuple[Callable[..., Any], TypeOptions]]] = {
    "loop": lambda began: (began.alone, {}),
    "thread": lambda began: (began.in_thread, {}),
    "atomic": lambda began: (began.alone, {"atomic": True}),
    "atomic thread": lambda began: (began.in_thread, {"atomic": True}),
    "batch": lambda began: (began.together, {"batch": 10}),
    "staged": lambda began: (began.staged, {}),
    "process": lambda began: (process_handlers.die, {"executor": "process"}),
}


@pytest.mark.parametrize("mode", MODES)
async def test_no_handler_begins_that_was_about_to_when_its_lease_ended(
    workshop: Workshop, mode: str
) -> None:
    clock, began = ManualClock(), Began()
    pauses = [PAST_THE_LEASE_S]

    async def pause_once(job: Job[Any], next: Next) -> Any:
        clock.jump(pauses.pop() if pauses else 0)
        return await next()

    handler, options = MODES[mode](began)
    workshop.handle("work", handler, **options)
    job_id = await workshop.start_one("work")
    async with workshop.working(clock=clock, middlewares=(pause_once,), max_items=1) as worker:
        assert await given_back(workshop, job_id) == ("pending", 0, 0)
        await worker.ended()
    assert began.count == 0


async def test_no_handler_begins_if_its_lease_ended_while_its_process_started(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    workshop.handle("work", process_handlers.die, executor="process")
    job_id = await workshop.start_one("work")
    worker = workshop.worker(clock, max_items=1)
    slots = worker._slots

    def restart(attempt: Any) -> None:
        clock.jump(PAST_THE_LEASE_S)
        type(slots).restart_timeout(slots, attempt)

    monkeypatch.setattr(slots, "restart_timeout", restart)
    task = asyncio.create_task(worker.run())
    assert await given_back(workshop, job_id) == ("pending", 0, 0)
    await task


def test_the_worker_s_clock_counts_the_time_in_which_the_machine_was_suspended() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= SystemClock.monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)

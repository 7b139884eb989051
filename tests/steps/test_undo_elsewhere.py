"""Steps are undone whoever finds that their job has failed: a deadline, or the reaper of a dead worker."""

import asyncio
from typing import Any

import pytest

from holdfast.core.errors import Permanent
from holdfast.core.retry import Retry
from holdfast.worker.job import Job
from tests.support.manual_clock import ManualClock
from tests.support.until import until
from tests.worker.workshop import Workshop

ONCE = Retry(max_attempts=1, base="1ms", cap="1ms")


class Bookings:
    """A function that books twice and then does something that makes it fail."""

    def __init__(self, then: Any) -> None:
        self.log: list[str] = []
        self.replays = 0
        self.then = then

    async def book(self, what: str) -> str:
        self.log.append(f"book {what}")
        return what

    async def cancel(self, what: str) -> None:
        self.log.append(f"cancel {what}")

    async def __call__(self, job: Job[Any]) -> None:
        await job.step("room", self.book, "room", undo=self.cancel)
        await job.step("car", self.book, "car", undo=self.cancel)
        self.replays += 1
        await self.then()


async def hang() -> None:
    await asyncio.Event().wait()


async def test_a_function_that_ran_out_of_time_is_undone_in_reverse(workshop: Workshop) -> None:
    trip = Bookings(hang)
    workshop.handle("trip", trip, retry=ONCE, timeout="1h")
    job_id = await workshop.start_one("trip")
    running = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await until(lambda: trip.replays == 1)
    running.advance(3_601)
    await workshop.seen_in_time(running, "job_failed", job_id=job_id)
    assert trip.log == ["book room", "book car", "cancel car", "cancel room"]
    assert trip.replays == 1
    job = await workshop.job(job_id)
    assert job.error is not None
    assert job.error.startswith("TimedOut: ")


async def test_a_function_whose_worker_died_is_undone_without_what_killed_it(
    workshop: Workshop,
) -> None:
    trip = Bookings(hang)
    workshop.handle("trip", trip, retry=ONCE)
    job_id = await workshop.start_one("trip")
    first = workshop.begin(reaps=False)
    await workshop.events.seen("job_started", job_id=job_id)
    await until(lambda: trip.replays == 1)
    assert await workshop.reap_as_if_later() == [job_id]
    await workshop.run(workshop.store.jobs.trigger([job_id]))
    async with workshop.working():
        await workshop.events.seen("job_failed", job_id=job_id)
    assert trip.log == ["book room", "book car", "cancel car", "cancel room"]
    assert trip.replays == 1
    await first.give_up()


@pytest.mark.parametrize("has_on_failed", [False, True])
async def test_on_failed_is_called_after_the_steps_were_undone(
    workshop: Workshop, has_on_failed: bool
) -> None:
    async def fail() -> None:
        raise Permanent("no seats")

    async def noted(job: Job[Any]) -> None:
        trip.log.append(f"noted {job.error}".partition("\n")[0])

    trip = Bookings(fail)
    options: dict[str, Any] = {"on_failed": noted} if has_on_failed else {}
    workshop.handle("trip", trip, **options)
    job_id = await workshop.start_one("trip")
    async with workshop.working():
        await workshop.events.seen("job_failed", job_id=job_id)
    undone = ["book room", "book car", "cancel car", "cancel room"]
    assert trip.log == [*undone, *(["noted Permanent: no seats"] if has_on_failed else [])]

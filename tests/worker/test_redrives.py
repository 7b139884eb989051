"""A redrive holds its rate whatever happens meanwhile: workers that are away, busy or paused, or several at once."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from holdfast.commands.explain import look_around, why
from holdfast.commands.jobs import redrive_jobs
from holdfast.commands.redrives import redrive_dead_letters
from holdfast.core.records import Ending
from holdfast.worker.job import Job
from tests.support.until import until
from tests.worker.workshop import Workshop

RATE, BURST = 20, 11
AWAY_S = 3


class Calls:
    """When each job started."""

    def __init__(self) -> None:
        self.times: list[float] = []

    async def note(self, job: Job[None]) -> None:
        self.times.append(time.monotonic())

    def most_within_a_second(self) -> int:
        return max(sum(first <= each < first + 1 for each in self.times) for first in self.times)


async def make_dead(workshop: Workshop, type: str, count: int) -> list[str]:
    ids = await workshop.start(type, count=count)
    endings = [Ending(id=each, state="failed", error="Boom: no") for each in ids]
    await workshop.run(workshop.store.jobs.end(endings))
    return ids


async def redrive(workshop: Workshop, ids: Sequence[str], rate: float | None = RATE) -> None:
    change = await workshop.run(redrive_dead_letters(workshop.store, ids, rate))
    assert sorted(change.answer) == sorted(ids)
    workshop.notifier.send(change.hints)


async def test_a_redrive_holds_its_rate_after_an_outage_of_the_workers(workshop: Workshop) -> None:
    calls = Calls()
    workshop.handle("mail", calls.note)
    ids = await make_dead(workshop, "mail", 60)
    await redrive(workshop, ids)
    async with workshop.working(notifier=workshop.notifier):
        await until(lambda: len(calls.times) >= 3)
    await asyncio.sleep(AWAY_S)
    began = len(calls.times)
    for _ in range(2):
        workshop.begin(notifier=workshop.notifier)
    await until(lambda: len(calls.times) == len(ids))
    assert calls.most_within_a_second() <= RATE + BURST
    took_s = calls.times[-1] - calls.times[began]
    assert took_s >= (len(ids) - began - BURST) / RATE
    assert await workshop.states(ids) == ["completed"] * len(ids)
    assert await workshop.run(workshop.store.redrives.under_way()) == []


async def test_jobs_of_a_redrive_start_one_after_the_other(workshop: Workshop) -> None:
    calls = Calls()
    workshop.handle("mail", calls.note)
    ids = await make_dead(workshop, "mail", 8)
    async with workshop.working(notifier=workshop.notifier):
        await redrive(workshop, ids, 5)
        await until(lambda: len(calls.times) == len(ids))
    assert calls.times[-1] - calls.times[0] > 0.7
    assert {each.fields["job_id"] for each in workshop.events.of("job_redriven")} == set(ids)


async def test_nothing_is_redriven_without_a_worker_for_it(workshop: Workshop) -> None:
    workshop.handle("other", Calls().note)
    ids = await make_dead(workshop, "mail", 3)
    await redrive(workshop, ids)
    await workshop.until_idle()
    assert await workshop.states(ids) == ["failed"] * 3
    (record,) = await workshop.run(workshop.store.redrives.under_way())
    assert record.left == 3


async def test_nothing_of_a_paused_type_is_redriven(workshop: Workshop) -> None:
    workshop.handle("mail", Calls().note)
    ids = await make_dead(workshop, "mail", 3)
    await workshop.run(workshop.store.workers.set_type("mail", paused=True))
    await redrive(workshop, ids)
    await workshop.until_idle()
    assert await workshop.states(ids) == ["failed"] * 3


async def test_few_jobs_wait_at_once_while_the_slots_are_taken(workshop: Workshop) -> None:
    release = asyncio.Event()

    async def stuck(job: Job[None]) -> None:
        await release.wait()

    workshop.handle("mail", stuck)
    ids = await make_dead(workshop, "mail", 40)
    await redrive(workshop, ids)
    workshop.begin(notifier=workshop.notifier, slots=1)
    await workshop.events.seen("job_started", count=1)
    await asyncio.sleep(AWAY_S)
    assert len(workshop.events.of("job_redriven")) <= 1 + BURST
    release.set()


async def test_a_worker_that_ends_when_idle_sees_a_redrive_through(workshop: Workshop) -> None:
    calls = Calls()
    workshop.handle("mail", calls.note)
    ids = await make_dead(workshop, "mail", 30)
    await redrive(workshop, ids)
    await workshop.until_idle()
    assert len(calls.times) == len(ids)
    assert calls.most_within_a_second() <= RATE + BURST


async def test_a_job_says_that_it_is_to_be_redriven(workshop: Workshop) -> None:
    ids = await make_dead(workshop, "mail", 2)
    await redrive(workshop, ids)
    job = await workshop.job(ids[0])
    said = why(job, await workshop.run(look_around(workshop.store, job)))
    assert said.endswith("Boom: no; redriven at 20/s: 2 left")


@pytest.mark.parametrize("rate", [None, 5])
async def test_a_job_that_is_redriven_otherwise_is_not_redriven_again(
    workshop: Workshop, rate: float | None
) -> None:
    ids = await make_dead(workshop, "mail", 2)
    await redrive(workshop, ids, 0.01)
    await redrive(workshop, ids[:1], rate)
    left = {
        each.spacing_us: each.left
        for each in await workshop.run(workshop.store.redrives.under_way())
    }
    assert left == ({100_000_000: 1} if rate is None else {100_000_000: 1, 200_000: 1})
    await workshop.run(redrive_jobs(workshop.store, ids[1:]))
    assert await workshop.states(ids[1:]) == ["pending"]


async def test_what_was_dropped_or_ended_otherwise_is_passed_over(workshop: Workshop) -> None:
    calls = Calls()
    workshop.handle("mail", calls.note)
    ids = await make_dead(workshop, "mail", 3)
    await redrive(workshop, ids)
    await workshop.run(workshop.store.chains.delete(ids[:1]))
    await workshop.until_idle()
    assert len(calls.times) == 2
    assert await workshop.run(workshop.store.redrives.under_way()) == []

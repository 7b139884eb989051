"""Awaited jobs end many at a time, and one that cannot be written keeps none of the others back."""

from typing import Any

from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.outcome import Continue
from holdfast.core.records import NewBlocker, NewJob
from holdfast.storage.id_generator import new_id
from holdfast.worker.job import Job
from tests.worker.faults import Faults
from tests.worker.workshop import Workshop

MANY = 250


async def wait_for_all(workshop: Workshop, chains: list[str]) -> str:
    """Start a job of type `whole` that waits for these chains."""
    waiter = new_id()
    job = NewJob(id=waiter, chain_id=waiter, type="whole", input="null", blockers=len(chains))
    edges = tuple(NewBlocker(waiter, place, chain) for place, chain in enumerate(chains))
    await workshop.run(start_chains(workshop.store, [StartRequest(job, None, edges)]))
    return waiter


def handle_parts(workshop: Workshop) -> None:
    async def part(job: Job[Any]) -> int:
        return 1

    async def whole(job: Job[Any]) -> int:
        return sum(each.output or 0 for each in job.blockers)

    workshop.handle("part", part)
    workshop.handle("whole", whole)


async def test_many_awaited_jobs_end_in_few_transactions(workshop: Workshop) -> None:
    handle_parts(workshop)
    waiter = await wait_for_all(workshop, await workshop.start("part", count=MANY))
    faults = Faults()
    await workshop.until_idle(slots=50, faults=faults)
    assert (await workshop.job(waiter)).output == str(MANY)
    assert faults.runs("fan-in") < MANY / 2


async def test_one_awaited_job_that_cannot_be_written_keeps_none_of_the_others_back(
    workshop: Workshop,
) -> None:
    async def go_astray(job: Job[Any]) -> Continue:
        return Continue("part", blockers=[new_id()])

    handle_parts(workshop)
    workshop.handle("stray", go_astray)
    parts = await workshop.start("part", count=20)
    stray = await workshop.start_one("stray")
    waiter = await wait_for_all(workshop, [*parts, stray])
    await workshop.until_idle(slots=50)
    assert await workshop.states(parts) == ["completed"] * 20
    assert (await workshop.job(stray)).state == "failed"
    assert (await workshop.job(waiter)).state == "failed"


async def test_awaited_jobs_survive_an_unknown_commit(workshop: Workshop) -> None:
    handle_parts(workshop)
    waiter = await wait_for_all(workshop, await workshop.start("part", count=20))
    faults = Faults()
    faults.set("after", "fan-in")
    running = workshop.begin(slots=50, faults=faults, notifier=workshop.notifier)
    await faults.ran("fan-in", 2)
    faults.clear()
    await workshop.events.seen("job_completed", job_id=waiter)
    await running.stop()
    assert (await workshop.job(waiter)).output == "20"

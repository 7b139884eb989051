"""A job whose input the code cannot read waits visibly, costs no attempt, and runs once code starts that can."""

import re
from dataclasses import dataclass

from holdfast.commands.explain import look_around, why
from holdfast.core.registry import JobType
from holdfast.core.upgrades import upgrade_of
from holdfast.worker.job import Job
from tests.support.until import until
from tests.worker import process_handlers
from tests.worker.workshop import Workshop


@dataclass
class Order:
    id: int


async def ship(job: Job[Order]) -> int:
    return job.input.id


def upgradable(workshop: Workshop, version: int = 2) -> JobType:
    """Register the handler, with an upgrade from the plain number of version 1."""
    made = workshop.handle("ship", ship, version=version)
    made.upgrades[1] = upgrade_of(lambda old: {"id": old})
    return made


async def sentence(workshop: Workshop, job_id: str) -> str:
    job = await workshop.job(job_id)
    return why(job, await workshop.run(look_around(workshop.store, job)))


async def test_it_waits_and_says_why(workshop: Workshop) -> None:
    workshop.handle("ship", ship)
    job_id = await workshop.start_one("ship", {"number": 7})
    report = await workshop.until_idle()
    record = await workshop.job(job_id)
    assert (record.state, record.attempt) == ("pending", 0)
    assert report.counters["dead_letters"] == 0
    (seen,) = workshop.events.of("job_unreadable", job_id=job_id)
    assert seen.fields["delay_ms"] == 30_000
    said = await sentence(workshop, job_id)
    assert said.startswith("Waiting for code that can read its input: the input no longer decodes")
    (group,) = await workshop.run(workshop.store.unreadable.groups())
    assert (group.type, group.count) == ("ship", 1)


async def test_a_worker_with_code_that_can_read_it_runs_it_at_once(workshop: Workshop) -> None:
    workshop.handle("ship", ship, version=2)
    old = await workshop.start("ship", 7, count=3)
    await workshop.until_idle()
    assert await workshop.states(old) == ["pending"] * 3
    upgradable(workshop)
    await workshop.until_idle()
    assert await workshop.states(old) == ["completed"] * 3
    assert (await workshop.job(old[0])).output == "7"
    assert await workshop.run(workshop.store.unreadable.groups()) == []


async def test_inputs_of_both_versions_are_read(workshop: Workshop) -> None:
    upgradable(workshop)
    old = await workshop.start_one("ship", 7)
    new = await workshop.start_one("ship", {"id": 8}, version=2)
    await workshop.until_idle()
    assert [(await workshop.job(each)).output for each in (old, new)] == ["7", "8"]
    assert [(await workshop.job(each)).version for each in (old, new)] == [1, 2]


async def test_the_others_of_a_batch_are_not_held_up_for_long(workshop: Workshop) -> None:
    async def ship_all(jobs: list[Job[Order]]) -> None:
        [job.input for job in jobs]

    workshop.handle("ship", ship_all, batch=10)
    good = await workshop.start("ship", {"id": 1}, count=2)
    bad = await workshop.start_one("ship", {"number": 7})
    await workshop.until_idle()
    assert await workshop.states([*good, bad]) == ["pending"] * 3
    (group,) = await workshop.run(workshop.store.unreadable.groups())
    assert group.count == 1
    await workshop.run(workshop.store.jobs.trigger(good))
    await workshop.until_idle()
    assert await workshop.states([*good, bad]) == ["completed", "completed", "pending"]


async def test_a_handler_in_a_process_gets_the_upgraded_input(workshop: Workshop) -> None:
    made = workshop.handle("work", process_handlers.square, executor="process", version=2)
    bad = await workshop.start_one("work", "four")
    await workshop.until_idle()
    assert "nothing upgrades version 1 to 2" in await sentence(workshop, bad)
    made.upgrades[1] = upgrade_of(lambda old: {"four": 4}.get(old, old))
    worse = await workshop.start_one("work", "five")
    await workshop.until_idle()
    assert (await workshop.job(bad)).output == "16"
    assert "no longer decodes as int" in await sentence(workshop, worse)


async def test_it_becomes_a_dead_letter_with_the_reason_where_that_is_set(
    workshop: Workshop,
) -> None:
    workshop.handle("ship", ship)
    job_id = await workshop.start_one("ship", {"number": 7})
    await workshop.until_idle(unhandled_after_ms=3_600_000)
    assert await workshop.states([job_id]) == ["pending"]
    await workshop.run(workshop.store.jobs.trigger([job_id]))
    await workshop.until_idle(unhandled_after_ms=1)
    failed = await workshop.job(job_id)
    assert (failed.state, failed.attempt) == ("failed", 1)
    assert (failed.error or "").startswith("InputUnreadable: the input no longer decodes")
    assert failed.fingerprint
    (seen,) = workshop.events.of("job_failed", job_id=job_id)
    assert "no longer decodes" in str(seen.fields["error"])


async def test_its_last_try_is_when_its_time_is_up(workshop: Workshop) -> None:
    workshop.handle("ship", ship)
    job_id = await workshop.start_one("ship", {"number": 7})

    async def waits() -> bool:
        return (await sentence(workshop, job_id)).startswith("Waiting for code")

    async with workshop.working(unhandled_after_ms=20_000):
        await until(waits)
        said = await sentence(workshop, job_id)
    (seen,) = workshop.events.of("job_unreadable", job_id=job_id)
    assert seen.fields["delay_ms"] == 20_000
    assert re.search(r"; next try in \d+ s, becomes a dead letter in \d+ s$", said)


async def test_one_that_is_redriven_waits_anew(workshop: Workshop) -> None:
    workshop.handle("ship", ship)
    job_id = await workshop.start_one("ship", {"number": 7})
    await workshop.until_idle()
    await workshop.run(workshop.store.jobs.trigger([job_id]))
    await workshop.until_idle(unhandled_after_ms=1)
    await workshop.run(workshop.store.jobs.redrive([job_id]))
    await workshop.until_idle(unhandled_after_ms=3_600_000)
    assert await workshop.states([job_id]) == ["pending"]
    assert workshop.events.of("job_unreadable", job_id=job_id)[-1].fields["delay_ms"] == 30_000


async def test_what_ended_meanwhile_is_forgotten(workshop: Workshop) -> None:
    workshop.handle("ship", ship)
    job_id = await workshop.start_one("ship", {"number": 7})
    await workshop.until_idle()
    chain = (await workshop.job(job_id)).chain_id
    await workshop.run(workshop.store.chains.delete([chain]))
    await workshop.until_idle()
    first = "00000000-0000-0000-0000-000000000000"
    assert await workshop.run(workshop.store.unreadable.page(["ship"], first, 10)) == []

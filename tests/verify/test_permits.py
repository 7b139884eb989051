"""The laws of permits: what they find, and that they say nothing of what the rules allow."""

import asyncio
from typing import Any

import pytest

from holdfast.core.flow import Limit, Rate
from holdfast.worker.job import Job
from holdfast_verify.laws import LAWS, Breach, check_law
from tests.support.until import until
from tests.verify.test_laws import damage, url
from tests.worker.workshop import Workshop

__all__ = ["url"]

PERMITS = [each for each in LAWS if each.name in ("permits-are-recorded", "limits-hold")]
SCARCE = [Limit(2, by="key"), Limit(5), Limit(4, name="shared"), Limit(9, by="key", cost="cost")]

WEIGHED = "update holdfast.job set cost = {cost} where id = '{queued}'"
OLDER_WORKER = """
insert into holdfast.worker (id, name, host, pid, version, slots, types, started_at, seen_at, counters, live_ms)
select 'older', name, host, pid, version, slots, types, started_at, seen_at, counters, live_ms from holdfast.worker"""
"""One whose code does not limit the type yet."""


async def find(workshop: Workshop) -> list[Breach]:
    """What breaks the laws of permits."""
    found: list[Breach] = []
    for law in PERMITS:
        found += (await workshop.run(check_law(law))).breaches
    return found


async def hold(workshop: Workshop, count: int, **options: Any) -> list[str]:
    """Have so many jobs of a type `held` run, and others wait; each costs 4."""
    running = asyncio.Semaphore(0)

    async def held(job: Job[dict[str, Any]]) -> None:
        running.release()
        await asyncio.Event().wait()

    workshop.handle("held", held, **options)
    given = {"key": "a", "cost": 4}
    ids = await workshop.start("held", given, count + 2, gate="held#a", cost=4)
    worker = workshop.begin()
    for _ in range(count):
        await running.acquire()
    await until(lambda: worker.worker.counters.heartbeats > 0)
    return ids


async def test_nothing_breaks_them_in_the_midst_of_work(workshop: Workshop) -> None:
    found: list[Breach] = []

    async def busy(job: Job[dict[str, Any]]) -> None:
        found.extend(await find(workshop))

    for type in ("one", "two"):
        workshop.handle(type, busy, limits=SCARCE, rates=[Rate(500, "1m")])
    for number in range(24):
        type, key, cost = ("one", "two")[number % 2], "abc"[number % 3], number % 12
        gate = f"{type}#{key}"
        await workshop.start(type, {"key": key, "cost": cost}, gate=gate, cost=cost)
    first = workshop.begin(stop_when_idle=True)
    second = workshop.begin(stop_when_idle=True)
    await first.ended()
    await second.ended()
    assert len(workshop.events.of("job_completed")) == 24
    assert found == []


async def test_more_than_a_limit_of_costs_is_found_and_a_job_beyond_it_is_not(
    workshop: Workshop, url: str
) -> None:
    first, second, *_ = await hold(workshop, 2, limits=[Limit(9, by="key", cost="cost")])
    damage(url, WEIGHED, {"queued": first, "cost": "5"})
    assert await find(workshop) == []
    damage(url, WEIGHED, {"queued": second, "cost": "99"})
    assert await find(workshop) == [Breach("held#a", "its claimed jobs cost 14, 9 is allowed")]
    damage(url, WEIGHED, {"queued": first, "cost": "0"})
    assert await find(workshop) == []


async def test_more_than_are_allowed_by_a_later_setting_break_nothing(workshop: Workshop) -> None:
    await hold(workshop, 3, limits=[Limit(3, by="key")])
    await workshop.run(workshop.store.limits.set("held#a", allowed=1))
    assert await find(workshop) == []


async def test_what_a_setting_allows_breaks_nothing(workshop: Workshop) -> None:
    await workshop.run(workshop.store.limits.set("*held", allowed=3))
    await hold(workshop, 3, limits=[Limit(1, by="key")])
    assert await find(workshop) == []


@pytest.mark.parametrize("id", ["held#a", "held"])
async def test_a_permit_is_missed_of_a_key_and_of_a_whole_type(
    workshop: Workshop, url: str, id: str
) -> None:
    first, *_ = await hold(workshop, 1, limits=[Limit(1, by="key"), Limit(4)])
    statement = "update holdfast.gate set holders = {nobody} where id = '{id}'"
    damage(url, statement, {"queued": first, "id": id})
    expected = f"it is claimed, but partition {id} did not let it in"
    assert await find(workshop) == [Breach(first, expected)]


async def test_no_permit_is_missed_where_another_version_served_the_type_without_the_limit(
    workshop: Workshop, url: str
) -> None:
    first, *_ = await hold(workshop, 1, limits=[Limit(1, by="key")])
    damage(url, "update holdfast.gate set holders = {nobody}", {"queued": first})
    assert await find(workshop) != []
    damage(url, OLDER_WORKER, {"queued": first})
    assert await find(workshop) == []

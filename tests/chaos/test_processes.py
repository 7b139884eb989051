"""Worker processes that are stopped, killed from within, or asked to end at any moment."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.chaos.actors import Actor
from tests.chaos.process import BATCH, LONG, Scene, types_of
from tests.support.until import until
from tests.worker.workshop import Workshop

POISON_LIMIT = 3

Start = Callable[[Scene], Awaitable[Actor]]


@pytest_asyncio.fixture
async def start(
    workshop: Workshop, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Start]:
    """Start worker processes on the workshop's database; none outlives the test."""
    actors: list[Actor] = []
    is_postgres = workshop.store.dialect == "postgresql"
    url = request.getfixturevalue("worker_url") if is_postgres else str(tmp_path / "holdfast.db")

    async def begin(scene: Scene) -> Actor:
        actor = await Actor.start(url, scene)
        actors.append(actor)
        return actor

    yield begin
    for actor in actors:
        await actor.kill()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that handlers wait for until a test makes it."""
    return tmp_path / "gate"


async def test_a_process_stopped_past_its_lease_is_refused_when_it_goes_on(
    workshop: Workshop, start: Start, gate: Path
) -> None:
    scene = Scene(lease="2s", gate=str(gate), write_effect=workshop.ledger.write_effect)
    job_id = await workshop.start_one("gated")
    zombie = await start(scene)
    await zombie.tells("job_started", job_id=job_id)
    # Whoever is stopped in the middle of a write to a SQLite file keeps it from everybody; here nobody writes.
    with workshop.ledger.lock(job_id):
        await zombie.stand_still()
    # Another worker takes the job when the lease has ended by the database's clock, and finishes it.
    other = workshop.begin(types=types_of(Scene(write_effect=scene.write_effect)))
    await workshop.events.seen("job_reaped", job_id=job_id)
    await workshop.events.seen("job_completed", job_id=job_id, attempt=2)
    await asyncio.to_thread(gate.touch)
    zombie.send(signal.SIGCONT)
    await zombie.tells("write_refused", job_id=job_id, attempt=1)
    zombie.send(signal.SIGTERM)
    assert await zombie.ended() == 0
    await other.stop()
    record = await workshop.job(job_id)
    assert (record.state, record.output, record.attempt) == ("completed", '"attempt 2"', 2)
    assert workshop.ledger.effects() == ["attempt 2"]


async def test_a_poison_job_kills_no_more_processes_than_the_limit_and_no_neighbour(
    workshop: Workshop, start: Start, gate: Path
) -> None:
    actor = await start(Scene(gate=str(gate)))
    # Whoever has finished so much just now fetches ahead as much as it can.
    await workshop.start("brief", count=60)
    await actor.tells("job_completed", count=60)
    poison = await workshop.start_one("poison")
    await actor.tells("job_started", job_id=poison)
    neighbours = await workshop.start("neighbour", count=49)
    await actor.tells("job_started", count=9, type="neighbour")
    await until(lambda: len(workshop.ledger.leases()) == 50)
    await asyncio.to_thread(gate.touch)
    deaths = 0
    while not await survives(actor, workshop):
        deaths += 1
        assert deaths <= POISON_LIMIT, "the poison job was not recognised"
        workshop.ledger.expire()
        actor = await start(Scene())
    assert deaths == POISON_LIMIT
    record = await workshop.job(poison)
    assert (record.state, record.crashes) == ("failed", POISON_LIMIT)
    assert "died 3 times" in str(record.error)
    records = await workshop.run(workshop.store.jobs.get(neighbours))
    assert {(each.state, each.crashes) for each in records} == {("completed", 1)}


async def survives(actor: Actor, workshop: Workshop) -> bool:
    """Say whether a process lives until every job has ended; it is asked to end then."""
    death = asyncio.create_task(actor.ended())
    all_ended = asyncio.create_task(until(lambda: workshop.ledger.live() == 0))
    await asyncio.wait([death, all_ended], return_when=asyncio.FIRST_COMPLETED)
    if death.done():
        all_ended.cancel()
        assert death.result() == -signal.SIGABRT
        return False
    await all_ended
    actor.send(signal.SIGTERM)
    assert await death == 0
    return True


async def test_a_process_that_exits_well_leaves_nothing_leased(
    workshop: Workshop, start: Start
) -> None:
    chance = random.Random(20_261_115)
    ids = await workshop.start("brief", count=300)
    codes: list[int] = []
    for _ in range(4):
        actor = await start(Scene(slots=5))
        await actor.tells("job_started", count=chance.randrange(1, 40))
        actor.send(signal.SIGTERM)
        codes.append(await actor.ended())
        assert workshop.ledger.leases() == [], actor.told[-20:]
    assert codes == [0] * 4
    records = await workshop.run(workshop.store.jobs.get(ids))
    assert {(each.state, each.attempt) for each in records} <= {("completed", 1), ("pending", 0)}


async def test_a_second_signal_ends_the_handlers_now(workshop: Workshop, start: Start) -> None:
    job_id = await workshop.start_one("neighbour")
    actor = await start(Scene())
    await actor.tells("job_started", job_id=job_id)
    actor.send(signal.SIGTERM)
    await actor.tells("worker_stopping", reason="SIGTERM")
    actor.send(signal.SIGTERM)
    assert await actor.ended() == 0
    record: Any = await workshop.job(job_id)
    assert (record.state, record.attempt) == ("pending", 0)
    assert workshop.ledger.rows("lease") == 0


async def gather(workshop: Workshop, key: str, count: int) -> list[str]:
    """Start jobs that wait for one another in the line of a key."""
    return await workshop.start("gathered", {"key": key}, count, gate=f"gathered#{key}")


async def waits_for_more(workshop: Workshop, job_id: str) -> bool:
    """Whether a worker has looked at a job's line and left it until the wait is over."""
    (place,) = await workshop.run(workshop.store.limits.place([job_id]))
    now = await workshop.run(workshop.store.schema.clock())
    return place.next_at is not None and place.next_at > now


async def test_a_process_killed_while_its_batch_fills_or_runs_loses_nothing(
    workshop: Workshop, start: Start
) -> None:
    waiting = await start(Scene(batch_wait=LONG))
    ids = await gather(workshop, "a", BATCH - 1)
    await until(lambda: waits_for_more(workshop, ids[0]))
    await waiting.kill()
    assert await workshop.states(ids) == ["pending"] * (BATCH - 1)
    holding = await start(Scene(batch_wait=LONG))
    ids += await gather(workshop, "a", BATCH + 1)
    ids += await gather(workshop, "b", BATCH)
    await holding.tells("gathered", count=3)
    await holding.kill()
    workshop.ledger.expire()
    last = await start(Scene())
    await until(lambda: workshop.ledger.live() == 0)
    last.send(signal.SIGTERM)
    assert await last.ended() == 0
    assert await workshop.states(ids) == ["completed"] * len(ids)
    calls = [each for each in last.told if each["name"] == "gathered"]
    assert sorted(id for each in calls for id in each["ids"]) == sorted(ids)
    for each in [*calls, *(one for one in holding.told if one["name"] == "gathered")]:
        assert len(each["ids"]) <= BATCH
        assert len(set(each["keys"])) == 1

"""An input of newer code is left to workers that read it: an older one spends nothing on it and sees what is behind."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Limit
from holdfast.commands.explain import look_around, why
from holdfast.core.registry import JobType
from holdfast.core.upgrades import upgrade_of
from holdfast.worker import plain_claims
from holdfast.worker.job import Job
from tests.support.manual_clock import ManualClock
from tests.support.until import until
from tests.worker.test_unlimited_types import SentStatements, idle_for_minutes
from tests.worker.workshop import RunningWorker, Workshop

CLAIMS = ("job_claim", "job_claim_queues", "job_claim_poll", "limit_claim", "limit_signals")


def versions(workshop: Workshop, **options: Any) -> list[dict[str, JobType]]:
    """The types of an old worker, which reads version 1, and of a newer one."""

    async def ship(job: Job[Any]) -> int:
        return int(job.input)

    made = [workshop.handle("ship", ship, version=version, **options) for version in (1, 2)]
    made[1].upgrades[1] = upgrade_of(lambda old: old)
    return [{"ship": each} for each in made]


async def sentence(workshop: Workshop, job_id: str) -> str:
    job = await workshop.job(job_id)
    return why(job, await workshop.run(look_around(workshop.store, job)))


async def is_present(running: RunningWorker) -> None:
    await until(lambda: running.worker.counters.heartbeats > 0)


async def test_an_old_worker_spends_nothing_on_it_and_says_what_it_waits_for(
    workshop: Workshop,
) -> None:
    old, new = versions(workshop)
    job_id = await workshop.start_one("ship", 7, version=2)
    readable = await workshop.start_one("ship", 8)
    await is_present(workshop.begin(types=old))
    await workshop.events.seen("job_completed", job_id=readable)
    record = await workshop.job(job_id)
    assert (record.state, record.attempt, record.fence) == ("pending", 0, 0)
    assert await workshop.attempts(job_id) == []
    assert await sentence(workshop, job_id) == (
        "Waiting for a worker that reads version 2 of the input; live workers read up to 1"
    )
    assert await workshop.run(workshop.store.unreadable.count(10)) == 1
    workshop.begin(types=new)
    await workshop.events.seen("job_completed", job_id=job_id)
    assert workshop.events.of("job_unreadable") == []
    assert await workshop.run(workshop.store.unreadable.count(10)) == 0
    record = await workshop.job(job_id)
    assert (record.output, record.attempt) == ("7", 1)


async def test_a_worker_that_ends_when_idle_ends_beside_newer_jobs(workshop: Workshop) -> None:
    old, _ = versions(workshop)
    newer = await workshop.start("ship", 7, count=20, version=2)
    assert (await workshop.until_idle(types=old)).counters["claimed"] == 0
    assert await workshop.states(newer) == ["pending"] * 20


@pytest.mark.parametrize(
    "limits", [(), (Limit(2, by=lambda input: "a"),)], ids=["plain", "limited"]
)
async def test_an_old_worker_beside_newer_jobs_asks_when_it_is_woken_and_not_in_between(
    workshop: Workshop, limits: tuple[Limit, ...]
) -> None:
    old, _ = versions(workshop, **({"limits": list(limits)} if limits else {}))
    sent = SentStatements(workshop.database)
    running = workshop.begin(
        ManualClock(), database=sent, notifier=workshop.notifier, slots=2, types=old
    )
    await is_present(running)
    sent.take()
    fields = {"gate": "ship#a"} if limits else {}
    await workshop.start("ship", 7, count=20, version=2, **fields)
    await idle_for_minutes(workshop, running)
    # It is woken twenty times; SQLite polls up to ten priorities at a time.
    assert 0 < sum(sent.names[each] for each in CLAIMS) <= 400


async def test_what_is_readable_is_found_behind_newer_jobs_that_are_passed_over(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_claims, "SLOW_SCAN_S", 0.0)
    old, _ = versions(workshop)
    sent = SentStatements(workshop.database)
    newer = await workshop.start("ship", 7, count=20, version=2)
    workshop.begin(database=sent, types=old)
    await until(lambda: sent.names["unreadable_newer"] > 0)
    for number in range(3):
        job_id = await workshop.start_one("ship", number)
        await workshop.events.seen("job_completed", job_id=job_id)
    assert await workshop.states(newer) == ["pending"] * 20


async def test_workers_of_both_versions_share_a_limited_type(workshop: Workshop) -> None:
    old, new = versions(workshop, limits=[Limit(1, by=lambda input: "a")])
    for types in (old, new):
        workshop.begin(types=types)
    ids = [
        await workshop.start_one("ship", number, gate="ship#a", version=number % 2 + 1)
        for number in range(10)
    ]
    await workshop.events.seen("job_completed", count=10)
    assert await workshop.states(ids) == ["completed"] * 10
    assert workshop.events.of("job_unreadable") == []

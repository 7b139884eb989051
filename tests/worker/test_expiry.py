"""A job that expires is cancelled with that reason, and no attempt of it begins afterwards."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from holdfast.commands.explain import look_around, why
from holdfast.commands.jobs import expire_jobs, redrive_jobs
from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.errors import Permanent
from holdfast.core.events import Event
from holdfast.core.flow import Limit, Ordered
from holdfast.core.lifecycle import EXPIRED
from holdfast.core.records import NewBlocker, NewJob
from holdfast.core.retry import Retry
from holdfast.observe.prometheus import PrometheusObserver
from holdfast.storage.id_generator import new_id
from holdfast.worker.job import Job
from tests.worker.workshop import Workshop

SOON_MS = 60_000
LIMITED: tuple[dict[str, Any], ...] = (
    {},
    {"limits": [Limit(1)]},
    {"ordered": Ordered(by="tenant")},
)


async def note(job: Job[Any]) -> None:
    RAN.append(job.input)


RAN: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


async def start_expiring(
    workshop: Workshop, type: str, input: str = "1", blockers: tuple[str, ...] = (), **expiry: Any
) -> str:
    """Start a job with a time by which it is to begin."""
    job_id = new_id()
    place = workshop.types[type].flow
    where: dict[str, Any] = {}
    if place is not None:
        where = {"gate": place.partition_of(input), "ordered": place.ordered is not None}
    job = NewJob(
        id=job_id, chain_id=job_id, type=type, input=input, blockers=len(blockers), **where
    )
    edges = tuple(NewBlocker(job_id, place, each) for place, each in enumerate(blockers))
    request = StartRequest(job, blockers=edges, expiry=(expiry.get("at"), expiry.get("after_ms")))
    await workshop.run(start_chains(workshop.store, [request]))
    return job_id


async def now_of(workshop: Workshop) -> int:
    now: int = await workshop.run(workshop.store.schema.clock())
    return now


@pytest.mark.parametrize("options", LIMITED, ids=("plain", "limited", "ordered"))
async def test_an_expired_job_is_cancelled_by_the_worker_that_claims_it_and_never_starts(
    workshop: Workshop, options: dict[str, Any]
) -> None:
    workshop.handle("mail.send", note, **options)
    past = await now_of(workshop) - 1
    late = await start_expiring(workshop, "mail.send", '{"tenant": 1}', at=past)
    fresh = await start_expiring(workshop, "mail.send", '{"tenant": 1}', after_ms=SOON_MS)
    await workshop.until_idle()
    assert len(RAN) == 1
    job = await workshop.job(late)
    assert (job.state, job.error, job.started_at) == ("cancelled", EXPIRED, None)
    assert (await workshop.job(fresh)).state == "completed"
    assert workshop.events.of("job_started", job_id=late) == []
    (cancelled,) = workshop.events.of("job_cancelled", job_id=late)
    assert cancelled.fields["reason"] == EXPIRED


async def test_a_type_says_how_long_its_jobs_may_be_due(workshop: Workshop) -> None:
    workshop.handle("mail.send", note, expires="1s")
    now = await now_of(workshop)
    late = await workshop.start_one("mail.send", 1)
    await workshop.run(_set_due(workshop, late, now - 2_000_000))
    fresh = await workshop.start_one("mail.send", 2)
    await workshop.until_idle()
    assert RAN == [2]
    assert (await workshop.job(late)).error == EXPIRED
    assert (await workshop.job(fresh)).state == "completed"


def _set_due(workshop: Workshop, job_id: str, at: int) -> Any:
    """A job as it is found after it was due for a while."""
    return workshop.store.jobs.trigger([job_id], at)


@pytest.mark.parametrize("options", LIMITED, ids=("plain", "limited", "ordered"))
async def test_what_no_worker_takes_is_cancelled_too(
    workshop: Workshop, options: dict[str, Any]
) -> None:
    workshop.handle("mail.send", note, **options)
    job_id = await start_expiring(workshop, "mail.send", '{"tenant": 1}', after_ms=SOON_MS)
    now = await now_of(workshop)
    early = await workshop.run(expire_jobs(workshop.store, 10, now))
    assert early.ended == []
    record = await workshop.job(job_id)
    around = await workshop.run(look_around(workshop.store, record))
    assert "; it expires in " in why(record, around)
    late = await workshop.run(expire_jobs(workshop.store, 10, now + 2 * SOON_MS * 1000))
    assert [each.id for each in late.ended] == [job_id]
    record = await workshop.job(job_id)
    around = await workshop.run(look_around(workshop.store, record))
    assert (record.state, record.error) == ("cancelled", EXPIRED)
    assert why(record, around).endswith(f": {EXPIRED}")


async def test_a_blocked_job_expires_and_what_waits_for_it_learns_of_it(workshop: Workshop) -> None:
    workshop.handle("mail.send", note)
    other = await workshop.start_one("never.handled", 1)
    blocked = await start_expiring(workshop, "mail.send", blockers=(other,), after_ms=SOON_MS)
    waiting = await start_expiring(workshop, "mail.send", blockers=(blocked,), after_ms=1 << 40)
    later = await now_of(workshop) + 2 * SOON_MS * 1000
    report = await workshop.run(expire_jobs(workshop.store, 10, later))
    assert [each.id for each in report.ended] == [blocked]
    assert [each.id for each in report.fan_in.failed] == [waiting]


async def test_a_job_that_a_worker_holds_is_left_alone(workshop: Workshop) -> None:
    workshop.handle("mail.send", note)
    job_id = await start_expiring(workshop, "mail.send", after_ms=SOON_MS)
    await workshop.claim_for_nobody("mail.send")
    later = await now_of(workshop) + 2 * SOON_MS * 1000
    report = await workshop.run(expire_jobs(workshop.store, 10, later))
    assert report.ended == []
    assert (await workshop.job(job_id)).state == "running"


async def test_no_attempt_begins_after_the_time_though_an_earlier_one_did(
    workshop: Workshop,
) -> None:
    async def failing(job: Job[Any]) -> None:
        RAN.append(job.attempt)
        raise ConnectionError("away")

    workshop.handle("mail.send", failing, retry=Retry(base="1h", cap="1h"))
    job_id = await start_expiring(workshop, "mail.send", after_ms=SOON_MS)
    async with workshop.working():
        await workshop.events.seen("job_retried", job_id=job_id)
    later = await now_of(workshop) + 2 * SOON_MS * 1000
    report = await workshop.run(expire_jobs(workshop.store, 10, later))
    assert [each.id for each in report.ended] == [job_id]
    assert RAN == [1]


async def test_a_redriven_job_no_longer_expires(workshop: Workshop) -> None:
    async def broken(job: Job[Any]) -> None:
        RAN.append(job.input)
        if len(RAN) == 1:
            raise Permanent("broken")

    workshop.handle("mail.send", broken)
    job_id = await start_expiring(workshop, "mail.send", after_ms=SOON_MS)
    async with workshop.working():
        await workshop.events.seen("job_failed", job_id=job_id)
    await workshop.run(redrive_jobs(workshop.store, [job_id]))
    assert (await workshop.job(job_id)).expires_at is None
    later = await now_of(workshop) + 2 * SOON_MS * 1000
    assert (await workshop.run(expire_jobs(workshop.store, 10, later))).ended == []
    await workshop.until_idle()
    assert (await workshop.job(job_id)).state == "completed"


@pytest.mark.parametrize("fields", [{}, {"worker": "w-1"}], ids=("by maintenance", "by its worker"))
def test_what_expired_is_counted(fields: dict[str, str]) -> None:
    registry = CollectorRegistry()
    observer = PrometheusObserver(registry)
    observer.observe(Event("job_cancelled", {"type": "mail.send", "reason": EXPIRED, **fields}))
    labels = {"type": "mail.send", "outcome": "expired"}
    assert registry.get_sample_value("holdfast_job_attempts_total", labels) == 1

"""What a type says about how long its chains are kept."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.admin.types import type_facts
from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.errors import InvalidDuration, InvalidOption, Permanent
from holdfast.core.keep import Keep, keep_of
from holdfast.core.records import NewBlocker, NewJob
from holdfast.core.retry import Retry
from holdfast.storage.id_generator import new_id
from holdfast.worker.job import Job
from tests.support.laws import check_rows
from tests.worker.workshop import Workshop


async def work(job: Job[Any]) -> int:
    if job.input == "fails":
        raise Permanent("no")
    if job.input == "fails once" and job.attempt == 1:
        raise ValueError("not yet")
    return 1


async def exists(workshop: Workshop, job_id: str) -> bool:
    return bool(await workshop.run(workshop.store.jobs.get([job_id])))


async def test_what_completes_and_is_not_kept_is_gone_and_dead_letters_stay(
    workshop: Workshop,
) -> None:
    workshop.handle("mail.send", work, keep=0, retry=Retry(base="0s", cap="0s"))
    workshop.handle("report.make", work)
    gone = [await workshop.start_one("mail.send", each) for each in (1, 2, "fails once")]
    failed = await workshop.start_one("mail.send", "fails")
    kept = await workshop.start_one("report.make", 1)
    await workshop.until_idle()
    await workshop.run(workshop.store.jobs.trigger(gone))
    await workshop.until_idle()
    assert [await exists(workshop, each) for each in gone] == [False, False, False]
    assert (await workshop.job(failed)).state == "failed"
    assert (await workshop.job(kept)).state == "completed"
    assert len(workshop.events.of("job_completed")) == 4
    check_rows(workshop.database)


async def test_a_worker_that_only_drains_says_how_long_its_types_are_kept(
    workshop: Workshop,
) -> None:
    workshop.handle("mail.send", work, keep=Keep(completed="2h", failed="1d"))
    await workshop.start_one("mail.send", 1)
    await workshop.until_idle()
    facts = await workshop.run(type_facts(workshop.store, "mail.send"))
    assert facts["mail.send"].kept == {"completed": "2h", "failed": "1d"}


async def test_what_another_job_waits_for_is_kept_until_that_has_ended(workshop: Workshop) -> None:
    workshop.handle("mail.send", work, keep=0)
    workshop.handle("report.make", work)
    first = await workshop.start_one("mail.send", 1)
    job_id = new_id()
    job = NewJob(job_id, job_id, "report.make", "1", blockers=1)
    request = StartRequest(job, blockers=(NewBlocker(job.id, 0, first),))
    await workshop.run(start_chains(workshop.store, [request]))
    await workshop.until_idle()
    assert (await workshop.job(first)).output == "1"
    assert (await workshop.job(job.id)).state == "completed"
    check_rows(workshop.database)


def test_a_single_time_is_for_what_completed_or_was_cancelled() -> None:
    assert dict(keep_of("2h") or ()) == {"completed": 7_200_000, "cancelled": 7_200_000}
    assert dict(keep_of(Keep(failed="1d")) or ()) == {"failed": 86_400_000}
    assert keep_of(None) is None


@pytest.mark.parametrize("given", ["soon", -1, "1000y"])
def test_a_time_that_is_none_is_refused(workshop: Workshop, given: Any) -> None:
    with pytest.raises(InvalidDuration):
        workshop.handle("mail.send", work, keep=given)


def test_another_kind_of_value_is_refused(workshop: Workshop) -> None:
    with pytest.raises(InvalidOption, match="keep"):
        workshop.handle("mail.send", work, keep=["1h"])  # type: ignore[arg-type]

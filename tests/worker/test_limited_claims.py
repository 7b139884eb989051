"""When partitions are polled, and how many at once: as many as fill a claim, whatever each of them lets through."""

from typing import Any

import pytest

from holdfast import Job, Limit, Rate
from holdfast.core.codec import TypeCodec
from holdfast.core.flow import flow_of
from holdfast.core.partitions import LimitedAnswer, LimitedClaim
from holdfast.core.records import Claim, ClaimedJob, LeaseClass
from holdfast.storage.operation import Op
from holdfast.worker.limited_claims import (
    MAX_PARTITIONS,
    MIN_PER_PARTITION,
    SPARE_PARTITIONS,
    TypePolls,
)
from holdfast.worker.options import PollBackoff, WorkerOptions
from holdfast.worker.plain_claims import PlainClaims
from tests.support.manual_clock import ManualClock
from tests.worker.workshop import Workshop

WANTED = 100
TYPE = "mail"


@pytest.fixture
def claims() -> TypePolls:
    plain = TypeCodec(Any, "input")
    flow = flow_of(TYPE, plain, {"limits": [Limit(3, by="tenant")]})
    return TypePolls(TYPE, flow, PollBackoff(WorkerOptions()))


def job(number: int, key: int) -> ClaimedJob:
    """A job of a tenant."""
    id = str(number)
    return ClaimedJob(
        id, "", TYPE, 5, 0, 1, None, 0, 1, id, 0, "{}", 0, None, None, 0, 0, gate=f"{TYPE}#{key}"
    )


def asked(claims: TypePolls, limit: int) -> LimitedClaim:
    """What the next poll asks for."""
    lease = LeaseClass("", 60_000, 25, 1_000, 5_000)
    return claims.request(limit, "w", lease, True, "auto", 0.0)


def poll(claims: TypePolls, each: int, waiting: int) -> LimitedClaim:
    """Poll once, where `waiting` partitions let through so many jobs each."""
    claim = asked(claims, WANTED)
    partitions = min(claim.partitions, waiting)
    jobs = (
        [job(number, number // each) for number in range(min(WANTED, partitions * each))]
        if each
        else []
    )
    answer = LimitedAnswer(jobs, waiting, waiting, waiting - partitions)
    claims.note(claim, answer, 0.0, 0.0, True, 0.0)
    return claim


def test_a_first_poll_fills_its_claim_where_each_key_has_one_job(claims: TypePolls) -> None:
    assert poll(claims, 1, 200).partitions == WANTED + SPARE_PARTITIONS


def test_polls_are_of_few_partitions_where_each_lets_several_jobs_through(
    claims: TypePolls,
) -> None:
    for _ in range(8):
        poll(claims, 3, 200)
    assert poll(claims, 3, 200).partitions in range(WANTED // 3, WANTED // 3 + SPARE_PARTITIONS + 3)


def test_polls_reach_further_where_queues_are_empty_but_not_without_end(claims: TypePolls) -> None:
    for _ in range(8):
        poll(claims, 0, 1_000)
    assert poll(claims, 0, 1_000).partitions == WANTED / MIN_PER_PARTITION + SPARE_PARTITIONS


def test_a_poll_that_found_nothing_waiting_changes_nothing(claims: TypePolls) -> None:
    before = poll(claims, 0, 0).partitions
    assert poll(claims, 0, 0).partitions == before


def test_no_poll_is_so_wide_that_it_keeps_others_waiting(claims: TypePolls) -> None:
    assert asked(claims, 10_000).partitions == MAX_PARTITIONS


def test_a_hint_that_comes_while_a_poll_is_under_way_leads_to_another(claims: TypePolls) -> None:
    claim = asked(claims, WANTED)
    claims.hint()
    claims.note(claim, LimitedAnswer([], 0, 0, 0), 0.0, 0.0, True, 0.0)
    assert claims.next_at <= 0


def test_a_poll_that_was_hinted_at_waits_for_its_time_once_it_was_made(claims: TypePolls) -> None:
    claims.hint()
    poll(claims, 0, 0)
    assert claims.next_at > 0


async def test_a_slot_that_plain_jobs_want_too_goes_to_limited_ones_every_other_time(
    sqlite_workshop: Workshop,
) -> None:
    async def handle(job: Job[Any]) -> None: ...

    workshop = sqlite_workshop
    for name, limited in (
        ("first", {"limits": [Limit(1)]}),
        ("second", {"rates": [Rate(1, "1s")]}),
    ):
        workshop.handle(name, handle, **limited)
    worker = workshop.worker(slots=1)
    claims, room = worker._claimer._limited, worker._claimer._room
    room.is_contended = True
    # Nothing of the second type fits, which is due as well.
    room.pause_type("second", 60)
    assert [len(list(claims.plan(False))) for _ in range(4)].count(1) == 2


async def test_the_ends_of_limited_jobs_have_no_other_types_looked_for(
    sqlite_workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handle(job: Job[Any]) -> None: ...

    workshop, looks = sqlite_workshop, 0

    def claim(claims: PlainClaims, request: Claim) -> Op[list[ClaimedJob]]:
        nonlocal looks
        looks += 1
        return claims._context.store.jobs.claim(request)

    monkeypatch.setattr(PlainClaims, "claim", claim)
    workshop.handle("plain", handle)
    workshop.handle("limited", handle, limits=[Limit(1)])
    ids = await workshop.start("limited", count=12)
    # Time stands still, so that nothing but their ends leads to a claim.
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    for each in ids:
        await workshop.events.seen("job_completed", job_id=each)
    assert looks < len(ids) / 2
    await worker.stop()

"""Claiming: what is due, in which order, how much of it, when the next will be, and what a claim counts."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.records import (
    DEFAULT_PRIORITY,
    Claim,
    ClaimedJob,
    FinishKind,
    LeaseClass,
    NewJob,
    Probe,
)
from tests.conformance.harness import (
    FROM_THE_START,
    LEASE_MS,
    MAIL,
    SECOND,
    WORKER,
    Conformance,
    StoreFixture,
)

CLAIMERS = 8
Lines = tuple[int | None, ...]
# A claim that knows its lines may take a shorter way than one that looks for them.
LINES = pytest.mark.parametrize("lines", [(DEFAULT_PRIORITY,), (None,)], ids=["known", "unknown"])


def ids(jobs: list[ClaimedJob] | list[NewJob]) -> list[str]:
    """The ids of jobs, in their order."""
    return [job.id for job in jobs]


class ClaimingConformance(Conformance):
    """Due jobs are taken most urgent and oldest first, each by one claimer."""

    async def test_a_claimed_job_carries_what_was_asked(self, fixture: StoreFixture) -> None:
        asked = fixture.job(
            input='{"to": "ana"}', priority=3, key="k", trace="00-t-01", max_attempts=7, version=2
        )
        await fixture.start_all([asked])
        created = fixture.now
        claimed_at = fixture.pass_time(ms=5)
        token = fixture.new_id()
        (job,) = await fixture.claim(priorities=[3], token=token)
        assert job == ClaimedJob(
            id=asked.id,
            token=token,
            type=MAIL,
            priority=3,
            available_at=created,
            attempt=1,
            max_attempts=7,
            crashes=0,
            fence=job.fence,
            chain_id=asked.chain_id,
            chain_index=0,
            input='{"to": "ana"}',
            blockers=0,
            trace="00-t-01",
            key="k",
            created_at=created,
            claimed_at=claimed_at,
            version=2,
        )

    async def test_jobs_come_by_priority_then_due_time_then_id(self, fixture: StoreFixture) -> None:
        at = fixture.now
        jobs = [
            fixture.job(priority=5, at=at + 2 * SECOND),
            fixture.job(priority=5, at=at + 1 * SECOND),
            fixture.job(priority=9, at=at),
            fixture.job(priority=0, at=at + 3 * SECOND),
            fixture.job(priority=5, at=at + 1 * SECOND),
        ]
        await fixture.start_all(jobs)
        fixture.pass_time(seconds=3)
        claimed = await fixture.claim(priorities=range(10))
        assert ids(claimed) == [jobs[place].id for place in (3, 1, 4, 0, 2)]

    async def test_the_order_holds_across_types(self, fixture: StoreFixture) -> None:
        jobs = [
            fixture.job("b", priority=5),
            fixture.job("a", priority=5),
            fixture.job("b", priority=4),
        ]
        await fixture.start_all(jobs)
        claimed = await fixture.claim("a", "b", priorities=[4, 5])
        assert ids(claimed) == [jobs[2].id, jobs[0].id, jobs[1].id]

    async def test_a_job_is_due_at_its_time_and_not_before(self, fixture: StoreFixture) -> None:
        job = await fixture.start(at=fixture.now + SECOND)
        fixture.now += SECOND - 1
        assert await fixture.claim() == []
        fixture.now += 1
        assert ids(await fixture.claim()) == [job.id]

    async def test_a_job_planned_in_the_past_is_due_from_its_start(
        self, fixture: StoreFixture
    ) -> None:
        await fixture.start(at=fixture.now - SECOND)
        (job,) = await fixture.claim()
        assert job.available_at == fixture.now

    async def test_a_blocked_job_is_never_due(self, fixture: StoreFixture) -> None:
        blocker = await fixture.start("other")
        await fixture.start_blocked(blocker.id)
        fixture.pass_time(seconds=10**9)
        assert await fixture.claim() == []

    async def test_types_that_are_not_asked_for_are_not_touched(
        self, fixture: StoreFixture
    ) -> None:
        await fixture.start("unhandled")
        before = await fixture.harness.contents()
        assert await fixture.claim(MAIL) == []
        assert await fixture.harness.contents() == before

    async def test_priorities_that_are_not_asked_for_are_not_touched(
        self, fixture: StoreFixture
    ) -> None:
        await fixture.start(priority=6)
        assert await fixture.claim(priorities=[5]) == []

    async def test_a_claim_takes_no_more_than_its_limit(self, fixture: StoreFixture) -> None:
        jobs = [fixture.job(type) for type in ("a", "b", "a", "b", "a")]
        await fixture.start_all(jobs)
        first, then = await fixture.claim("a", "b", limit=3), await fixture.claim("a", "b", limit=3)
        assert (len(first), len(then)) == (3, 2)
        assert sorted(ids([*first, *then])) == ids(jobs)

    async def test_probes_of_one_priority_share_a_claim(self, fixture: StoreFixture) -> None:
        jobs = {type: [fixture.job(type) for _ in range(4)] for type in ("a", "b", "c")}
        await fixture.start_all([job for each in jobs.values() for job in each])
        claimed = await fixture.claim("a", "b", "c", limit=5, share=2)
        assert ids(claimed) == ids([*jobs["a"][:2], *jobs["b"][:2], *jobs["c"][:1]])

    async def test_what_a_share_leaves_is_taken_where_the_others_have_too_little(
        self, fixture: StoreFixture
    ) -> None:
        many, few = [fixture.job("a") for _ in range(6)], [fixture.job("b")]
        await fixture.start_all([*many, *few])
        claimed = await fixture.claim("a", "b", limit=5, share=2)
        assert ids(claimed) == ids([*many[:4], *few])
        assert ids(await fixture.claim("a", "b", limit=5, share=2)) == ids(many[4:])

    async def test_no_share_lets_a_less_urgent_job_come_first(self, fixture: StoreFixture) -> None:
        urgent = [fixture.job("a", priority=3) for _ in range(4)]
        later = [fixture.job("b", priority=4) for _ in range(4)]
        await fixture.start_all([*later, *urgent])
        claimed = await fixture.claim("a", "b", priorities=[4, 3], limit=5, share=1)
        assert ids(claimed) == ids([*urgent, later[0]])

    async def test_a_probe_without_a_priority_finds_them_all(self, fixture: StoreFixture) -> None:
        jobs = [fixture.job(priority=priority) for priority in (9, 5, 0)]
        await fixture.start_all([*jobs, fixture.job("other")])
        assert ids(await fixture.claim(MAIL, "nothing", priorities=[None])) == ids(jobs[::-1])

    async def test_a_type_gives_no_more_than_its_most_at_all_its_priorities_together(
        self, fixture: StoreFixture
    ) -> None:
        limited = [fixture.job("a", priority=priority) for priority in (5, 3, 4, 3)]
        others = [fixture.job("b"), fixture.job("b")]
        await fixture.start_all([*limited, *others])
        token = fixture.new_id()
        probes = (
            Probe("a", None, token, 2, *FROM_THE_START, max=2),
            Probe("b", 5, token, 10, *FROM_THE_START),
        )
        lease = LeaseClass(token, 30_000, 25, 1_000, 5_000)
        claim = Claim(WORKER, 4, probes, (lease,))
        claimed = await fixture.run(fixture.store.jobs.claim(claim, fixture.now))
        assert ids(claimed) == [limited[1].id, limited[3].id, *ids(others)]

    async def test_the_most_urgent_are_taken_where_there_is_no_room_for_all(
        self, fixture: StoreFixture
    ) -> None:
        await fixture.start_all([fixture.job(priority=5), fixture.job(priority=5)])
        fixture.pass_time(seconds=1)
        urgent = await fixture.start("other", priority=1)
        claimed = await fixture.claim(MAIL, "other", priorities=[5, 1], limit=1)
        assert ids(claimed) == [urgent.id]

    async def test_a_probe_takes_no_more_than_its_room(self, fixture: StoreFixture) -> None:
        jobs = [fixture.job(type) for type in ("a", "a", "a", "b")]
        await fixture.start_all(jobs)
        assert ids(await fixture.claim("a", "b", room=2)) == [jobs[0].id, jobs[1].id, jobs[3].id]

    async def test_what_lies_before_the_mark_is_left_to_the_full_look(
        self, fixture: StoreFixture
    ) -> None:
        jobs = [fixture.job() for _ in range(4)]
        await fixture.start_all(jobs)
        mark = (fixture.now, jobs[1].id)
        assert ids(await fixture.claim(after=mark)) == ids(jobs[2:])
        assert ids(await fixture.claim(after=FROM_THE_START)) == ids(jobs[:2])

    async def test_marks_compare_the_time_before_the_id(self, fixture: StoreFixture) -> None:
        early, late = fixture.job(at=fixture.now), fixture.job(at=fixture.now + SECOND)
        later_id = fixture.job(at=fixture.now)
        await fixture.start_all([early, late, later_id])
        mark = (fixture.now, late.id)
        fixture.pass_time(seconds=1)
        assert ids(await fixture.claim(after=mark)) == [later_id.id, late.id]

    async def test_each_job_bears_the_token_of_its_types_lease(self, fixture: StoreFixture) -> None:
        await fixture.start_all([fixture.job("short"), fixture.job("long")])
        short, long = fixture.new_id(), fixture.new_id()
        claim = Claim(
            worker=WORKER,
            limit=10,
            probes=(
                Probe("short", 5, short, 10, *FROM_THE_START),
                Probe("long", 5, long, 10, *FROM_THE_START),
            ),
            classes=(
                LeaseClass(short, 30_000, 25, 1_000, 5_000),
                LeaseClass(long, 120_000, 25, 1_000, 5_000),
            ),
        )
        claimed = await fixture.run(fixture.store.jobs.claim(claim, fixture.now))
        assert {job.type: job.token for job in claimed} == {"short": short, "long": long}
        leases = await fixture.run(fixture.store.leases.page(10))
        assert [(lease.token, lease.expires_at, lease.jobs) for lease in leases] == [
            (short, fixture.now + 30 * SECOND, 1),
            (long, fixture.now + 120 * SECOND, 1),
        ]

    async def test_a_claim_that_finds_nothing_leaves_no_lease(self, fixture: StoreFixture) -> None:
        before = await fixture.harness.contents()
        await fixture.claim()
        assert await fixture.harness.contents() == before

    async def test_running_jobs_are_not_claimed_again(self, fixture: StoreFixture) -> None:
        await fixture.start_running()
        assert await fixture.claim() == []
        fixture.pass_time(ms=2 * LEASE_MS)
        assert await fixture.claim() == [], "an expired lease is the reaper's, never the claim's"


class ConcurrentClaimsConformance(Conformance):
    """Any number of claimers share the work and never a job."""

    async def test_claimers_at_once_never_get_the_same_job(self, fixture: StoreFixture) -> None:
        jobs = [fixture.job() for _ in range(100)]
        await fixture.start_all(jobs)

        async def drain(worker: str) -> list[ClaimedJob]:
            taken: list[ClaimedJob] = []
            while batch := await fixture.claim(limit=5, room=5, worker=worker):
                taken += batch
            return taken

        shares = await asyncio.gather(*(drain(f"worker-{n}") for n in range(CLAIMERS)))
        taken = [job.id for share in shares for job in share]
        # A claimer that met only locked rows went home early; what is left is nobody's yet.
        taken += ids(await fixture.claim())
        assert sorted(taken) == ids(jobs)

    async def test_a_claim_that_is_rolled_back_took_nothing(self, fixture: StoreFixture) -> None:
        job = await fixture.start()
        before = await fixture.harness.contents()
        transaction = await fixture.harness.begin()
        assert ids(await transaction.run(fixture.claim_op())) == [job.id]
        await transaction.rollback()
        assert await fixture.harness.contents() == before
        (again,) = await fixture.claim()
        assert again.attempt == 1


class NextDueConformance(Conformance):
    """How long until there is something to do."""

    async def test_the_next_due_time_is_the_nearest_one_ahead(self, fixture: StoreFixture) -> None:
        await fixture.start_all(
            [
                fixture.job("a", at=fixture.now + 20 * SECOND),
                fixture.job("b", at=fixture.now + 10 * SECOND, priority=9),
                fixture.job("unhandled", at=fixture.now + SECOND),
                fixture.job("a"),
            ]
        )
        assert await self._next_due(fixture, "a", "b") == 10 * SECOND
        assert await self._next_due(fixture, "a") == 20 * SECOND

    async def test_what_is_due_blocked_or_running_is_not_ahead(self, fixture: StoreFixture) -> None:
        await fixture.start_running()
        due = await fixture.start()
        await fixture.start_blocked(due.id)
        assert await self._next_due(fixture, MAIL) is None

    async def test_what_became_due_a_moment_ago_counts_unless_a_worker_has_it(
        self, fixture: StoreFixture
    ) -> None:
        await fixture.start_running()
        await fixture.start_all([fixture.job(at=fixture.now + SECOND)])
        fixture.pass_time(seconds=2)
        assert await self._next_due(fixture, MAIL, back_us=SECOND) is None
        assert await self._next_due(fixture, MAIL, back_us=3 * SECOND) == -SECOND

    async def _next_due(self, fixture: StoreFixture, *types: str, back_us: int = 0) -> int | None:
        return await fixture.run(fixture.store.jobs.next_due(types, back_us, fixture.now))


class AttemptCountingConformance(Conformance):
    """Attempts are counted when claimed; the fence only grows."""

    @LINES
    async def test_an_attempt_is_counted_at_claim(
        self, fixture: StoreFixture, lines: Lines
    ) -> None:
        job = await fixture.start_running(priorities=lines)
        assert job.attempt == 1
        await fixture.finish_as(job, "retry")
        (again,) = await fixture.claim(priorities=lines)
        assert again.attempt == 2

    @pytest.mark.parametrize("kind", ["release", "snooze"])
    async def test_a_job_given_back_gets_its_attempt_back(
        self, fixture: StoreFixture, kind: FinishKind
    ) -> None:
        job = await fixture.finish_new(kind)
        assert (await fixture.read(job.id)).attempt == 0
        (again,) = await fixture.claim()
        assert again.attempt == 1

    @LINES
    async def test_the_fence_grows_with_every_claim_though_the_clock_stands_still(
        self, fixture: StoreFixture, lines: Lines
    ) -> None:
        fences = [(await fixture.start_running()).fence]
        for _ in range(3):
            (held,) = await fixture.run(fixture.store.leases.held(WORKER))
            await fixture.run(fixture.store.leases.release([held.token]))
            (job,) = await fixture.claim(priorities=lines)
            fences.append(job.fence)
        assert fences == sorted(set(fences))

    @LINES
    async def test_the_fence_grows_though_the_clock_goes_back(
        self, fixture: StoreFixture, lines: Lines
    ) -> None:
        await fixture.start()
        fixture.pass_time(seconds=10)
        job = await fixture.finish_next("release")
        fixture.pass_time(seconds=-5)
        (again,) = await fixture.claim(priorities=lines)
        assert again.fence > job.fence

    @LINES
    async def test_a_new_jobs_fence_is_not_below_the_clock_in_milliseconds(
        self, fixture: StoreFixture, lines: Lines
    ) -> None:
        job = await fixture.start_running(priorities=lines)
        assert job.fence >= fixture.now // 1_000


class CrashedJobsConformance(Conformance):
    """A job whose worker died runs beside few others, so that it takes no innocents with it."""

    async def _start_crashed(self, fixture: StoreFixture, count: int) -> list[NewJob]:
        jobs = [fixture.job() for _ in range(count)]
        await fixture.start_all(jobs)
        await fixture.claim(max_attempts=25)
        await fixture.lose_all()
        return jobs

    @LINES
    async def test_at_most_one_crashed_job_is_claimed_at_a_time(
        self, fixture: StoreFixture, lines: Lines
    ) -> None:
        crashed = await self._start_crashed(fixture, 3)
        healthy = [fixture.job(), fixture.job()]
        await fixture.start_all(healthy)
        assert ids(await fixture.claim(priorities=lines)) == [crashed[0].id, *ids(healthy)]
        assert ids(await fixture.claim(priorities=lines)) == [crashed[1].id]

    @LINES
    async def test_a_job_that_crashed_twice_is_claimed_behind_what_was_due_during_its_backoff(
        self, fixture: StoreFixture, lines: Lines
    ) -> None:
        crashed = await fixture.start()
        for _ in range(2):
            await fixture.claim()
            fixture.pass_time(ms=LEASE_MS)
            await fixture.reap()
        healthy = [await fixture.start(), await fixture.start()]
        fixture.pass_time(seconds=60)
        assert ids(await fixture.claim(priorities=lines)) == [*ids(healthy), crashed.id]

    async def test_no_crashed_job_is_claimed_where_none_is_allowed(
        self, fixture: StoreFixture
    ) -> None:
        await self._start_crashed(fixture, 2)
        healthy = await fixture.start()
        assert ids(await fixture.claim(allow_crashed=False)) == [healthy.id]
        assert await fixture.claim(allow_crashed=False) == []

    async def test_a_crashed_job_says_how_often_it_crashed(self, fixture: StoreFixture) -> None:
        await self._start_crashed(fixture, 1)
        (job,) = await fixture.claim()
        assert (job.crashes, job.attempt) == (1, 2)

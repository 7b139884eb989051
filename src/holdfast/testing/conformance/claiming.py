"""Claiming: what is due, in which order, how much of it, and when the next will be."""

from __future__ import annotations

import asyncio

from holdfast.core.records import Claim, ClaimedJob, LeaseClass, NewJob, Probe
from holdfast.testing.conformance.stage import (
    FROM_THE_START,
    LEASE_MS,
    MAIL,
    SECOND,
    WORKER,
    Conformance,
    Stage,
)

CLAIMERS = 8


def ids(jobs: list[ClaimedJob] | list[NewJob]) -> list[str]:
    """The ids of jobs, in their order."""
    return [job.id for job in jobs]


class ClaimingConformance(Conformance):
    """Due jobs are taken most urgent and oldest first, each by one claimer."""

    async def test_a_claimed_job_carries_what_was_asked(self, stage: Stage) -> None:
        asked = stage.job(
            input='{"to": "ana"}', priority=3, key="k", trace="00-t-01", max_attempts=7
        )
        await stage.start_all([asked])
        created = stage.now
        claimed_at = stage.pass_time(ms=5)
        token = stage.new_id()
        (job,) = await stage.claim(priorities=[3], token=token)
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
        )

    async def test_jobs_come_by_priority_then_due_time_then_id(self, stage: Stage) -> None:
        at = stage.now
        jobs = [
            stage.job(priority=5, at=at + 2 * SECOND),
            stage.job(priority=5, at=at + 1 * SECOND),
            stage.job(priority=9, at=at),
            stage.job(priority=0, at=at + 3 * SECOND),
            stage.job(priority=5, at=at + 1 * SECOND),
        ]
        await stage.start_all(jobs)
        stage.pass_time(seconds=3)
        claimed = await stage.claim(priorities=range(10))
        assert ids(claimed) == [jobs[place].id for place in (3, 1, 4, 0, 2)]

    async def test_the_order_holds_across_types(self, stage: Stage) -> None:
        jobs = [stage.job("b", priority=5), stage.job("a", priority=5), stage.job("b", priority=4)]
        await stage.start_all(jobs)
        claimed = await stage.claim("a", "b", priorities=[4, 5])
        assert ids(claimed) == [jobs[2].id, jobs[0].id, jobs[1].id]

    async def test_a_job_is_due_at_its_time_and_not_before(self, stage: Stage) -> None:
        job = await stage.start(at=stage.now + SECOND)
        stage.now += SECOND - 1
        assert await stage.claim() == []
        stage.now += 1
        assert ids(await stage.claim()) == [job.id]

    async def test_a_job_planned_in_the_past_is_due_from_its_start(self, stage: Stage) -> None:
        await stage.start(at=stage.now - SECOND)
        (job,) = await stage.claim()
        assert job.available_at == stage.now

    async def test_a_blocked_job_is_never_due(self, stage: Stage) -> None:
        blocker = await stage.start("other")
        await stage.start_blocked(blocker.id)
        stage.pass_time(seconds=10**9)
        assert await stage.claim() == []

    async def test_types_that_are_not_asked_for_are_not_touched(self, stage: Stage) -> None:
        await stage.start("unhandled")
        before = await stage.harness.contents()
        assert await stage.claim(MAIL) == []
        assert await stage.harness.contents() == before

    async def test_priorities_that_are_not_asked_for_are_not_touched(self, stage: Stage) -> None:
        await stage.start(priority=6)
        assert await stage.claim(priorities=[5]) == []

    async def test_a_claim_takes_no_more_than_its_limit(self, stage: Stage) -> None:
        jobs = [stage.job(type) for type in ("a", "b", "a", "b", "a")]
        await stage.start_all(jobs)
        first, then = await stage.claim("a", "b", limit=3), await stage.claim("a", "b", limit=3)
        assert (len(first), len(then)) == (3, 2)
        assert sorted(ids([*first, *then])) == ids(jobs)

    async def test_probes_of_one_priority_share_a_claim(self, stage: Stage) -> None:
        jobs = {type: [stage.job(type) for _ in range(4)] for type in ("a", "b", "c")}
        await stage.start_all([job for each in jobs.values() for job in each])
        claimed = await stage.claim("a", "b", "c", limit=5, share=2)
        assert ids(claimed) == ids([*jobs["a"][:2], *jobs["b"][:2], *jobs["c"][:1]])

    async def test_what_a_share_leaves_is_taken_where_the_others_have_too_little(
        self, stage: Stage
    ) -> None:
        many, few = [stage.job("a") for _ in range(6)], [stage.job("b")]
        await stage.start_all([*many, *few])
        claimed = await stage.claim("a", "b", limit=5, share=2)
        assert ids(claimed) == ids([*many[:4], *few])
        assert ids(await stage.claim("a", "b", limit=5, share=2)) == ids(many[4:])

    async def test_no_share_lets_a_less_urgent_job_come_first(self, stage: Stage) -> None:
        urgent = [stage.job("a", priority=3) for _ in range(4)]
        later = [stage.job("b", priority=4) for _ in range(4)]
        await stage.start_all([*later, *urgent])
        claimed = await stage.claim("a", "b", priorities=[4, 3], limit=5, share=1)
        assert ids(claimed) == ids([*urgent, later[0]])

    async def test_a_probe_without_a_priority_finds_them_all(self, stage: Stage) -> None:
        jobs = [stage.job(priority=priority) for priority in (9, 5, 0)]
        await stage.start_all([*jobs, stage.job("other")])
        assert ids(await stage.claim(MAIL, "nothing", priorities=[None])) == ids(jobs[::-1])

    async def test_a_type_gives_no_more_than_its_most_at_all_its_priorities_together(
        self, stage: Stage
    ) -> None:
        limited = [stage.job("a", priority=priority) for priority in (5, 3, 4, 3)]
        others = [stage.job("b"), stage.job("b")]
        await stage.start_all([*limited, *others])
        token = stage.new_id()
        probes = (
            Probe("a", None, token, 2, *FROM_THE_START, most=2),
            Probe("b", 5, token, 10, *FROM_THE_START),
        )
        lease = LeaseClass(token, 30_000, 25, 1_000, 5_000)
        claim = Claim(WORKER, 4, probes, (lease,))
        claimed = await stage.run(stage.store.jobs.claim(claim, stage.now))
        assert ids(claimed) == [limited[1].id, limited[3].id, *ids(others)]

    async def test_the_most_urgent_are_taken_where_there_is_no_room_for_all(
        self, stage: Stage
    ) -> None:
        await stage.start_all([stage.job(priority=5), stage.job(priority=5)])
        stage.pass_time(seconds=1)
        urgent = await stage.start("other", priority=1)
        claimed = await stage.claim(MAIL, "other", priorities=[5, 1], limit=1)
        assert ids(claimed) == [urgent.id]

    async def test_a_probe_takes_no_more_than_its_room(self, stage: Stage) -> None:
        jobs = [stage.job(type) for type in ("a", "a", "a", "b")]
        await stage.start_all(jobs)
        assert ids(await stage.claim("a", "b", room=2)) == [jobs[0].id, jobs[1].id, jobs[3].id]

    async def test_what_lies_before_the_mark_is_left_to_the_full_look(self, stage: Stage) -> None:
        jobs = [stage.job() for _ in range(4)]
        await stage.start_all(jobs)
        mark = (stage.now, jobs[1].id)
        assert ids(await stage.claim(after=mark)) == ids(jobs[2:])
        assert ids(await stage.claim(after=FROM_THE_START)) == ids(jobs[:2])

    async def test_marks_compare_the_time_before_the_id(self, stage: Stage) -> None:
        early, late = stage.job(at=stage.now), stage.job(at=stage.now + SECOND)
        later_id = stage.job(at=stage.now)
        await stage.start_all([early, late, later_id])
        mark = (stage.now, late.id)
        stage.pass_time(seconds=1)
        assert ids(await stage.claim(after=mark)) == [later_id.id, late.id]

    async def test_each_job_bears_the_token_of_its_types_lease(self, stage: Stage) -> None:
        await stage.start_all([stage.job("short"), stage.job("long")])
        short, long = stage.new_id(), stage.new_id()
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
        claimed = await stage.run(stage.store.jobs.claim(claim, stage.now))
        assert {job.type: job.token for job in claimed} == {"short": short, "long": long}
        leases = await stage.run(stage.store.leases.page(10))
        assert [(lease.token, lease.expires_at, lease.jobs) for lease in leases] == [
            (short, stage.now + 30 * SECOND, 1),
            (long, stage.now + 120 * SECOND, 1),
        ]

    async def test_a_claim_that_finds_nothing_leaves_no_lease(self, stage: Stage) -> None:
        before = await stage.harness.contents()
        await stage.claim()
        assert await stage.harness.contents() == before

    async def test_running_jobs_are_not_claimed_again(self, stage: Stage) -> None:
        await stage.start_running()
        assert await stage.claim() == []
        stage.pass_time(ms=2 * LEASE_MS)
        assert await stage.claim() == [], "an expired lease is the reaper's, never the claim's"


class ConcurrentClaimsConformance(Conformance):
    """Any number of claimers share the work and never a job."""

    async def test_claimers_at_once_never_get_the_same_job(self, stage: Stage) -> None:
        jobs = [stage.job() for _ in range(100)]
        await stage.start_all(jobs)

        async def drain(worker: str) -> list[ClaimedJob]:
            taken: list[ClaimedJob] = []
            while batch := await stage.claim(limit=5, room=5, worker=worker):
                taken += batch
            return taken

        shares = await asyncio.gather(*(drain(f"worker-{n}") for n in range(CLAIMERS)))
        taken = [job.id for share in shares for job in share]
        # A claimer that met only locked rows went home early; what is left is nobody's yet.
        taken += ids(await stage.claim())
        assert sorted(taken) == ids(jobs)

    async def test_a_claim_that_is_rolled_back_took_nothing(self, stage: Stage) -> None:
        job = await stage.start()
        before = await stage.harness.contents()
        transaction = await stage.harness.begin()
        assert ids(await transaction.run(stage.claiming())) == [job.id]
        await transaction.rollback()
        assert await stage.harness.contents() == before
        (again,) = await stage.claim()
        assert again.attempt == 1


class NextDueConformance(Conformance):
    """How long until there is something to do."""

    async def test_the_next_due_time_is_the_nearest_one_ahead(self, stage: Stage) -> None:
        await stage.start_all(
            [
                stage.job("a", at=stage.now + 20 * SECOND),
                stage.job("b", at=stage.now + 10 * SECOND, priority=9),
                stage.job("unhandled", at=stage.now + SECOND),
                stage.job("a"),
            ]
        )
        assert await self._next_due(stage, "a", "b") == 10 * SECOND
        assert await self._next_due(stage, "a") == 20 * SECOND

    async def test_what_is_due_blocked_or_running_is_not_ahead(self, stage: Stage) -> None:
        await stage.start_running()
        due = await stage.start()
        await stage.start_blocked(due.id)
        assert await self._next_due(stage, MAIL) is None

    async def test_what_became_due_a_moment_ago_counts_unless_somebody_has_it(
        self, stage: Stage
    ) -> None:
        await stage.start_running()
        await stage.start_all([stage.job(at=stage.now + SECOND)])
        stage.pass_time(seconds=2)
        assert await self._next_due(stage, MAIL, back_us=SECOND) is None
        assert await self._next_due(stage, MAIL, back_us=3 * SECOND) == -SECOND

    async def _next_due(self, stage: Stage, *types: str, back_us: int = 0) -> int | None:
        return await stage.run(stage.store.jobs.next_due(types, back_us, stage.now))

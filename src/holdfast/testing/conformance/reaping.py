"""Reaping: what expired leases still hold goes back to the queue, or fails when it has had its chances."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.core.records import AttemptRecord, ClaimedJob, FinishKind, Reaped, ReapPage
from holdfast.testing.conformance.counters import counters_equal_rows
from holdfast.testing.conformance.stage import (
    BACKOFF_CAP_MS,
    BACKOFF_MS,
    LEASE_MS,
    MAIL,
    MILLISECOND,
    WORKER,
    Conformance,
    Stage,
)

POISON = 3


async def reap(stage: Stage, limit: int = 100, poison: int = POISON, **options: Any) -> ReapPage:
    """Take back one page of expired leases."""
    return await stage.run(stage.store.leases.reap(limit, poison, now=stage.now, **options))


async def crash(stage: Stage) -> Reaped:
    """Let the one lease there is run out and take its one job back."""
    stage.pass_time(ms=LEASE_MS)
    (reaped,) = (await reap(stage)).reaped
    return reaped


class ReapingConformance(Conformance):
    """The jobs of dead workers come back."""

    async def test_a_lease_is_reaped_when_it_has_expired_and_not_before(self, stage: Stage) -> None:
        job = await stage.start_running()
        stage.now += LEASE_MS * MILLISECOND - 1
        before = await stage.harness.contents()
        assert await reap(stage) == ReapPage([], 0, None)
        assert await stage.harness.contents() == before
        stage.now += 1
        page = await reap(stage)
        assert [each.id for each in page.reaped] == [job.id]

    async def test_a_reaped_job_waits_with_its_crash_counted(self, stage: Stage) -> None:
        job = await stage.start_running()
        stage.pass_time(ms=LEASE_MS + 250)
        page = await reap(stage)
        assert page.reaped == [
            Reaped(
                job.id,
                MAIL,
                WORKER,
                "pending",
                crashes=1,
                stale_ms=250,
                awaited=False,
                token=job.token,
            )
        ]
        record = await stage.read(job.id)
        assert (record.state, record.crashes, record.attempt) == ("pending", 1, 1)
        assert record.available_at == stage.now + BACKOFF_MS * MILLISECOND
        assert (record.worker, record.lease_expires_at) == (None, None)
        assert await stage.run(stage.store.leases.page(10)) == []

    async def test_a_crash_is_remembered_as_an_attempt(self, stage: Stage) -> None:
        job = await stage.start_running()
        await crash(stage)
        (attempt,) = await stage.attempts(job.id)
        assert attempt == AttemptRecord(
            job_id=job.id,
            attempt=1,
            fence=job.fence,
            kind="reap",
            worker=WORKER,
            started_at=job.claimed_at,
            ended_at=stage.now,
            error=attempt.error,
        )
        assert attempt.error is not None
        assert WORKER in attempt.error

    async def test_the_backoff_doubles_up_to_its_cap(self, stage: Stage) -> None:
        await stage.start()
        delays = []
        for _ in range(5):
            (job,) = await stage.claim()
            stage.pass_time(ms=LEASE_MS)
            await reap(stage, poison=100)
            available_at = (await stage.read(job.id)).available_at
            assert available_at is not None
            delays.append((available_at - stage.now) // MILLISECOND)
            stage.now = available_at
        doubled = [BACKOFF_MS * 2**n for n in range(5)]
        assert delays == [min(each, BACKOFF_CAP_MS) for each in doubled]

    async def test_a_reaped_job_is_claimed_again_after_its_backoff(self, stage: Stage) -> None:
        job = await stage.start_running()
        await crash(stage)
        assert await stage.claim() == []
        stage.pass_time(ms=BACKOFF_MS)
        (again,) = await stage.claim()
        assert (again.id, again.attempt, again.crashes) == (job.id, 2, 1)
        assert again.fence > job.fence

    async def test_only_what_a_lease_still_holds_is_reaped(self, stage: Stage) -> None:
        await stage.start_all([stage.job() for _ in range(3)])
        done, given_back, held = await stage.claim()
        await stage.finish(stage.ending(done, "complete"), stage.ending(given_back, "release"))
        stage.pass_time(ms=LEASE_MS)
        page = await reap(stage)
        assert [each.id for each in page.reaped] == [held.id]
        assert await stage.run(stage.store.leases.page(10)) == []
        assert (await stage.read(done.id)).state == "completed"
        assert (await stage.read(given_back.id)).crashes == 0

    async def test_a_job_taken_over_is_not_reaped_with_its_old_lease(self, stage: Stage) -> None:
        lost = await stage.start_running(lease_ms=1_000)
        await stage.finish_as(lost, "release")
        (held,) = await stage.claim(lease_ms=LEASE_MS)
        stage.pass_time(ms=1_000)
        assert (await reap(stage)).reaped == []
        assert (await stage.stand(held)).standing == "held"

    async def test_reapers_at_once_share_the_work(self, stage: Stage) -> None:
        jobs = [await stage.start_running(f"type-{n}") for n in range(12)]
        stage.pass_time(ms=LEASE_MS)
        pages = await asyncio.gather(*(reap(stage, limit=6) for _ in range(4)))
        reaped = [each.id for page in pages for each in page.reaped]
        reaped += [each.id for each in (await reap(stage)).reaped]
        assert sorted(reaped) == [job.id for job in jobs]
        assert {(await stage.read(job.id)).crashes for job in jobs} == {1}


class ReapedForGoodConformance(Conformance):
    """A job that has had its chances fails, and says why."""

    async def _assert_failed(self, stage: Stage, job: ClaimedJob, crashes: int) -> None:
        record = await stage.read(job.id)
        assert record.state == "failed"
        assert (record.attempt, record.crashes, record.fence) == (job.attempt, crashes, job.fence)
        assert (record.worker, record.started_at) == (WORKER, job.claimed_at)
        assert record.finished_at == stage.now
        assert (record.error or "").startswith("WorkerDied")
        assert [each.kind for each in await stage.attempts(job.id)] == ["reap"] * crashes
        await stage.run(counters_equal_rows(stage))

    async def test_a_job_with_its_attempts_spent_fails(self, stage: Stage) -> None:
        job = await stage.start_running(max_attempts=1)
        assert (await crash(stage)).state == "failed"
        await self._assert_failed(stage, job, crashes=1)

    async def test_the_jobs_own_number_of_attempts_wins_over_its_types(self, stage: Stage) -> None:
        await stage.start_all([stage.job("a", max_attempts=1), stage.job("b", max_attempts=2)])
        await stage.claim("a", max_attempts=25)
        await stage.claim("b", max_attempts=1)
        stage.pass_time(ms=LEASE_MS)
        page = await reap(stage)
        assert {each.type: each.state for each in page.reaped} == {"a": "failed", "b": "pending"}

    async def test_zero_attempts_means_without_end(self, stage: Stage) -> None:
        await stage.start_running(max_attempts=0)
        assert (await crash(stage)).state == "pending"

    async def test_a_job_that_crashed_too_often_fails_as_poison(self, stage: Stage) -> None:
        await stage.start()
        states = []
        for _ in range(POISON):
            stage.pass_time(seconds=60)
            (job,) = await stage.claim()
            assert await stage.run(stage.store.leases.isolate(job.token))
            states.append((await crash(stage)).state)
        assert states == ["pending"] * (POISON - 1) + ["failed"]
        await self._assert_failed(stage, job, crashes=POISON)
        record = await stage.read(job.id)
        assert "died 3 times" in (record.error or "")
        assert "alone" in (record.error or "")

    async def test_a_job_that_never_crashed_alone_is_not_poison(self, stage: Stage) -> None:
        await stage.start()
        for _ in range(2 * POISON):
            stage.pass_time(seconds=60)
            (job,) = await stage.claim()
            assert (await crash(stage)).state == "pending"
        stage.pass_time(seconds=60)
        (again,) = await stage.claim()
        assert again.crashes == 2 * POISON
        await stage.run(stage.store.leases.isolate(again.token))
        assert (await crash(stage)).state == "failed"
        said = [each.error or "" for each in await stage.attempts(job.id)]
        assert [("suspected" in each, "ran alone" in each) for each in said] == [
            (False, False),
            *[(True, False)] * (2 * POISON - 1),
            (False, True),
        ]

    async def test_nothing_is_noted_of_a_lease_that_is_gone(self, stage: Stage) -> None:
        job = await stage.start_running()
        await crash(stage)
        assert not await stage.run(stage.store.leases.isolate(job.token))

    @pytest.mark.parametrize(
        ("kind", "crashes"), [("retry", 0), ("snooze", 0), ("release", 1), ("complete", 1)]
    )
    async def test_an_attempt_that_ends_by_itself_clears_the_job_of_its_crashes(
        self, stage: Stage, kind: FinishKind, crashes: int
    ) -> None:
        await stage.start_running()
        await crash(stage)
        stage.pass_time(seconds=60)
        (again,) = await stage.claim()
        assert await stage.finish_as(again, kind)
        assert (await stage.read(again.id)).crashes == crashes

    async def test_the_two_ways_of_failing_have_fingerprints_of_their_own(
        self, stage: Stage
    ) -> None:
        spent = await stage.start_running("spent", max_attempts=1)
        poison = await stage.start_running("poison")
        stage.pass_time(ms=LEASE_MS)
        await reap(stage, poison=2)
        stage.pass_time(seconds=60)
        (again,) = await stage.claim("poison")
        await stage.run(stage.store.leases.isolate(again.token))
        stage.pass_time(ms=LEASE_MS)
        await reap(stage, poison=2)
        prints = [(await stage.read(job.id)).fingerprint for job in (spent, poison)]
        assert prints == ["worker-died-attempts-spent", "worker-died"]

    async def test_whoever_comes_back_learns_that_its_job_has_ended(self, stage: Stage) -> None:
        job = await stage.start_running(max_attempts=1)
        await crash(stage)
        stand = await stage.stand(job)
        assert (stand.standing, stand.state) == ("ended", "failed")

    @pytest.mark.parametrize("attempts", [1, 25])
    async def test_a_reaped_job_says_whether_others_wait_for_it(
        self, stage: Stage, attempts: int
    ) -> None:
        job = await stage.start_running(max_attempts=attempts)
        await stage.run(stage.store.blockers.wait_on([job.id]))
        assert (await crash(stage)).awaited


class ReapingInBatchesConformance(Conformance):
    """Bounded pages, the oldest first."""

    async def _start_expired(self, stage: Stage, count: int) -> list[ClaimedJob]:
        jobs = []
        for number in range(count):
            jobs.append(await stage.start_running(f"type-{number}"))
            stage.pass_time(seconds=1)
        stage.pass_time(ms=LEASE_MS)
        return jobs

    async def test_a_page_takes_the_leases_that_expired_first(self, stage: Stage) -> None:
        jobs = await self._start_expired(stage, 5)
        page = await reap(stage, limit=2)
        assert sorted(each.id for each in page.reaped) == [jobs[0].id, jobs[1].id]
        assert page.leases == 2
        assert page.last == (jobs[1].claimed_at + LEASE_MS * MILLISECOND, jobs[1].token)

    async def test_the_limit_counts_leases_not_jobs(self, stage: Stage) -> None:
        await stage.start_all([stage.job() for _ in range(7)])
        await stage.claim()
        stage.pass_time(ms=LEASE_MS)
        page = await reap(stage, limit=1)
        assert (len(page.reaped), page.leases) == (7, 1)

    async def test_a_look_after_a_lease_does_not_see_it_again(self, stage: Stage) -> None:
        jobs = await self._start_expired(stage, 3)
        first = jobs[0]
        after = (first.claimed_at + LEASE_MS * MILLISECOND, first.token)
        page = await reap(stage, after=after)
        assert sorted(each.id for each in page.reaped) == [jobs[1].id, jobs[2].id]
        assert (await stage.stand(first)).standing == "held"

    async def test_leases_that_expire_together_are_paged_by_token(self, stage: Stage) -> None:
        jobs = [await stage.start_running(f"type-{number}") for number in range(4)]
        stage.pass_time(ms=LEASE_MS)
        expired = jobs[0].claimed_at + LEASE_MS * MILLISECOND
        page = await reap(stage, after=(expired, jobs[1].token))
        assert sorted(each.id for each in page.reaped) == [jobs[2].id, jobs[3].id]

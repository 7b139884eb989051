"""Reaping: what expired leases still hold goes back to the queue, or fails when it has had its chances."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.commands.retention import FIRST_ID
from holdfast.core.records import AttemptRecord, ClaimedJob, FinishKind, Reaped, ReapPage
from tests.conformance.harness import (
    BACKOFF_CAP_MS,
    BACKOFF_MS,
    LEASE_MS,
    MAIL,
    MILLISECOND,
    POISON,
    WORKER,
    Conformance,
    StoreFixture,
)
from tests.conformance.workers import counters_equal_rows


async def crash(fixture: StoreFixture) -> Reaped:
    """Let the one lease there is run out and take its one job back."""
    fixture.pass_time(ms=LEASE_MS)
    (reaped,) = (await fixture.reap()).reaped
    return reaped


class ReapingConformance(Conformance):
    """The jobs of dead workers come back."""

    async def test_a_lease_is_reaped_when_it_has_expired_and_not_before(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        fixture.now += LEASE_MS * MILLISECOND - 1
        before = await fixture.harness.contents()
        assert await fixture.reap() == ReapPage([], 0, None)
        assert await fixture.harness.contents() == before
        fixture.now += 1
        page = await fixture.reap()
        assert [each.id for each in page.reaped] == [job.id]

    async def test_a_reaped_job_waits_with_its_crash_counted(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        fixture.pass_time(ms=LEASE_MS + 249)
        fixture.now += 600
        page = await fixture.reap()
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
        record = await fixture.read(job.id)
        assert (record.state, record.crashes, record.attempt) == ("pending", 1, 1)
        assert (record.worker, record.lease_expires_at) == (None, None)
        assert await fixture.run(fixture.store.leases.page(10)) == []

    async def test_a_crash_is_remembered_as_an_attempt(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        await crash(fixture)
        (attempt,) = await fixture.attempts(job.id)
        assert attempt == AttemptRecord(
            job_id=job.id,
            attempt=1,
            fence=job.fence,
            kind="reap",
            worker=WORKER,
            started_at=job.claimed_at,
            ended_at=fixture.now,
            error=attempt.error,
        )
        assert attempt.error == f"WorkerDied: the lease of {WORKER} ended 0 ms ago"

    @pytest.mark.parametrize(
        ("late_ms", "said"), [(999, "999 ms"), (1_000, "1.0 s"), (1_500, "1.5 s")]
    )
    async def test_a_crash_that_was_noticed_late_says_so(
        self, fixture: StoreFixture, late_ms: int, said: str
    ) -> None:
        job = await fixture.start_running()
        fixture.pass_time(ms=LEASE_MS + late_ms)
        await fixture.reap()
        (attempt,) = await fixture.attempts(job.id)
        assert attempt.error == f"WorkerDied: the lease of {WORKER} ended {said} ago"

    async def test_a_job_keeps_its_place_when_its_worker_dies_for_the_first_time(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        fixture.pass_time(ms=1)
        behind = [await fixture.start() for _ in range(3)]
        await crash(fixture)
        assert (await fixture.read(job.id)).available_at == job.available_at
        claimed = await fixture.claim()
        assert [each.id for each in claimed] == [job.id, *(each.id for each in behind)]

    async def test_the_backoff_begins_with_the_second_crash_and_doubles_up_to_its_cap(
        self, fixture: StoreFixture
    ) -> None:
        await fixture.start()
        await fixture.claim()
        await crash(fixture)
        delays = []
        for _ in range(5):
            (job,) = await fixture.claim()
            fixture.pass_time(ms=LEASE_MS)
            await fixture.reap(poison=100)
            available_at = (await fixture.read(job.id)).available_at
            assert available_at is not None
            delays.append((available_at - fixture.now) // MILLISECOND)
            fixture.now = available_at
        doubled = [BACKOFF_MS * 2**n for n in range(5)]
        assert delays == [min(each, BACKOFF_CAP_MS) for each in doubled]

    async def test_a_job_that_crashed_twice_is_claimed_again_after_its_backoff(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        await crash(fixture)
        await fixture.claim()
        await crash(fixture)
        assert await fixture.claim() == []
        fixture.pass_time(ms=BACKOFF_MS)
        (again,) = await fixture.claim()
        assert (again.id, again.attempt, again.crashes) == (job.id, 3, 2)
        assert again.fence > job.fence

    async def test_a_place_by_a_clock_that_ran_ahead_is_due_by_the_right_one(
        self, fixture: StoreFixture
    ) -> None:
        right = fixture.now
        fixture.pass_time(seconds=3_600)
        job = await fixture.start_running()
        await fixture.finish_as(job, "retry", delay_ms=5_000)
        fixture.pass_time(seconds=5)
        await fixture.claim()
        await crash(fixture)
        fixture.now = right
        await fixture.run(fixture.store.leases.heal_queue(FIRST_ID, fixture.now))
        assert (await fixture.read(job.id)).available_at == right

    async def test_a_job_keeps_the_place_of_its_last_retry(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        await crash(fixture)
        (again,) = await fixture.claim()
        assert await fixture.finish_as(again, "retry", delay_ms=5_000)
        due = fixture.pass_time(seconds=5)
        await fixture.claim()
        await crash(fixture)
        assert (await fixture.read(job.id)).available_at == due

    async def test_however_often_workers_died_the_backoff_is_bounded(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running(max_attempts=0)
        for _ in range(66):
            fixture.pass_time(ms=LEASE_MS + BACKOFF_CAP_MS)
            await fixture.reap(poison=1_000)
            fixture.pass_time(ms=BACKOFF_CAP_MS)
            await fixture.claim(max_attempts=0)
        fixture.pass_time(ms=LEASE_MS)
        await fixture.reap(poison=1_000)
        record = await fixture.read(job.id)
        assert record.available_at == fixture.now + BACKOFF_CAP_MS * MILLISECOND

    async def test_only_what_a_lease_still_holds_is_reaped(self, fixture: StoreFixture) -> None:
        await fixture.start_all([fixture.job() for _ in range(3)])
        done, given_back, held = await fixture.claim()
        await fixture.finish(
            fixture.finish_of(done, "complete"), fixture.finish_of(given_back, "release")
        )
        fixture.pass_time(ms=LEASE_MS)
        page = await fixture.reap()
        assert [each.id for each in page.reaped] == [held.id]
        assert await fixture.run(fixture.store.leases.page(10)) == []
        assert (await fixture.read(done.id)).state == "completed"
        assert (await fixture.read(given_back.id)).crashes == 0

    async def test_a_job_taken_over_is_not_reaped_with_its_old_lease(
        self, fixture: StoreFixture
    ) -> None:
        lost = await fixture.start_running(lease_ms=1_000)
        await fixture.finish_as(lost, "release")
        (held,) = await fixture.claim(lease_ms=LEASE_MS)
        fixture.pass_time(ms=1_000)
        assert (await fixture.reap()).reaped == []
        assert (await fixture.lease_status(held)).lease == "held"

    async def test_reapers_at_once_share_the_work(self, fixture: StoreFixture) -> None:
        jobs = [await fixture.start_running(f"type-{n}") for n in range(12)]
        fixture.pass_time(ms=LEASE_MS)
        pages = await asyncio.gather(*(fixture.reap(limit=6) for _ in range(4)))
        reaped = [each.id for page in pages for each in page.reaped]
        reaped += [each.id for each in (await fixture.reap()).reaped]
        assert sorted(reaped) == [job.id for job in jobs]
        assert {(await fixture.read(job.id)).crashes for job in jobs} == {1}


class ReapedForGoodConformance(Conformance):
    """A job that has had its chances fails, and says why."""

    async def _assert_failed(self, fixture: StoreFixture, job: ClaimedJob, crashes: int) -> None:
        record = await fixture.read(job.id)
        assert record.state == "failed"
        assert (record.attempt, record.crashes, record.fence) == (job.attempt, crashes, job.fence)
        assert (record.worker, record.started_at) == (WORKER, job.claimed_at)
        assert record.finished_at == fixture.now
        assert (record.error or "").startswith("WorkerDied")
        assert [each.kind for each in await fixture.attempts(job.id)] == ["reap"] * crashes
        await fixture.run(counters_equal_rows(fixture))

    async def test_a_job_with_its_attempts_spent_fails(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running(max_attempts=1)
        assert (await crash(fixture)).state == "failed"
        await self._assert_failed(fixture, job, crashes=1)

    async def test_the_jobs_own_number_of_attempts_wins_over_its_types(
        self, fixture: StoreFixture
    ) -> None:
        own = {"a": 1, "b": 2, "c": 0, "d": 1}
        await fixture.start_all([fixture.job(each, max_attempts=own[each]) for each in own])
        for type, attempts in {"a": 25, "b": 1, "c": 1, "d": 0}.items():
            await fixture.claim(type, max_attempts=attempts)
        fixture.pass_time(ms=LEASE_MS)
        page = await fixture.reap()
        states = {"a": "failed", "b": "pending", "c": "pending", "d": "failed"}
        assert {each.type: each.state for each in page.reaped} == states

    async def test_zero_attempts_means_without_end(self, fixture: StoreFixture) -> None:
        await fixture.start_running(max_attempts=0)
        assert (await crash(fixture)).state == "pending"

    async def test_a_job_that_crashed_too_often_fails_as_poison(
        self, fixture: StoreFixture
    ) -> None:
        await fixture.start()
        states = []
        for _ in range(POISON):
            fixture.pass_time(seconds=60)
            (job,) = await fixture.claim()
            assert await fixture.run(fixture.store.leases.isolate(job.token))
            states.append((await crash(fixture)).state)
        assert states == ["pending"] * (POISON - 1) + ["failed"]
        await self._assert_failed(fixture, job, crashes=POISON)
        record = await fixture.read(job.id)
        assert "died 3 times" in (record.error or "")
        assert "alone" in (record.error or "")

    async def test_a_job_that_never_crashed_alone_is_not_poison(
        self, fixture: StoreFixture
    ) -> None:
        await fixture.start()
        for _ in range(2 * POISON):
            fixture.pass_time(seconds=60)
            (job,) = await fixture.claim()
            assert (await crash(fixture)).state == "pending"
        fixture.pass_time(seconds=60)
        (again,) = await fixture.claim()
        assert again.crashes == 2 * POISON
        await fixture.run(fixture.store.leases.isolate(again.token))
        assert (await crash(fixture)).state == "failed"
        said = [each.error or "" for each in await fixture.attempts(job.id)]
        assert [("suspected" in each, "ran alone" in each) for each in said] == [
            (False, False),
            *[(True, False)] * (2 * POISON - 1),
            (False, True),
        ]

    @pytest.mark.parametrize(
        ("attempts", "is_alone", "why"),
        [
            (1, False, "and the only attempt is spent"),
            (2, False, "and all 2 attempts are spent"),
            (0, True, "while it ran this job, alone"),
        ],
    )
    async def test_a_job_says_why_its_workers_death_was_its_end(
        self, fixture: StoreFixture, attempts: int, is_alone: bool, why: str
    ) -> None:
        job = await fixture.start()
        for _ in range(attempts or 1):
            (running,) = await fixture.claim(max_attempts=attempts)
            if is_alone:
                await fixture.run(fixture.store.leases.isolate(running.token))
            fixture.pass_time(ms=LEASE_MS)
            await fixture.reap(poison=1)
            fixture.pass_time(seconds=60)
        record = await fixture.read(job.id)
        assert record.error == f"WorkerDied: the worker died {why}"

    async def test_only_the_job_of_the_noted_lease_ran_alone(self, fixture: StoreFixture) -> None:
        alone = await fixture.start_running("alone")
        beside = await fixture.start_running("beside", worker="worker-2")
        assert await fixture.run(fixture.store.leases.isolate(alone.token))
        fixture.pass_time(ms=LEASE_MS)
        page = await fixture.reap(poison=1)
        assert {each.id: each.state for each in page.reaped} == {
            alone.id: "failed",
            beside.id: "pending",
        }

    async def test_nothing_is_noted_of_a_lease_that_is_gone(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        await crash(fixture)
        assert not await fixture.run(fixture.store.leases.isolate(job.token))

    @pytest.mark.parametrize(
        ("kind", "crashes"), [("retry", 0), ("snooze", 0), ("release", 1), ("complete", 1)]
    )
    async def test_an_attempt_that_ends_by_itself_clears_the_job_of_its_crashes(
        self, fixture: StoreFixture, kind: FinishKind, crashes: int
    ) -> None:
        await fixture.start_running()
        await crash(fixture)
        fixture.pass_time(seconds=60)
        again = await fixture.finish_next(kind)
        assert (await fixture.read(again.id)).crashes == crashes

    async def test_the_two_ways_of_failing_have_fingerprints_of_their_own(
        self, fixture: StoreFixture
    ) -> None:
        spent = await fixture.start_running("spent", max_attempts=1)
        poison = await fixture.start_running("poison")
        fixture.pass_time(ms=LEASE_MS)
        await fixture.reap(poison=2)
        fixture.pass_time(seconds=60)
        (again,) = await fixture.claim("poison")
        await fixture.run(fixture.store.leases.isolate(again.token))
        fixture.pass_time(ms=LEASE_MS)
        await fixture.reap(poison=2)
        prints = [(await fixture.read(job.id)).fingerprint for job in (spent, poison)]
        assert prints == ["worker-died-attempts-spent", "worker-died"]

    async def test_a_worker_that_comes_back_learns_that_its_job_has_ended(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running(max_attempts=1)
        await crash(fixture)
        status = await fixture.lease_status(job)
        assert (status.lease, status.state) == ("ended", "failed")

    @pytest.mark.parametrize("attempts", [1, 25])
    async def test_a_reaped_job_says_whether_others_wait_for_it(
        self, fixture: StoreFixture, attempts: int
    ) -> None:
        job = await fixture.start_running(max_attempts=attempts)
        await fixture.run(fixture.store.blockers.wait_on([job.id]))
        assert (await crash(fixture)).awaited


class ReapingInBatchesConformance(Conformance):
    """Bounded pages, the oldest first."""

    async def _start_expired(self, fixture: StoreFixture, count: int) -> list[ClaimedJob]:
        jobs = []
        for number in range(count):
            jobs.append(await fixture.start_running(f"type-{number}"))
            fixture.pass_time(seconds=1)
        fixture.pass_time(ms=LEASE_MS)
        return jobs

    async def test_a_page_takes_the_leases_that_expired_first(self, fixture: StoreFixture) -> None:
        jobs = await self._start_expired(fixture, 5)
        page = await fixture.reap(limit=2)
        assert sorted(each.id for each in page.reaped) == [jobs[0].id, jobs[1].id]
        assert page.leases == 2
        assert page.last == (jobs[1].claimed_at + LEASE_MS * MILLISECOND, jobs[1].token)

    async def test_the_limit_counts_leases_not_jobs(self, fixture: StoreFixture) -> None:
        await fixture.start_all([fixture.job() for _ in range(7)])
        await fixture.claim()
        fixture.pass_time(ms=LEASE_MS)
        page = await fixture.reap(limit=1)
        assert (len(page.reaped), page.leases) == (7, 1)

    async def test_a_look_after_a_lease_does_not_see_it_again(self, fixture: StoreFixture) -> None:
        jobs = await self._start_expired(fixture, 3)
        first = jobs[0]
        after = (first.claimed_at + LEASE_MS * MILLISECOND, first.token)
        page = await fixture.reap(after=after)
        assert sorted(each.id for each in page.reaped) == [jobs[1].id, jobs[2].id]
        assert (await fixture.lease_status(first)).lease == "held"

    async def test_leases_that_expire_together_are_paged_by_token(
        self, fixture: StoreFixture
    ) -> None:
        jobs = [await fixture.start_running(f"type-{number}") for number in range(4)]
        fixture.pass_time(ms=LEASE_MS)
        expired = jobs[0].claimed_at + LEASE_MS * MILLISECOND
        page = await fixture.reap(after=(expired, jobs[1].token))
        assert sorted(each.id for each in page.reaped) == [jobs[2].id, jobs[3].id]

"""What a claim counts: attempts, the fence, and the crashes that make a job run almost alone."""

from __future__ import annotations

import pytest

from holdfast.core.records import FinishKind, NewJob
from holdfast.testing.conformance.claiming import ids
from holdfast.testing.conformance.stage import LEASE_MS, WORKER, Conformance, Stage


class AttemptCountingConformance(Conformance):
    """Attempts are counted when claimed; the fence only grows."""

    async def test_an_attempt_is_counted_at_claim(self, stage: Stage) -> None:
        job = await stage.start_running()
        assert job.attempt == 1
        await stage.finish_as(job, "retry")
        (again,) = await stage.claim()
        assert again.attempt == 2

    @pytest.mark.parametrize("kind", ["release", "snooze"])
    async def test_a_job_given_back_gets_its_attempt_back(
        self, stage: Stage, kind: FinishKind
    ) -> None:
        job = await stage.start_running()
        await stage.finish_as(job, kind)
        assert (await stage.read(job.id)).attempt == 0
        (again,) = await stage.claim()
        assert again.attempt == 1

    async def test_the_fence_grows_with_every_claim_though_the_clock_stands_still(
        self, stage: Stage
    ) -> None:
        fences = [(await stage.start_running()).fence]
        for _ in range(3):
            (held,) = await stage.run(stage.store.leases.held(WORKER))
            await stage.run(stage.store.leases.release([held.token]))
            (job,) = await stage.claim()
            fences.append(job.fence)
        assert fences == sorted(set(fences))

    async def test_the_fence_grows_though_the_clock_goes_back(self, stage: Stage) -> None:
        await stage.start()
        stage.pass_time(seconds=10)
        (job,) = await stage.claim()
        await stage.finish_as(job, "release")
        stage.pass_time(seconds=-5)
        (again,) = await stage.claim()
        assert again.fence > job.fence

    async def test_a_new_jobs_fence_is_not_below_the_clock_in_milliseconds(
        self, stage: Stage
    ) -> None:
        job = await stage.start_running()
        assert job.fence >= stage.now // 1_000


class CrashedJobsConformance(Conformance):
    """A job whose worker died runs beside few others, so that it takes no innocents with it."""

    async def _start_crashed(self, stage: Stage, count: int) -> list[NewJob]:
        jobs = [stage.job() for _ in range(count)]
        await stage.start_all(jobs)
        await stage.claim(max_attempts=25)
        stage.pass_time(ms=LEASE_MS)
        await stage.run(stage.store.leases.reap(100, 100, now=stage.now))
        stage.pass_time(seconds=60)
        return jobs

    async def test_at_most_one_crashed_job_is_claimed_at_a_time(self, stage: Stage) -> None:
        crashed = await self._start_crashed(stage, 3)
        healthy = [stage.job(), stage.job()]
        await stage.start_all(healthy)
        assert ids(await stage.claim()) == [crashed[0].id, *ids(healthy)]
        assert ids(await stage.claim()) == [crashed[1].id]

    async def test_no_crashed_job_is_claimed_where_none_is_allowed(self, stage: Stage) -> None:
        await self._start_crashed(stage, 2)
        healthy = await stage.start()
        assert ids(await stage.claim(allow_crashed=False)) == [healthy.id]
        assert await stage.claim(allow_crashed=False) == []

    async def test_a_crashed_job_says_how_often_it_crashed(self, stage: Stage) -> None:
        await self._start_crashed(stage, 1)
        (job,) = await stage.claim()
        assert (job.crashes, job.attempt) == (1, 2)

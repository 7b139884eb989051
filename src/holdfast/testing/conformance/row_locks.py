"""Locked rows: for stores that lock rows rather than everything, what one transaction holds hinders nobody else."""

from __future__ import annotations

from holdfast.core.records import ClaimedJob
from holdfast.testing.conformance.reaping import reap
from holdfast.testing.conformance.stage import LEASE_MS, MAIL, MILLISECOND, Conformance, Stage


class RowLockConformance(Conformance):
    """Claims, flushes and reaps skip what is locked and take the rest."""

    async def test_a_claim_skips_locked_rows(self, stage: Stage) -> None:
        locked, free = await stage.start(), await stage.start()
        transaction = await stage.harness.begin()
        await transaction.run(stage.store.jobs.lock([locked.id]))
        assert [job.id for job in await stage.claim()] == [free.id]
        await transaction.rollback()
        assert [job.id for job in await stage.claim()] == [locked.id]

    async def test_a_claim_skips_what_an_open_claim_has_taken(self, stage: Stage) -> None:
        first, second = await stage.start(), await stage.start()
        transaction = await stage.harness.begin()
        (taken,) = await transaction.run(stage.claiming(limit=1, room=1))
        assert taken.id == first.id
        assert [job.id for job in await stage.claim()] == [second.id]
        await transaction.commit()
        assert await stage.claim() == []

    async def test_a_flush_skips_a_locked_row_and_takes_the_others(self, stage: Stage) -> None:
        await stage.start_all([stage.job() for _ in range(3)])
        jobs = await stage.claim()
        transaction = await stage.harness.begin()
        await transaction.run(stage.store.jobs.lock([jobs[1].id]))
        finishes = [stage.ending(job, "complete") for job in jobs]
        finished = await stage.finish(*finishes)
        assert {each.id for each in finished} == {jobs[0].id, jobs[2].id}
        assert (await stage.stand(jobs[1])).standing == "held"
        await transaction.rollback()
        assert [each.id for each in await stage.finish(finishes[1])] == [jobs[1].id]

    async def test_a_flush_does_not_wait_for_an_end_from_outside(self, stage: Stage) -> None:
        job = await stage.start_running()
        transaction = await stage.harness.begin()
        assert await transaction.run(stage.store.chains.delete([job.chain_id], stage.now))
        assert not await stage.finish_as(job, "complete")
        await transaction.commit()
        assert (await stage.stand(job)).standing == "gone"

    async def test_a_trigger_skips_locked_rows(self, stage: Stage) -> None:
        locked, free = await stage.start(), await stage.start()
        transaction = await stage.harness.begin()
        await transaction.run(stage.store.jobs.lock([locked.id]))
        ids = [locked.id, free.id]
        triggered = await stage.run(stage.store.jobs.trigger(ids, stage.now))
        assert [each.id for each in triggered] == [free.id]

    async def test_waiting_events_are_delivered_by_one_of_two(self, stage: Stage) -> None:
        first, second = await stage.start(), await stage.start()
        transaction = await stage.harness.begin()
        (mine,) = await transaction.run(stage.store.events.waiting(MAIL, 1))
        assert mine.id == first.id
        (other,) = await stage.run(stage.store.events.waiting(MAIL, 10))
        assert other.id == second.id


class LockedReapConformance(Conformance):
    """A reaper is not stopped by rows that somebody holds."""

    async def _claim_three(self, stage: Stage) -> list[ClaimedJob]:
        await stage.start_all([stage.job() for _ in range(3)])
        return await stage.claim()

    async def test_a_locked_row_stays_with_its_lease_and_is_reaped_later(
        self, stage: Stage
    ) -> None:
        jobs = await self._claim_three(stage)
        stage.pass_time(ms=LEASE_MS)
        transaction = await stage.harness.begin()
        await transaction.run(stage.store.jobs.lock([jobs[1].id]))
        page = await reap(stage)
        assert {each.id for each in page.reaped} == {jobs[0].id, jobs[2].id}
        (lease,) = await stage.run(stage.store.leases.page(10))
        assert (lease.token, lease.jobs) == (jobs[1].token, 1)
        assert (await stage.stand(jobs[1])).standing == "held"
        await transaction.rollback()
        assert [each.id for each in (await reap(stage)).reaped] == [jobs[1].id]
        assert await stage.run(stage.store.leases.page(10)) == []

    async def test_a_job_that_its_holder_ends_meanwhile_is_not_reaped(self, stage: Stage) -> None:
        jobs = await self._claim_three(stage)
        stage.pass_time(ms=LEASE_MS)
        transaction = await stage.harness.begin()
        finish = stage.ending(jobs[0], "complete")
        assert await transaction.run(stage.store.jobs.finish([finish], now=stage.now))
        page = await reap(stage)
        assert {each.id for each in page.reaped} == {jobs[1].id, jobs[2].id}
        await transaction.commit()
        page = await reap(stage)
        assert (page.reaped, page.leases) == ([], 1)
        assert await stage.run(stage.store.leases.page(10)) == []
        assert (await stage.read(jobs[0].id)).state == "completed"

    async def test_a_reaper_pages_past_leases_that_it_cannot_empty(self, stage: Stage) -> None:
        jobs = []
        for number in range(3):
            jobs.append(await stage.start_running(f"type-{number}"))
            stage.pass_time(seconds=1)
        stage.pass_time(ms=LEASE_MS)
        transaction = await stage.harness.begin()
        await transaction.run(stage.store.jobs.lock([jobs[0].id]))
        first = await reap(stage, limit=1)
        assert (first.reaped, first.leases) == ([], 1)
        assert first.last == (jobs[0].claimed_at + LEASE_MS * MILLISECOND, jobs[0].token)
        second = await reap(stage, limit=1, after=first.last)
        assert [each.id for each in second.reaped] == [jobs[1].id]
        third = await reap(stage, limit=1, after=second.last)
        assert [each.id for each in third.reaped] == [jobs[2].id]

    async def test_a_lease_that_another_reaper_has_locked_is_skipped(self, stage: Stage) -> None:
        first, second = await stage.start_running("a"), await stage.start_running("b")
        stage.pass_time(ms=LEASE_MS)
        transaction = await stage.harness.begin()
        op = stage.store.leases.reap(1, 3, now=stage.now)
        assert [each.id for each in (await transaction.run(op)).reaped] == [first.id]
        assert [each.id for each in (await reap(stage)).reaped] == [second.id]
        await transaction.commit()
        assert (await reap(stage)).leases == 0

    async def test_a_lease_that_is_being_renewed_is_skipped(self, stage: Stage) -> None:
        job = await stage.start_running()
        stage.pass_time(ms=LEASE_MS)
        transaction = await stage.harness.begin()
        await transaction.run(stage.store.leases.renew([job.token], stage.now))
        assert (await reap(stage)).reaped == []
        await transaction.commit()
        assert (await reap(stage)).reaped == []
        assert (await stage.stand(job)).standing == "held"

"""Leases: how long they last, what they hold, and how they are given back."""

from __future__ import annotations

from holdfast.core.records import Ending, Held, JobRef
from holdfast.testing.conformance.stage import (
    LEASE_MS,
    MILLISECOND,
    SECOND,
    WORKER,
    Conformance,
    Stage,
)


class LeaseConformance(Conformance):
    """One lease per claim, renewed by its token."""

    async def test_a_lease_lasts_from_its_claim_for_its_time(self, stage: Stage) -> None:
        job = await stage.start_running()
        record = await stage.read(job.id)
        assert record.worker == WORKER
        assert record.lease_expires_at == stage.now + LEASE_MS * MILLISECOND
        assert record.started_at == stage.now

    async def test_a_renewed_lease_lasts_from_its_renewal(self, stage: Stage) -> None:
        job = await stage.start_running()
        stage.pass_time(seconds=20)
        assert await stage.run(stage.store.leases.renew([job.token], stage.now)) == {job.token}
        record = await stage.read(job.id)
        assert record.lease_expires_at == stage.now + LEASE_MS * MILLISECOND
        assert record.started_at == stage.now - 20 * SECOND

    async def test_unknown_tokens_are_not_renewed(self, stage: Stage) -> None:
        job = await stage.start_running()
        tokens = [stage.new_id(), job.token]
        assert await stage.run(stage.store.leases.renew(tokens, stage.now)) == {job.token}

    async def test_nothing_to_renew_is_no_error(self, stage: Stage) -> None:
        assert await stage.run(stage.store.leases.renew([], stage.now)) == set()

    async def test_leases_are_listed_the_soonest_to_end_first(self, stage: Stage) -> None:
        long = await stage.start_running(lease_ms=90_000)
        await stage.start_all([stage.job(), stage.job()])
        short, _ = await stage.claim(lease_ms=30_000, worker="worker-2")
        leases = await stage.run(stage.store.leases.page(10))
        assert [(lease.token, lease.jobs) for lease in leases] == [
            (short.token, 2),
            (long.token, 1),
        ]
        assert [lease.claimed_at for lease in leases] == [stage.now, stage.now]
        (mine,) = await stage.run(stage.store.leases.page(10, WORKER))
        assert mine.token == long.token
        assert len(await stage.run(stage.store.leases.page(1))) == 1


class HeldJobsConformance(Conformance):
    """What a worker holds by the store's word."""

    async def _held(self, stage: Stage, worker: str = WORKER) -> list[Held]:
        return await stage.run(stage.store.leases.held(worker))

    async def test_a_worker_holds_what_it_claimed_whether_it_knows_or_not(
        self, stage: Stage
    ) -> None:
        mine = await stage.start_running("a")
        also_mine = await stage.start_running("b")
        await stage.start_running("c", worker="worker-2")
        held = await self._held(stage)
        assert sorted(held, key=lambda each: each.id) == [
            Held(mine.id, mine.token),
            Held(also_mine.id, also_mine.token),
        ]

    async def test_what_ended_or_was_given_back_is_not_held(self, stage: Stage) -> None:
        await stage.start_all([stage.job() for _ in range(5)])
        done, retried, cancelled, deleted, kept = await stage.claim()
        await stage.finish(stage.ending(done, "complete"), stage.ending(retried, "retry"))
        await stage.run(stage.store.jobs.end([Ending(cancelled.id, "cancelled")], stage.now))
        await stage.run(stage.store.chains.delete([deleted.chain_id], stage.now))
        assert await self._held(stage) == [Held(kept.id, kept.token)]

    async def test_what_another_worker_took_over_is_not_held(self, stage: Stage) -> None:
        lost = await stage.start_running()
        await stage.finish_as(lost, "release")
        (taken,) = await stage.claim(worker="worker-2")
        assert await self._held(stage) == []
        assert await self._held(stage, "worker-2") == [Held(taken.id, taken.token)]


class GivingBackConformance(Conformance):
    """Leases that end before their time."""

    async def test_release_gives_back_everything_a_claim_holds(self, stage: Stage) -> None:
        jobs = [stage.job("a"), stage.job("b"), stage.job("a")]
        await stage.start_all(jobs)
        claimed = await stage.claim("a", "b")
        await stage.finish_as(claimed[2], "complete")
        stage.pass_time(seconds=5)
        released = await stage.run(stage.store.leases.release([claimed[0].token]))
        assert set(released) == {JobRef(jobs[0].id, "a"), JobRef(jobs[1].id, "b")}
        assert await stage.run(stage.store.leases.page(10)) == []

    async def test_a_released_job_keeps_its_place_and_its_attempt(self, stage: Stage) -> None:
        job = await stage.start_running()
        stage.pass_time(seconds=5)
        await stage.run(stage.store.leases.release([job.token]))
        record = await stage.read(job.id)
        assert (record.state, record.attempt, record.crashes) == ("pending", 0, 0)
        assert record.available_at == job.available_at
        assert record.fence == job.fence
        assert await stage.attempts(job.id) == []

    async def test_releasing_an_unknown_token_is_no_error(self, stage: Stage) -> None:
        assert await stage.run(stage.store.leases.release([stage.new_id()])) == []

    async def test_only_leases_that_hold_nothing_are_freed(self, stage: Stage) -> None:
        done, kept = await stage.start_running("a"), await stage.start_running("b")
        await stage.finish_as(done, "complete")
        await stage.run(stage.store.leases.free([done.token, kept.token]))
        (lease,) = await stage.run(stage.store.leases.page(10))
        assert lease.token == kept.token

    async def test_a_flush_removes_the_leases_it_is_told_are_over(self, stage: Stage) -> None:
        job = await stage.start_running()
        await stage.finish_as(job, "complete")
        await stage.run(stage.store.jobs.finish([], [job.token], now=stage.now))
        assert await stage.run(stage.store.leases.page(10)) == []

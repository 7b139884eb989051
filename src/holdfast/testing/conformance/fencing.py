"""Fencing: every write that ends, extends or gives back an attempt is refused without the token that holds the job."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from holdfast.core.records import ClaimedJob, Ending, Finish, FinishKind, Held
from holdfast.testing.conformance.stage import LEASE_MS, MAIL, WORKER, Conformance, Stage

KINDS: tuple[FinishKind, ...] = get_args(FinishKind)


async def _reap(stage: Stage) -> None:
    """Let every lease run out, take the jobs back and wait for their backoff."""
    stage.pass_time(ms=LEASE_MS)
    await stage.run(stage.store.leases.reap(100, 100, now=stage.now))
    stage.pass_time(seconds=60)


async def _taken_over(stage: Stage) -> tuple[ClaimedJob, ClaimedJob]:
    """A job as its first holder knows it, who lost it, and as its second holder does."""
    lost = await stage.start_running()
    await _reap(stage)
    (held,) = await stage.claim(worker="worker-2")
    assert held.id == lost.id
    return lost, held


class FencingConformance(Conformance):
    """A write proves by its (job, token) pair that nobody has taken the job meanwhile."""

    @pytest.mark.parametrize("kind", KINDS)
    async def test_a_finish_with_a_stale_token_is_refused_and_changes_nothing(
        self, stage: Stage, kind: FinishKind
    ) -> None:
        lost, held = await _taken_over(stage)
        before = await stage.harness.contents()
        assert await stage.finish(self._end(stage, lost, kind)) == []
        assert await stage.harness.contents() == before
        assert (await stage.stand(lost)).standing == "taken"
        assert (await stage.stand(held)).standing == "held"

    @pytest.mark.parametrize("kind", KINDS)
    async def test_the_token_of_another_job_proves_nothing(
        self, stage: Stage, kind: FinishKind
    ) -> None:
        mine, other = await stage.start_running("a"), await stage.start_running("b")
        before = await stage.harness.contents()
        assert await stage.finish(self._end(stage, other, kind, token=mine.token)) == []
        assert await stage.harness.contents() == before

    async def test_a_reaped_lease_is_not_renewed(self, stage: Stage) -> None:
        lost, held = await _taken_over(stage)
        renewed = await stage.run(stage.store.leases.renew([lost.token, held.token], stage.now))
        assert renewed == {held.token}

    async def test_releasing_a_reaped_lease_gives_nothing_back(self, stage: Stage) -> None:
        lost, held = await _taken_over(stage)
        assert await stage.run(stage.store.leases.release([lost.token])) == []
        assert (await stage.stand(held)).standing == "held"

    async def test_freeing_a_reaped_lease_leaves_the_new_one(self, stage: Stage) -> None:
        lost, held = await _taken_over(stage)
        await stage.run(stage.store.leases.free([lost.token, held.token]))
        assert await stage.run(stage.store.leases.renew([held.token], stage.now)) == {held.token}

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("stale_first", [True, False])
    async def test_the_old_token_beside_the_new_one_in_one_flush_is_refused(
        self, stage: Stage, kind: FinishKind, stale_first: bool
    ) -> None:
        lost, held = await _taken_over(stage)
        finishes = [
            self._end(stage, lost, kind, output='"old"'),
            stage.ending(held, "complete", output='"new"'),
        ]
        finished = await stage.finish(*(finishes if stale_first else reversed(finishes)))
        assert [each.id for each in finished] == [held.id]
        record = await stage.read(held.id)
        assert (record.state, record.output) == ("completed", '"new"')

    @pytest.mark.parametrize("kind", KINDS)
    async def test_two_jobs_of_one_flush_cannot_exchange_their_tokens(
        self, stage: Stage, kind: FinishKind
    ) -> None:
        first, second = await stage.start_running("a"), await stage.start_running("b")
        before = await stage.harness.contents()
        finishes = [
            self._end(stage, first, kind, token=second.token),
            self._end(stage, second, kind, token=first.token),
        ]
        assert await stage.finish(*finishes) == []
        assert await stage.harness.contents() == before

    def _end(self, stage: Stage, job: ClaimedJob, kind: FinishKind, **fields: Any) -> Finish:
        successor = stage.next_job(job) if kind == "continue" else None
        return stage.ending(job, kind, next=successor, **fields)

    async def test_a_process_that_claims_its_own_job_again_cannot_finish_its_first_attempt(
        self, stage: Stage
    ) -> None:
        first = await stage.start_running(worker=WORKER)
        await _reap(stage)
        (second,) = await stage.claim(worker=WORKER)
        assert not await stage.finish_as(first, "complete")
        assert await stage.finish_as(second, "complete")

    async def test_a_repeated_completion_is_not_accepted_but_known_as_ones_own(
        self, stage: Stage
    ) -> None:
        job = await stage.start_running()
        assert await stage.finish_as(job, "complete", output="1")
        before = await stage.harness.contents()
        assert not await stage.finish_as(job, "complete", output="2")
        assert await stage.harness.contents() == before
        stand = await stage.stand(job)
        assert (stand.standing, stand.state) == ("done", "completed")

    async def test_an_expired_lease_that_nobody_reaped_may_still_complete(
        self, stage: Stage
    ) -> None:
        job = await stage.start_running()
        stage.pass_time(ms=2 * LEASE_MS)
        assert await stage.finish_as(job, "complete")

    async def test_an_expired_lease_that_nobody_reaped_may_be_renewed(self, stage: Stage) -> None:
        job = await stage.start_running()
        stage.pass_time(ms=2 * LEASE_MS)
        await stage.run(stage.store.leases.renew([job.token], stage.now))
        page = await stage.run(stage.store.leases.reap(100, 3, now=stage.now))
        assert page.reaped == []

    async def test_whoever_lost_a_job_learns_what_became_of_it(self, stage: Stage) -> None:
        job = await stage.start_running()
        assert (await stage.stand(job)).standing == "held"
        await _reap(stage)
        assert (await stage.stand(job)).standing == "free"
        (again,) = await stage.claim()
        assert (await stage.stand(job)).standing == "taken"
        await stage.finish_as(again, "complete")
        stand = await stage.stand(job)
        assert (stand.standing, stand.state) == ("ended", "completed")
        await stage.run(stage.store.chains.delete([job.chain_id], stage.now))
        stand = await stage.stand(job)
        assert (stand.standing, stand.state) == ("gone", None)

    async def test_a_job_cancelled_from_outside_stands_as_ended(self, stage: Stage) -> None:
        job = await stage.start_running()
        await stage.run(stage.store.jobs.end([Ending(job.id, "cancelled")], stage.now))
        assert not await stage.finish_as(job, "complete")
        stand = await stage.stand(job)
        assert (stand.standing, stand.state) == ("ended", "cancelled")

    async def test_a_token_does_not_outlive_a_redrive(self, stage: Stage) -> None:
        job = await stage.start_running()
        await stage.finish_as(job, "fail")
        assert (await stage.stand(job)).standing == "done"
        await stage.run(stage.store.jobs.redrive([job.id], now=stage.now))
        assert (await stage.stand(job)).standing == "free"
        assert not await stage.finish_as(job, "complete")

    async def test_many_pairs_are_answered_at_once(self, stage: Stage) -> None:
        await stage.start_all([stage.job(), stage.job()])
        first, second = await stage.claim(MAIL)
        await stage.finish_as(second, "snooze")
        unknown = stage.new_id()
        pairs = [Held(job, first.token) for job in (first.id, second.id, unknown)]
        stands = await stage.run(stage.store.jobs.stand(pairs))
        assert {each.id: each.standing for each in stands} == {
            first.id: "held",
            second.id: "free",
            unknown: "gone",
        }

"""Fencing: every write that ends, extends or gives back an attempt is refused without the token that holds the job."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from holdfast.core.records import ClaimedJob, Ending, Finish, FinishKind, Held
from holdfast.testing.conformance.store_fixture import (
    LEASE_MS,
    MAIL,
    WORKER,
    Conformance,
    StoreFixture,
)

KINDS: tuple[FinishKind, ...] = get_args(FinishKind)


async def _reap(fixture: StoreFixture) -> None:
    """Let every lease run out, take the jobs back and wait for their backoff."""
    fixture.pass_time(ms=LEASE_MS)
    await fixture.run(fixture.store.leases.reap(100, 100, now=fixture.now))
    fixture.pass_time(seconds=60)


async def _taken_over(fixture: StoreFixture) -> tuple[ClaimedJob, ClaimedJob]:
    """A job as its first holder knows it, who lost it, and as its second holder does."""
    lost = await fixture.start_running()
    await _reap(fixture)
    (held,) = await fixture.claim(worker="worker-2")
    assert held.id == lost.id
    return lost, held


class FencingConformance(Conformance):
    """A write proves by its (job, token) pair that nobody has taken the job meanwhile."""

    @pytest.mark.parametrize("kind", KINDS)
    async def test_a_finish_with_a_stale_token_is_refused_and_changes_nothing(
        self, fixture: StoreFixture, kind: FinishKind
    ) -> None:
        lost, held = await _taken_over(fixture)
        before = await fixture.harness.contents()
        assert await fixture.finish(self._end(fixture, lost, kind)) == []
        assert await fixture.harness.contents() == before
        assert (await fixture.stand(lost)).standing == "taken"
        assert (await fixture.stand(held)).standing == "held"

    @pytest.mark.parametrize("kind", KINDS)
    async def test_the_token_of_another_job_proves_nothing(
        self, fixture: StoreFixture, kind: FinishKind
    ) -> None:
        mine, other = await fixture.start_running("a"), await fixture.start_running("b")
        before = await fixture.harness.contents()
        assert await fixture.finish(self._end(fixture, other, kind, token=mine.token)) == []
        assert await fixture.harness.contents() == before

    async def test_a_reaped_lease_is_not_renewed(self, fixture: StoreFixture) -> None:
        lost, held = await _taken_over(fixture)
        renewed = await fixture.run(
            fixture.store.leases.renew([lost.token, held.token], fixture.now)
        )
        assert renewed == {held.token}

    async def test_releasing_a_reaped_lease_gives_nothing_back(self, fixture: StoreFixture) -> None:
        lost, held = await _taken_over(fixture)
        assert await fixture.run(fixture.store.leases.release([lost.token])) == []
        assert (await fixture.stand(held)).standing == "held"

    async def test_freeing_a_reaped_lease_leaves_the_new_one(self, fixture: StoreFixture) -> None:
        lost, held = await _taken_over(fixture)
        await fixture.run(fixture.store.leases.free([lost.token, held.token]))
        assert await fixture.run(fixture.store.leases.renew([held.token], fixture.now)) == {
            held.token
        }

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("stale_first", [True, False])
    async def test_the_old_token_beside_the_new_one_in_one_flush_is_refused(
        self, fixture: StoreFixture, kind: FinishKind, stale_first: bool
    ) -> None:
        lost, held = await _taken_over(fixture)
        finishes = [
            self._end(fixture, lost, kind, output='"old"'),
            fixture.ending(held, "complete", output='"new"'),
        ]
        finished = await fixture.finish(*(finishes if stale_first else reversed(finishes)))
        assert [each.id for each in finished] == [held.id]
        record = await fixture.read(held.id)
        assert (record.state, record.output) == ("completed", '"new"')

    @pytest.mark.parametrize("kind", KINDS)
    async def test_two_jobs_of_one_flush_cannot_exchange_their_tokens(
        self, fixture: StoreFixture, kind: FinishKind
    ) -> None:
        first, second = await fixture.start_running("a"), await fixture.start_running("b")
        before = await fixture.harness.contents()
        finishes = [
            self._end(fixture, first, kind, token=second.token),
            self._end(fixture, second, kind, token=first.token),
        ]
        assert await fixture.finish(*finishes) == []
        assert await fixture.harness.contents() == before

    def _end(
        self, fixture: StoreFixture, job: ClaimedJob, kind: FinishKind, **fields: Any
    ) -> Finish:
        successor = fixture.next_job(job) if kind == "continue" else None
        return fixture.ending(job, kind, next=successor, **fields)

    async def test_a_process_that_claims_its_own_job_again_cannot_finish_its_first_attempt(
        self, fixture: StoreFixture
    ) -> None:
        first = await fixture.start_running(worker=WORKER)
        await _reap(fixture)
        (second,) = await fixture.claim(worker=WORKER)
        assert not await fixture.finish_as(first, "complete")
        assert await fixture.finish_as(second, "complete")

    async def test_a_repeated_completion_is_not_accepted_but_known_as_ones_own(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        assert await fixture.finish_as(job, "complete", output="1")
        before = await fixture.harness.contents()
        assert not await fixture.finish_as(job, "complete", output="2")
        assert await fixture.harness.contents() == before
        stand = await fixture.stand(job)
        assert (stand.standing, stand.state) == ("done", "completed")

    async def test_an_expired_lease_that_nobody_reaped_may_still_complete(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        fixture.pass_time(ms=2 * LEASE_MS)
        assert await fixture.finish_as(job, "complete")

    async def test_an_expired_lease_that_nobody_reaped_may_be_renewed(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        fixture.pass_time(ms=2 * LEASE_MS)
        await fixture.run(fixture.store.leases.renew([job.token], fixture.now))
        page = await fixture.run(fixture.store.leases.reap(100, 3, now=fixture.now))
        assert page.reaped == []

    async def test_a_worker_that_lost_a_job_learns_what_became_of_it(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        assert (await fixture.stand(job)).standing == "held"
        await _reap(fixture)
        assert (await fixture.stand(job)).standing == "free"
        (again,) = await fixture.claim()
        assert (await fixture.stand(job)).standing == "taken"
        await fixture.finish_as(again, "complete")
        stand = await fixture.stand(job)
        assert (stand.standing, stand.state) == ("ended", "completed")
        await fixture.run(fixture.store.chains.delete([job.chain_id], fixture.now))
        stand = await fixture.stand(job)
        assert (stand.standing, stand.state) == ("gone", None)

    async def test_a_job_cancelled_from_outside_stands_as_ended(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        await fixture.run(fixture.store.jobs.end([Ending(job.id, "cancelled")], fixture.now))
        assert not await fixture.finish_as(job, "complete")
        stand = await fixture.stand(job)
        assert (stand.standing, stand.state) == ("ended", "cancelled")

    async def test_a_token_does_not_outlive_a_redrive(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        await fixture.finish_as(job, "fail")
        assert (await fixture.stand(job)).standing == "done"
        await fixture.run(fixture.store.jobs.redrive([job.id], now=fixture.now))
        assert (await fixture.stand(job)).standing == "free"
        assert not await fixture.finish_as(job, "complete")

    async def test_many_pairs_are_answered_at_once(self, fixture: StoreFixture) -> None:
        await fixture.start_all([fixture.job(), fixture.job()])
        first, second = await fixture.claim(MAIL)
        await fixture.finish_as(second, "snooze")
        unknown = fixture.new_id()
        pairs = [Held(job, first.token) for job in (first.id, second.id, unknown)]
        stands = await fixture.run(fixture.store.jobs.stand(pairs))
        assert {each.id: each.standing for each in stands} == {
            first.id: "held",
            second.id: "free",
            unknown: "gone",
        }

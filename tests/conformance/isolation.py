"""Transactions: one that is rolled back leaves nothing in any table, one that commits leaves everything.

For stores that lock rows rather than everything: what one transaction holds does not hinder the others.
"""

from __future__ import annotations

import pytest

from holdfast.core.lifecycle import Move, sources
from holdfast.core.records import STATES, ClaimedJob, FinishKind, NewKey, State
from holdfast.core.subscriptions import Subscription
from holdfast.core.worker_presence import WorkerSign
from holdfast.storage.operation import Op
from tests.conformance.harness import LEASE_MS, MAIL, MILLISECOND, Conformance, StoreFixture
from tests.conformance.lifecycle import MAKE, MOVES, reach


def _touch_everything_else(fixture: StoreFixture) -> Op[None]:
    """Write to the tables that no move of a job touches."""
    store = fixture.store
    yield from store.chains.claim_keys([NewKey(MAIL, "k", fixture.new_id())], fixture.now)
    yield from store.events.subscribe([Subscription("order.placed", "mail")])
    sign = WorkerSign("w", "w", "host", 1, "1.0", 1, "[]", "{}", None)
    yield from store.workers.sign(sign, fixture.now)
    yield from store.workers.set_type(MAIL, paused=True, by="ana", now=fixture.now)
    yield from store.schema.identify(fixture.new_id())


class AtomicityConformance(Conformance):
    """All or nothing, for every operation."""

    @pytest.mark.parametrize("move", MOVES)
    async def test_a_move_that_is_rolled_back_never_happened(
        self, fixture: StoreFixture, move: Move
    ) -> None:
        subject = await fixture.run(reach(fixture, sources(move)[0]))
        before = await fixture.harness.contents()
        transaction = await fixture.harness.begin()
        assert await transaction.run(MAKE[move](fixture, subject))
        await transaction.rollback()
        assert await fixture.harness.contents() == before

    @pytest.mark.parametrize("state", STATES)
    async def test_a_whole_life_that_is_rolled_back_leaves_nothing(
        self, fixture: StoreFixture, state: State
    ) -> None:
        before = await fixture.harness.contents()
        transaction = await fixture.harness.begin()
        await transaction.run(reach(fixture, state))
        await transaction.run(_touch_everything_else(fixture))
        await transaction.rollback()
        assert await fixture.harness.contents() == before

    async def test_what_is_committed_is_there(self, fixture: StoreFixture) -> None:
        transaction = await fixture.harness.begin()
        subject = await transaction.run(reach(fixture, "completed"))
        await transaction.run(_touch_everything_else(fixture))
        await transaction.commit()
        assert await fixture.read(subject.record.id) == subject.record
        assert len(await fixture.run(fixture.store.workers.settings())) == 1

    async def test_an_operation_that_fails_halfway_leaves_nothing(
        self, fixture: StoreFixture
    ) -> None:
        job = fixture.job()

        def fail_halfway() -> Op[None]:
            yield from fixture.store.jobs.insert([job], now=fixture.now)
            raise ArithmeticError("halfway")

        before = await fixture.harness.contents()
        with pytest.raises(ArithmeticError):
            await fixture.run(fail_halfway())
        assert await fixture.harness.contents() == before


class RowLockConformance(Conformance):
    """Claims, flushes and reaps skip what is locked and take the rest."""

    async def test_a_claim_skips_locked_rows(self, fixture: StoreFixture) -> None:
        locked, free = await fixture.start(), await fixture.start()
        transaction = await fixture.harness.begin()
        await transaction.run(fixture.store.jobs.lock([locked.id]))
        assert [job.id for job in await fixture.claim()] == [free.id]
        await transaction.rollback()
        assert [job.id for job in await fixture.claim()] == [locked.id]

    async def test_a_claim_skips_what_an_open_claim_has_taken(self, fixture: StoreFixture) -> None:
        first, second = await fixture.start(), await fixture.start()
        transaction = await fixture.harness.begin()
        (taken,) = await transaction.run(fixture.claim_op(limit=1, room=1))
        assert taken.id == first.id
        assert [job.id for job in await fixture.claim()] == [second.id]
        await transaction.commit()
        assert await fixture.claim() == []

    @pytest.mark.parametrize("kind", ["complete", "fail", "retry"])
    async def test_a_flush_skips_a_locked_row_and_takes_the_others(
        self, fixture: StoreFixture, kind: FinishKind
    ) -> None:
        await fixture.start_all([fixture.job() for _ in range(3)])
        jobs = await fixture.claim()
        transaction = await fixture.harness.begin()
        await transaction.run(fixture.store.jobs.lock([jobs[1].id]))
        finishes = [fixture.finish_of(job, kind) for job in jobs]
        finished = await fixture.finish(*finishes)
        assert {each.id for each in finished} == {jobs[0].id, jobs[2].id}
        assert (await fixture.lease_status(jobs[1])).lease == "held"
        await transaction.rollback()
        assert [each.id for each in await fixture.finish(finishes[1])] == [jobs[1].id]

    @pytest.mark.parametrize("kind", ["complete", "fail", "retry"])
    async def test_a_flush_does_not_wait_for_an_end_from_outside(
        self, fixture: StoreFixture, kind: FinishKind
    ) -> None:
        job = await fixture.start_running()
        transaction = await fixture.harness.begin()
        assert await transaction.run(fixture.store.chains.delete([job.chain_id], fixture.now))
        assert not await fixture.finish_as(job, kind)
        await transaction.commit()
        assert (await fixture.lease_status(job)).lease == "gone"

    async def test_a_trigger_skips_locked_rows(self, fixture: StoreFixture) -> None:
        locked, free = await fixture.start(), await fixture.start()
        transaction = await fixture.harness.begin()
        await transaction.run(fixture.store.jobs.lock([locked.id]))
        ids = [locked.id, free.id]
        triggered = await fixture.run(fixture.store.jobs.trigger(ids, fixture.now))
        assert [each.id for each in triggered] == [free.id]

    async def test_waiting_events_are_delivered_by_one_of_two(self, fixture: StoreFixture) -> None:
        first, second = await fixture.start(), await fixture.start()
        transaction = await fixture.harness.begin()
        (mine,) = await transaction.run(fixture.store.events.waiting(MAIL, 1))
        assert mine.id == first.id
        (other,) = await fixture.run(fixture.store.events.waiting(MAIL, 10))
        assert other.id == second.id


class LockedReapConformance(Conformance):
    """A reaper is not stopped by locked rows."""

    async def _claim_three(self, fixture: StoreFixture) -> list[ClaimedJob]:
        await fixture.start_all([fixture.job() for _ in range(3)])
        return await fixture.claim()

    async def test_a_locked_row_stays_with_its_lease_and_is_reaped_later(
        self, fixture: StoreFixture
    ) -> None:
        jobs = await self._claim_three(fixture)
        fixture.pass_time(ms=LEASE_MS)
        transaction = await fixture.harness.begin()
        await transaction.run(fixture.store.jobs.lock([jobs[1].id]))
        page = await fixture.reap()
        assert {each.id for each in page.reaped} == {jobs[0].id, jobs[2].id}
        (lease,) = await fixture.run(fixture.store.leases.page(10))
        assert (lease.token, lease.jobs) == (jobs[1].token, 1)
        assert (await fixture.lease_status(jobs[1])).lease == "held"
        await transaction.rollback()
        assert [each.id for each in (await fixture.reap()).reaped] == [jobs[1].id]
        assert await fixture.run(fixture.store.leases.page(10)) == []

    async def test_locked_rows_of_two_leases_stay_each_with_its_own(
        self, fixture: StoreFixture
    ) -> None:
        jobs = [await fixture.start_running(type) for type in ("a", "b")]
        fixture.pass_time(ms=LEASE_MS)
        transaction = await fixture.harness.begin()
        await transaction.run(fixture.store.jobs.lock([job.id for job in jobs]))
        assert (await fixture.reap()).reaped == []
        leases = await fixture.run(fixture.store.leases.page(10))
        assert {each.token: each.jobs for each in leases} == {job.token: 1 for job in jobs}
        await transaction.rollback()
        assert {each.id for each in (await fixture.reap()).reaped} == {job.id for job in jobs}

    async def test_a_job_that_its_holder_ends_meanwhile_is_not_reaped(
        self, fixture: StoreFixture
    ) -> None:
        jobs = await self._claim_three(fixture)
        fixture.pass_time(ms=LEASE_MS)
        transaction = await fixture.harness.begin()
        finish = fixture.finish_of(jobs[0], "complete")
        assert await transaction.run(fixture.store.jobs.finish([finish], now=fixture.now))
        page = await fixture.reap()
        assert {each.id for each in page.reaped} == {jobs[1].id, jobs[2].id}
        await transaction.commit()
        page = await fixture.reap()
        assert (page.reaped, page.leases) == ([], 1)
        assert await fixture.run(fixture.store.leases.page(10)) == []
        assert (await fixture.read(jobs[0].id)).state == "completed"

    async def test_a_reaper_pages_past_leases_that_it_cannot_empty(
        self, fixture: StoreFixture
    ) -> None:
        jobs = []
        for number in range(3):
            jobs.append(await fixture.start_running(f"type-{number}"))
            fixture.pass_time(seconds=1)
        fixture.pass_time(ms=LEASE_MS)
        transaction = await fixture.harness.begin()
        await transaction.run(fixture.store.jobs.lock([jobs[0].id]))
        first = await fixture.reap(limit=1)
        assert (first.reaped, first.leases) == ([], 1)
        assert first.last == (jobs[0].claimed_at + LEASE_MS * MILLISECOND, jobs[0].token)
        second = await fixture.reap(limit=1, after=first.last)
        assert [each.id for each in second.reaped] == [jobs[1].id]
        third = await fixture.reap(limit=1, after=second.last)
        assert [each.id for each in third.reaped] == [jobs[2].id]

    async def test_a_lease_that_another_reaper_has_locked_is_skipped(
        self, fixture: StoreFixture
    ) -> None:
        first, second = await fixture.start_running("a"), await fixture.start_running("b")
        fixture.pass_time(ms=LEASE_MS)
        transaction = await fixture.harness.begin()
        op = fixture.store.leases.reap(1, 3, now=fixture.now)
        assert [each.id for each in (await transaction.run(op)).reaped] == [first.id]
        assert [each.id for each in (await fixture.reap()).reaped] == [second.id]
        await transaction.commit()
        assert (await fixture.reap()).leases == 0

    async def test_a_lease_that_is_being_renewed_is_skipped(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        fixture.pass_time(ms=LEASE_MS)
        transaction = await fixture.harness.begin()
        await transaction.run(fixture.store.leases.renew([job.token], fixture.now))
        assert (await fixture.reap()).reaped == []
        await transaction.commit()
        assert (await fixture.reap()).reaped == []
        assert (await fixture.lease_status(job)).lease == "held"

"""Leases: how long they last, what they hold, how they are given back, and that no write passes without their token."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from holdfast.commands.retention import FIRST_ID
from holdfast.core.records import (
    ClaimedJob,
    Ending,
    Finish,
    FinishKind,
    Held,
    JobRef,
    NewProgress,
    ProgressRecord,
)
from tests.conformance.harness import (
    LEASE_MS,
    MAIL,
    MILLISECOND,
    SECOND,
    WORKER,
    Conformance,
    StoreFixture,
)


class LeaseConformance(Conformance):
    """One lease per claim, renewed by its token."""

    async def test_a_lease_lasts_from_its_claim_for_its_time(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        record = await fixture.read(job.id)
        assert record.worker == WORKER
        assert record.lease_expires_at == fixture.now + LEASE_MS * MILLISECOND
        assert record.started_at == fixture.now

    async def test_a_renewed_lease_lasts_from_its_renewal(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        fixture.pass_time(seconds=20)
        assert await fixture.run(fixture.store.leases.renew([job.token], fixture.now)) == {
            job.token
        }
        record = await fixture.read(job.id)
        assert record.lease_expires_at == fixture.now + LEASE_MS * MILLISECOND
        assert record.started_at == fixture.now - 20 * SECOND

    async def test_unknown_tokens_are_not_renewed(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        tokens = [fixture.new_id(), job.token]
        assert await fixture.run(fixture.store.leases.renew(tokens, fixture.now)) == {job.token}

    async def test_nothing_to_renew_is_no_error(self, fixture: StoreFixture) -> None:
        assert await fixture.run(fixture.store.leases.renew([], fixture.now)) == set()

    async def test_leases_are_listed_the_soonest_to_end_first(self, fixture: StoreFixture) -> None:
        long = await fixture.start_running(lease_ms=90_000)
        await fixture.start_all([fixture.job(), fixture.job()])
        short, _ = await fixture.claim(lease_ms=30_000, worker="worker-2")
        leases = await fixture.run(fixture.store.leases.page(10))
        assert [(lease.token, lease.worker, lease.jobs) for lease in leases] == [
            (short.token, "worker-2", 2),
            (long.token, WORKER, 1),
        ]
        assert [lease.claimed_at for lease in leases] == [fixture.now, fixture.now]
        (mine,) = await fixture.run(fixture.store.leases.page(10, WORKER))
        assert mine.token == long.token
        assert len(await fixture.run(fixture.store.leases.page(1))) == 1

    async def test_a_lease_counts_the_jobs_that_it_still_holds(self, fixture: StoreFixture) -> None:
        await fixture.start_all([fixture.job(), fixture.job()])
        done, _ = await fixture.claim()
        assert await fixture.finish_as(done, "complete")
        (lease,) = await fixture.run(fixture.store.leases.page(10))
        assert lease.jobs == 1

    async def test_a_lease_does_not_count_what_another_worker_took_over(
        self, fixture: StoreFixture
    ) -> None:
        lost = await fixture.finish_new("release")
        (taken,) = await fixture.claim(worker="worker-2")
        leases = await fixture.run(fixture.store.leases.page(10))
        assert {each.token: each.jobs for each in leases} == {lost.token: 0, taken.token: 1}

    async def test_of_the_leases_that_are_named_those_go_that_hold_nothing(
        self, fixture: StoreFixture
    ) -> None:
        done = await fixture.finish_new("complete", "done")
        unnamed = await fixture.finish_new("complete", "unnamed")
        held = await fixture.start_running("held")
        lost = await fixture.finish_new("release", "lost")
        (taken,) = await fixture.claim("lost", worker="worker-2")
        tokens = [done.token, held.token, lost.token]
        await fixture.run(fixture.store.leases.free(tokens))
        left = {each.token for each in await fixture.run(fixture.store.leases.page(10))}
        assert left == {unnamed.token, held.token, taken.token}


class HealingConformance(Conformance):
    """What a clock that ran ahead has dated."""

    async def test_a_lease_that_ends_too_late_by_the_present_clock_begins_again(
        self, fixture: StoreFixture
    ) -> None:
        right = await fixture.start_running("right")
        fixture.pass_time(seconds=3_600)
        ahead = await fixture.start_running("ahead")
        fixture.pass_time(seconds=-3_600)
        assert await fixture.run(fixture.store.leases.heal(fixture.now)) == 1
        for each in (right, ahead):
            record = await fixture.read(each.id)
            assert record.lease_expires_at == fixture.now + LEASE_MS * MILLISECOND

    @pytest.mark.parametrize("seconds", [1, 60])
    async def test_clocks_may_differ_by_a_minute(self, fixture: StoreFixture, seconds: int) -> None:
        fixture.pass_time(seconds=seconds)
        await fixture.start_running()
        fixture.pass_time(seconds=-seconds)
        before = await fixture.harness.contents()
        assert await fixture.run(fixture.store.leases.heal(fixture.now)) == 0
        assert await fixture.harness.contents() == before

    async def test_jobs_are_due_as_long_from_now_as_they_were_to_wait(
        self, fixture: StoreFixture
    ) -> None:
        right = fixture.now
        planned = await fixture.start("planned", at=right + 7_200 * SECOND)
        waiting = await fixture.finish_new("retry", "waiting", delay_ms=7_200_000)
        blocker = await fixture.start("blocker")
        blocked = await fixture.start_blocked(blocker.chain_id)
        fixture.pass_time(seconds=60)
        near = await fixture.start("near")
        close = await fixture.finish_new("retry", "close", delay_ms=5_000)
        ahead = fixture.pass_time(seconds=3_600)
        new = await fixture.start("new")
        soon = await fixture.start("soon", at=right + 1_800 * SECOND)
        running = await fixture.start_running("running")
        retried = await fixture.start_running("retried")
        snoozed = await fixture.start_running("snoozed")
        fixture.pass_time(seconds=100)
        assert await fixture.finish_as(retried, "retry", delay_ms=5_000)
        assert await fixture.finish_as(snoozed, "snooze", delay_ms=1_200_000)
        fixture.now = right
        page = await fixture.run(fixture.store.leases.heal_queue(FIRST_ID, right))
        assert (page.seen, page.healed) == (11, 4)
        found = {
            each.type: (await fixture.read(each.id)).available_at
            for each in (planned, waiting, near, close, new, soon, retried, running)
        }
        assert found == {
            "planned": right + 7_200 * SECOND,
            "waiting": right + 7_200 * SECOND,
            "near": right + 60 * SECOND,
            "close": right + 65 * SECOND,
            "new": right,
            "soon": right + 1_800 * SECOND,
            "retried": right + 5 * SECOND,
            "running": ahead,
        }
        # By its fence, which has milliseconds.
        due = (await fixture.read(snoozed.id)).available_at
        assert due is not None
        assert 0 <= due - right - 1_300 * SECOND < MILLISECOND
        assert (await fixture.read(blocked.id)).state == "blocked"

    async def test_what_a_clock_that_ran_ahead_took_and_gave_back_is_due_unless_it_was_planned(
        self, fixture: StoreFixture
    ) -> None:
        right = fixture.now
        await fixture.start("planned", at=right + 1_800 * SECOND)
        fixture.pass_time(seconds=3_600)
        new, again = [await fixture.start_running(each) for each in ("new", "again")]
        (planned,) = await fixture.claim("planned")
        fixture.pass_time(seconds=10)
        assert await fixture.finish_as(planned, "release")
        assert await fixture.finish_as(new, "release")
        assert await fixture.finish_as(again, "retry", delay_ms=0)
        fixture.now = right
        page = await fixture.run(fixture.store.leases.heal_queue(FIRST_ID, right))
        assert (page.seen, page.healed) == (3, 2)
        due = [(await fixture.read(each.id)).available_at for each in (planned, new, again)]
        assert due == [right + 1_800 * SECOND, right, right]

    async def test_a_queue_is_healed_in_pages(self, fixture: StoreFixture) -> None:
        right = fixture.now
        fixture.pass_time(seconds=3_600)
        await fixture.start_all([fixture.job() for _ in range(1_001)])
        first = await fixture.run(fixture.store.leases.heal_queue(FIRST_ID, right))
        assert (first.seen, first.healed) == (1_000, 1_000)
        second = await fixture.run(fixture.store.leases.heal_queue(first.last or "", right))
        assert (second.seen, second.healed) == (1, 1)


class HeldJobsConformance(Conformance):
    """What a worker holds by the store's word."""

    async def _read_held(self, fixture: StoreFixture, worker: str = WORKER) -> list[Held]:
        return await fixture.run(fixture.store.leases.held(worker))

    async def test_a_worker_holds_what_it_claimed_whether_it_knows_or_not(
        self, fixture: StoreFixture
    ) -> None:
        mine = await fixture.start_running("a")
        also_mine = await fixture.start_running("b")
        await fixture.start_running("c", worker="worker-2")
        held = await self._read_held(fixture)
        assert sorted(held, key=lambda each: each.id) == [
            Held(mine.id, mine.token),
            Held(also_mine.id, also_mine.token),
        ]

    async def test_what_ended_or_was_given_back_is_not_held(self, fixture: StoreFixture) -> None:
        await fixture.start_all([fixture.job() for _ in range(5)])
        done, retried, cancelled, deleted, kept = await fixture.claim()
        await fixture.finish(
            fixture.finish_of(done, "complete"), fixture.finish_of(retried, "retry")
        )
        await fixture.run(fixture.store.jobs.end([Ending(cancelled.id, "cancelled")], fixture.now))
        await fixture.run(fixture.store.chains.delete([deleted.chain_id], fixture.now))
        assert await self._read_held(fixture) == [Held(kept.id, kept.token)]

    async def test_what_another_worker_took_over_is_not_held(self, fixture: StoreFixture) -> None:
        await fixture.finish_new("release")
        (taken,) = await fixture.claim(worker="worker-2")
        assert await self._read_held(fixture) == []
        assert await self._read_held(fixture, "worker-2") == [Held(taken.id, taken.token)]


class GivingBackConformance(Conformance):
    """Leases that end before their time."""

    async def test_release_gives_back_everything_a_claim_holds(self, fixture: StoreFixture) -> None:
        jobs = [fixture.job("a"), fixture.job("b"), fixture.job("a")]
        await fixture.start_all(jobs)
        claimed = await fixture.claim("a", "b")
        await fixture.finish_as(claimed[2], "complete")
        fixture.pass_time(seconds=5)
        released = await fixture.run(fixture.store.leases.release([claimed[0].token]))
        assert set(released) == {JobRef(jobs[0].id, "a"), JobRef(jobs[1].id, "b")}
        assert await fixture.run(fixture.store.leases.page(10)) == []

    async def test_a_released_job_keeps_its_place_and_its_attempt(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        fixture.pass_time(seconds=5)
        await fixture.run(fixture.store.leases.release([job.token]))
        record = await fixture.read(job.id)
        assert (record.state, record.attempt, record.crashes) == ("pending", 0, 0)
        assert record.available_at == job.available_at
        assert record.fence == job.fence
        assert await fixture.attempts(job.id) == []

    async def test_releasing_an_unknown_token_is_no_error(self, fixture: StoreFixture) -> None:
        assert await fixture.run(fixture.store.leases.release([fixture.new_id()])) == []

    async def test_releasing_one_claim_leaves_the_others_theirs(
        self, fixture: StoreFixture
    ) -> None:
        given_back, kept = await fixture.start_running("a"), await fixture.start_running("b")
        released = await fixture.run(fixture.store.leases.release([given_back.token]))
        assert released == [JobRef(given_back.id, "a")]
        (lease,) = await fixture.run(fixture.store.leases.page(10))
        assert (lease.token, lease.jobs) == (kept.token, 1)

    async def test_a_job_taken_over_is_not_given_back_with_its_old_claim(
        self, fixture: StoreFixture
    ) -> None:
        lost = await fixture.finish_new("release")
        (held,) = await fixture.claim(worker="worker-2")
        assert await fixture.run(fixture.store.leases.release([lost.token])) == []
        assert (await fixture.lease_status(held)).lease == "held"

    async def test_only_leases_that_hold_nothing_are_freed(self, fixture: StoreFixture) -> None:
        done, kept = await fixture.start_running("a"), await fixture.start_running("b")
        not_named = await fixture.finish_new("complete", "c")
        await fixture.finish_as(done, "complete")
        await fixture.run(fixture.store.leases.free([done.token, kept.token]))
        leases = await fixture.run(fixture.store.leases.page(10))
        assert {each.token for each in leases} == {kept.token, not_named.token}

    async def test_a_flush_removes_the_leases_it_is_told_are_over(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.finish_new("complete")
        await fixture.run(fixture.store.jobs.finish([], [job.token], now=fixture.now))
        assert await fixture.run(fixture.store.leases.page(10)) == []

    async def test_a_lease_that_is_said_to_be_over_stays_where_a_failover_took_an_end_back(
        self, fixture: StoreFixture
    ) -> None:
        held = await fixture.start_running("a")
        await fixture.run(fixture.store.jobs.finish([], [held.token], now=fixture.now))
        left = {each.token for each in await fixture.run(fixture.store.leases.page(10))}
        # Nothing takes back what was committed to a file.
        assert left == ({held.token} if fixture.store.dialect == "postgresql" else set())


def _word(job: ClaimedJob, fraction: float, note: str = "") -> NewProgress:
    return NewProgress(job.id, job.token, job.fence, fraction, note)


class ProgressConformance(Conformance):
    """Only the attempt that holds a job is believed, and only while it does."""

    async def _say(self, fixture: StoreFixture, *progress: NewProgress) -> None:
        await fixture.run(fixture.store.leases.report(progress, fixture.now))

    async def _read(self, fixture: StoreFixture, *ids: str) -> list[ProgressRecord]:
        return await fixture.run(fixture.store.leases.progress(ids))

    async def test_the_last_word_counts(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        await self._say(fixture, _word(job, 0.25, "reading"))
        fixture.pass_time(seconds=1)
        await self._say(fixture, _word(job, 0.75, "writing"))
        assert await self._read(fixture, job.id) == [
            ProgressRecord(job.id, job.fence, 0.75, "writing", fixture.now)
        ]

    async def test_a_stale_token_is_not_believed(self, fixture: StoreFixture) -> None:
        lost = await fixture.finish_new("release")
        (held,) = await fixture.claim()
        await self._say(fixture, _word(held, 0.5), _word(lost, 0.9))
        (record,) = await self._read(fixture, held.id)
        assert (record.fence, record.fraction) == (held.fence, 0.5)

    async def test_the_next_attempt_begins_without_a_word(self, fixture: StoreFixture) -> None:
        first = await fixture.start_running()
        await self._say(fixture, _word(first, 0.5))
        await fixture.finish_as(first, "retry")
        assert await self._read(fixture, first.id) == []
        (second,) = await fixture.claim()
        assert await self._read(fixture, first.id) == []
        await self._say(fixture, _word(second, 0.1))
        (record,) = await self._read(fixture, first.id)
        assert record.fraction == 0.1

    async def test_each_job_of_a_claim_speaks_for_itself(self, fixture: StoreFixture) -> None:
        await fixture.start_all([fixture.job() for _ in range(3)])
        first, second, silent = await fixture.claim()
        await self._say(fixture, _word(first, 0.5), _word(second, 0.7))
        said = await self._read(fixture, second.id, first.id, silent.id)
        assert [(each.id, each.fraction) for each in said] == [(first.id, 0.5), (second.id, 0.7)]
        assert [each.id for each in await self._read(fixture, second.id)] == [second.id]
        await fixture.run(fixture.store.leases.forget([_word(second, 0.7)]))
        said = await self._read(fixture, first.id, second.id)
        assert [each.id for each in said] == [first.id]

    async def test_an_ended_job_says_nothing_more(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        await self._say(fixture, _word(job, 0.5))
        await fixture.finish_as(job, "complete")
        assert await self._read(fixture, job.id) == []

    async def test_what_was_said_is_forgotten_unless_a_later_attempt_spoke(
        self, fixture: StoreFixture
    ) -> None:
        first = await fixture.start_running()
        await self._say(fixture, _word(first, 0.5))
        await fixture.finish_as(first, "retry")
        (second,) = await fixture.claim()
        await self._say(fixture, _word(second, 0.1))
        await fixture.run(fixture.store.leases.forget([_word(first, 0.5)]))
        assert len(await self._read(fixture, first.id)) == 1
        await fixture.run(fixture.store.leases.forget([_word(second, 0.1)]))
        assert await self._read(fixture, first.id) == []

    async def test_a_guarded_transaction_goes_on_while_it_is_busy(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        transaction = await fixture.harness.begin()
        await transaction.run(fixture.store.leases.guard(30_000))
        finish = fixture.finish_of(job, "complete")
        assert await transaction.run(fixture.store.jobs.finish([finish], now=fixture.now))
        await transaction.commit()
        assert (await fixture.lease_status(job)).lease == "done"


KINDS: tuple[FinishKind, ...] = get_args(FinishKind)


async def _taken_over(fixture: StoreFixture) -> tuple[ClaimedJob, ClaimedJob]:
    """A job as its first holder knows it, who lost it, and as its second holder does."""
    lost = await fixture.start_running()
    await fixture.lose_all()
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
        assert (await fixture.lease_status(lost)).lease == "taken"
        assert (await fixture.lease_status(held)).lease == "held"

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
        assert (await fixture.lease_status(held)).lease == "held"

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
            fixture.finish_of(held, "complete", output='"new"'),
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
        return fixture.finish_of(job, kind, next=successor, **fields)

    async def test_a_process_that_claims_its_own_job_again_cannot_finish_its_first_attempt(
        self, fixture: StoreFixture
    ) -> None:
        first = await fixture.start_running(worker=WORKER)
        await fixture.lose_all()
        (second,) = await fixture.claim(worker=WORKER)
        assert not await fixture.finish_as(first, "complete")
        assert await fixture.finish_as(second, "complete")

    async def test_a_repeated_completion_is_not_accepted_but_known_as_ones_own(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.finish_new("complete", output="1")
        before = await fixture.harness.contents()
        assert not await fixture.finish_as(job, "complete", output="2")
        assert await fixture.harness.contents() == before
        status = await fixture.lease_status(job)
        assert (status.lease, status.state) == ("done", "completed")

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
        assert (await fixture.reap()).reaped == []

    async def test_a_worker_that_lost_a_job_learns_what_became_of_it(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        assert (await fixture.lease_status(job)).lease == "held"
        await fixture.lose_all()
        assert (await fixture.lease_status(job)).lease == "free"
        (again,) = await fixture.claim()
        assert (await fixture.lease_status(job)).lease == "taken"
        await fixture.finish_as(again, "complete")
        status = await fixture.lease_status(job)
        assert (status.lease, status.state) == ("ended", "completed")
        await fixture.run(fixture.store.chains.delete([job.chain_id], fixture.now))
        status = await fixture.lease_status(job)
        assert (status.lease, status.state) == ("gone", None)

    async def test_a_job_cancelled_from_outside_stands_as_ended(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        await fixture.run(fixture.store.jobs.end([Ending(job.id, "cancelled")], fixture.now))
        assert not await fixture.finish_as(job, "complete")
        status = await fixture.lease_status(job)
        assert (status.lease, status.state) == ("ended", "cancelled")

    async def test_a_token_does_not_outlive_a_redrive(self, fixture: StoreFixture) -> None:
        job = await fixture.finish_new("fail")
        assert (await fixture.lease_status(job)).lease == "done"
        await fixture.run(fixture.store.jobs.redrive([job.id], now=fixture.now))
        assert (await fixture.lease_status(job)).lease == "free"
        assert not await fixture.finish_as(job, "complete")

    async def test_many_pairs_are_answered_at_once(self, fixture: StoreFixture) -> None:
        await fixture.start_all([fixture.job(), fixture.job()])
        first, second = await fixture.claim(MAIL)
        await fixture.finish_as(second, "snooze")
        for kind in ("complete", "fail"):
            await fixture.finish_new(kind, "other")
        unknown = fixture.new_id()
        pairs = [Held(job, first.token) for job in (first.id, second.id, unknown)]
        statuses = await fixture.run(fixture.store.jobs.lease_status(pairs))
        assert len(statuses) == len(pairs)
        assert {each.id: each.lease for each in statuses} == {
            first.id: "held",
            second.id: "free",
            unknown: "gone",
        }

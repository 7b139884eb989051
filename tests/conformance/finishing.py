"""Finishing: what each kind of end writes, by a worker's flush or from outside, and taking failed jobs back."""

from __future__ import annotations

from typing import Literal

import pytest

from holdfast.core.records import (
    AttemptRecord,
    EndedJob,
    Ending,
    FailingJob,
    Finished,
    FinishKind,
    JobRef,
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
from tests.conformance.workers import counters_equal_rows


class FinishingConformance(Conformance):
    """How one attempt ends."""

    async def test_a_completed_job_keeps_its_output_and_its_times(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        started = fixture.pass_time(ms=10)
        finished = fixture.pass_time(ms=20)
        done = await fixture.finish(
            fixture.finish_of(job, "complete", output='{"sent": true}', started_at=started)
        )
        assert done == [Finished(job.id, job.type, awaited=False)]
        record = await fixture.read(job.id)
        assert (record.state, record.output, record.error) == ("completed", '{"sent": true}', None)
        assert (record.started_at, record.finished_at) == (started, finished)
        assert (record.attempt, record.crashes, record.fence) == (1, 0, job.fence)
        assert (record.worker, record.lease_expires_at) == (WORKER, None)
        assert (record.continued, record.available_at) == (False, None)
        assert await fixture.attempts(job.id) == []

    async def test_a_failed_job_keeps_its_error_and_its_history(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        ended = fixture.pass_time(ms=20)
        assert await fixture.finish_as(
            job, "fail", error="Boom: no", fingerprint="boom", started_at=job.claimed_at
        )
        record = await fixture.read(job.id)
        assert (record.state, record.error, record.fingerprint) == ("failed", "Boom: no", "boom")
        assert await fixture.attempts(job.id) == [
            AttemptRecord(
                job.id, 1, job.fence, "fail", WORKER, job.claimed_at, ended, error="Boom: no"
            )
        ]

    async def test_a_job_that_cancels_itself_keeps_its_reason(self, fixture: StoreFixture) -> None:
        job = await fixture.finish_new("cancel", error="Cancelled: not needed")
        record = await fixture.read(job.id)
        assert (record.state, record.error) == ("cancelled", "Cancelled: not needed")
        assert await fixture.attempts(job.id) == []

    async def test_a_retried_job_waits_for_its_delay_and_remembers_why(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        ended = fixture.pass_time(ms=20)
        assert await fixture.finish_as(
            job, "retry", delay_ms=1_500, error="Boom: later", started_at=job.claimed_at
        )
        record = await fixture.read(job.id)
        assert (record.state, record.attempt) == ("pending", 1)
        assert record.available_at == ended + 1_500 * MILLISECOND
        assert (record.worker, record.lease_expires_at, record.error) == (None, None, None)
        assert await fixture.attempts(job.id) == [
            AttemptRecord(
                job.id, 1, job.fence, "retry", WORKER, job.claimed_at, ended, error="Boom: later"
            )
        ]

    async def test_a_snoozed_job_waits_without_a_trace(self, fixture: StoreFixture) -> None:
        job = await fixture.finish_new("snooze", delay_ms=30_000)
        record = await fixture.read(job.id)
        assert (record.state, record.attempt) == ("pending", 0)
        assert record.available_at == fixture.now + 30 * SECOND
        assert await fixture.attempts(job.id) == []

    async def test_a_snooze_with_an_error_is_remembered_under_the_attempt_that_ran(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.finish_new("snooze", delay_ms=30_000, error="Busy: full")
        (attempt,) = await fixture.attempts(job.id)
        assert (attempt.attempt, attempt.kind, attempt.error) == (1, "snooze", "Busy: full")
        assert (await fixture.read(job.id)).attempt == 0

    async def test_a_released_job_keeps_its_place(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        fixture.pass_time(seconds=5)
        assert await fixture.finish_as(job, "release", delay_ms=30_000)
        record = await fixture.read(job.id)
        assert (record.state, record.attempt) == ("pending", 0)
        assert record.available_at == job.available_at
        assert await fixture.attempts(job.id) == []

    async def test_history_grows_with_every_failed_attempt(self, fixture: StoreFixture) -> None:
        await fixture.start()
        last: FinishKind = "fail"
        for kind in ("retry", "retry", last):
            (job,) = await fixture.claim()
            await fixture.finish(fixture.finish_of(job, kind, error=f"Boom: {job.attempt}"))
        history = await fixture.attempts(job.id)
        assert [(each.attempt, each.kind, each.error) for each in history] == [
            (1, "retry", "Boom: 1"),
            (2, "retry", "Boom: 2"),
            (3, "fail", "Boom: 3"),
        ]
        fences = [each.fence for each in history]
        assert fences == sorted(set(fences))

    async def test_a_retry_without_an_error_is_remembered_too(self, fixture: StoreFixture) -> None:
        job = await fixture.finish_new("retry")
        assert [each.kind for each in await fixture.attempts(job.id)] == ["retry"]


class FlushConformance(Conformance):
    """Many ends in one statement."""

    async def test_one_flush_takes_every_kind(self, fixture: StoreFixture) -> None:
        kinds: list[FinishKind] = [
            "complete",
            "continue",
            "fail",
            "cancel",
            "retry",
            "snooze",
            "release",
        ]
        await fixture.start_all([fixture.job() for _ in kinds])
        claimed = await fixture.claim()
        finishes = [
            fixture.finish_of(job, kind, next=fixture.next_job(job) if kind == "continue" else None)
            for job, kind in zip(claimed, kinds, strict=True)
        ]
        finished = await fixture.finish(*finishes)
        assert {each.id for each in finished} == {job.id for job in claimed}
        states = [(await fixture.read(job.id)).state for job in claimed]
        assert states == [
            "completed",
            "completed",
            "failed",
            "cancelled",
            "pending",
            "pending",
            "pending",
        ]
        await fixture.run(counters_equal_rows(fixture))

    async def test_what_was_lost_does_not_hinder_the_others(self, fixture: StoreFixture) -> None:
        await fixture.start_all([fixture.job(), fixture.job()])
        lost, held = await fixture.claim()
        await fixture.run(fixture.store.chains.delete([lost.chain_id], fixture.now))
        finished = await fixture.finish(
            fixture.finish_of(lost, "complete"), fixture.finish_of(held, "complete")
        )
        assert [each.id for each in finished] == [held.id]

    async def test_an_empty_flush_writes_nothing(self, fixture: StoreFixture) -> None:
        before = await fixture.harness.contents()
        assert await fixture.finish() == []
        assert await fixture.harness.contents() == before

    @pytest.mark.parametrize("kind", ["complete", "continue", "fail", "cancel", "retry", "release"])
    async def test_a_job_that_others_wait_for_is_taken_only_when_asked(
        self, fixture: StoreFixture, kind: FinishKind
    ) -> None:
        await fixture.start_all([fixture.job(), fixture.job()])
        awaited, plain = await fixture.claim()
        await fixture.run(fixture.store.blockers.wait_on([awaited.id]))
        finishes = [
            fixture.finish_of(job, kind, next=fixture.next_job(job) if kind == "continue" else None)
            for job in (awaited, plain)
        ]
        assert [each.id for each in await fixture.finish(*finishes)] == [plain.id]
        assert (await fixture.lease_status(awaited)).lease == "held"
        assert await fixture.finish(finishes[0], awaited=True) == [
            Finished(awaited.id, awaited.type, awaited=True)
        ]


class ContinuingConformance(Conformance):
    """The job that follows is written with the end of the one before."""

    async def test_the_successor_is_written_with_its_predecessors_end(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        ended = fixture.pass_time(seconds=1)
        successor = fixture.next_job(
            job, "ship", input='{"order": 1}', priority=2, trace="00-t-02", max_attempts=4
        )
        assert await fixture.finish_as(job, "continue", output='"charged"', next=successor)
        first, second = await fixture.run(fixture.store.chains.jobs(job.chain_id))
        assert (first.state, first.continued, first.output) == ("completed", True, '"charged"')
        assert (second.id, second.state, second.chain_index) == (successor.id, "pending", 1)
        assert (second.type, second.input, second.priority) == ("ship", '{"order": 1}', 2)
        assert (second.trace, second.max_attempts, second.attempt) == ("00-t-02", 4, 0)
        assert (second.created_at, second.available_at) == (ended, ended)
        await fixture.run(counters_equal_rows(fixture))

    async def test_a_successor_may_be_planned_for_later(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        successor = fixture.next_job(job, at=fixture.now + SECOND)
        await fixture.finish_as(job, "continue", next=successor)
        record = await fixture.read(successor.id)
        assert (record.planned_at, record.available_at) == (successor.at, successor.at)
        assert await fixture.claim("next") == []

    async def test_a_successor_may_wait_for_chains(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        successor = fixture.next_job(job, blockers=1)
        await fixture.finish_as(job, "continue", next=successor)
        assert (await fixture.read(successor.id)).state == "blocked"

    async def test_a_job_that_waited_for_the_predecessor_waits_for_the_successor(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        await fixture.run(fixture.store.blockers.wait_on([job.id]))
        successor = fixture.next_job(job)
        await fixture.finish(fixture.finish_of(job, "continue", next=successor), awaited=True)
        (claimed,) = await fixture.claim("next")
        assert await fixture.finish(fixture.finish_of(claimed, "complete")) == []
        (finished,) = await fixture.finish(fixture.finish_of(claimed, "complete"), awaited=True)
        assert finished.awaited

    async def test_a_place_in_a_chain_is_taken_once(self, fixture: StoreFixture) -> None:
        job = await fixture.finish_new("continue")
        rival = fixture.next_job(job)
        with pytest.raises(Exception, match=r"(?i)unique"):
            await fixture.run(fixture.store.jobs.insert([rival], now=fixture.now))
        assert [each.id for each in await fixture.read_all(chain=job.chain_id)][-1] == job.id
        assert len(await fixture.read_all(chain=job.chain_id)) == 2


EndState = Literal["completed", "failed", "cancelled"]


class EndingConformance(Conformance):
    """Cancelling, completing and failing from outside takes effect at once."""

    async def _end(self, fixture: StoreFixture, *endings: Ending) -> list[EndedJob]:
        return await fixture.run(fixture.store.jobs.end(endings, fixture.now))

    @pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
    async def test_a_running_job_is_ended_over_its_workers_head(
        self, fixture: StoreFixture, state: EndState
    ) -> None:
        job = await fixture.start_running()
        ended_at = fixture.pass_time(seconds=1)
        ending = Ending(job.id, state, output="1", error="why", fingerprint="print")
        assert await self._end(fixture, ending) == [
            EndedJob(job.id, job.chain_id, MAIL, was="running", worker=WORKER, awaited=False)
        ]
        record = await fixture.read(job.id)
        assert (record.state, record.output, record.error) == (state, "1", "why")
        assert (record.fingerprint, record.worker) == ("print", WORKER)
        assert (record.attempt, record.fence) == (1, job.fence)
        assert (record.started_at, record.finished_at) == (job.claimed_at, ended_at)
        assert await fixture.run(fixture.store.leases.held(WORKER)) == []

    async def test_a_waiting_job_is_ended_without_a_worker(self, fixture: StoreFixture) -> None:
        pending = await fixture.start()
        blocked = await fixture.start_blocked(pending.id, type="blocked")
        ended = await self._end(
            fixture, Ending(pending.id, "completed"), Ending(blocked.id, "cancelled")
        )
        assert {(each.id, each.was, each.worker) for each in ended} == {
            (pending.id, "pending", None),
            (blocked.id, "blocked", None),
        }
        record = await fixture.read(pending.id)
        assert (record.started_at, record.worker) == (None, None)
        await fixture.run(counters_equal_rows(fixture))

    async def test_a_job_that_is_not_live_stays_as_it_is(self, fixture: StoreFixture) -> None:
        job = await fixture.finish_new("complete", output="1")
        before = await fixture.harness.contents()
        endings = [Ending(job.id, "failed"), Ending(fixture.new_id(), "failed")]
        assert await self._end(fixture, *endings) == []
        assert await fixture.harness.contents() == before

    async def test_an_end_says_whether_others_wait(self, fixture: StoreFixture) -> None:
        job = await fixture.start()
        await fixture.run(fixture.store.blockers.wait_on([job.id]))
        (ended,) = await self._end(fixture, Ending(job.id, "cancelled"))
        assert ended.awaited

    async def test_a_chain_may_be_continued_from_outside(self, fixture: StoreFixture) -> None:
        job = await fixture.start()
        await fixture.run(fixture.store.blockers.wait_on([job.id]))
        successor = fixture.next_job(job, input="2", priority=1)
        await self._end(fixture, Ending(job.id, "completed", output="1", next=successor))
        first, second = await fixture.run(fixture.store.chains.jobs(job.id))
        assert (first.state, first.continued) == ("completed", True)
        assert (second.id, second.state, second.input) == (successor.id, "pending", "2")
        (claimed,) = await fixture.claim("next", priorities=[1])
        (finished,) = await fixture.finish(fixture.finish_of(claimed, "complete"), awaited=True)
        assert finished.awaited, "a waiter of the chain still waits"
        await fixture.run(counters_equal_rows(fixture))

    async def test_any_job_of_a_chain_may_be_continued_from_outside(
        self, fixture: StoreFixture
    ) -> None:
        first = await fixture.finish_new("continue")
        (second,) = await fixture.claim("next")
        third = fixture.next_job(second)
        await self._end(fixture, Ending(second.id, "completed", next=third))
        jobs = await fixture.run(fixture.store.chains.jobs(first.chain_id))
        assert [each.id for each in jobs] == [first.id, second.id, third.id]

    async def test_a_successor_of_a_job_that_is_not_live_is_not_written(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.finish_new("complete")
        ending = Ending(job.id, "completed", next=fixture.next_job(job))
        assert await self._end(fixture, ending) == []
        assert len(await fixture.run(fixture.store.chains.jobs(job.id))) == 1

    async def test_locking_tells_which_jobs_are_live(self, fixture: StoreFixture) -> None:
        live, running = await fixture.start("a"), await fixture.start_running("b")
        done = await fixture.finish_new("complete", "c")
        await fixture.start("d")
        ids = [done.id, running.id, live.id, fixture.new_id()]
        assert await fixture.run(fixture.store.jobs.lock(ids)) == {live.id, running.id}


class TriggeringConformance(Conformance):
    """A job planned for later is made due now."""

    async def test_a_planned_job_is_due_at_once(self, fixture: StoreFixture) -> None:
        job = await fixture.start(at=fixture.now + 3_600 * SECOND)
        triggered = await fixture.run(fixture.store.jobs.trigger([job.id], fixture.now))
        assert triggered == [JobRef(job.id, MAIL)]
        record = await fixture.read(job.id)
        assert (record.available_at, record.planned_at) == (fixture.now, job.at)
        assert [each.id for each in await fixture.claim()] == [job.id]

    async def test_only_pending_jobs_are_triggered(self, fixture: StoreFixture) -> None:
        running = await fixture.start_running("a")
        done = await fixture.finish_new("complete", "b")
        blocked = await fixture.start_blocked(running.id, type="c")
        before = await fixture.harness.contents()
        ids = [running.id, done.id, blocked.id, fixture.new_id()]
        assert await fixture.run(fixture.store.jobs.trigger(ids, fixture.now)) == []
        assert await fixture.harness.contents() == before


class RedrivingConformance(Conformance):
    """Dead letters go back into the queue with their history."""

    async def _fail_one(self, fixture: StoreFixture, type: str = MAIL) -> str:
        return (await fixture.finish_new("fail", type, error="Boom: no", fingerprint="boom")).id

    async def test_a_redriven_job_begins_anew(self, fixture: StoreFixture) -> None:
        await fixture.start(priority=2, max_attempts=1)
        (job,) = await fixture.claim(priorities=[2])
        fixture.pass_time(ms=LEASE_MS)
        await fixture.reap()
        redriven_at = fixture.pass_time(seconds=1)
        redriven = await fixture.run(fixture.store.jobs.redrive([job.id], now=fixture.now))
        assert redriven == [JobRef(job.id, MAIL)]
        record = await fixture.read(job.id)
        assert (record.state, record.attempt, record.crashes) == ("pending", 0, 0)
        assert (record.priority, record.max_attempts) == (2, 1)
        assert (record.available_at, record.fence) == (redriven_at, job.fence)
        assert (record.error, record.fingerprint, record.finished_at) == (None, None, None)
        await fixture.run(counters_equal_rows(fixture))

    async def test_the_fence_grows_and_the_history_stays(self, fixture: StoreFixture) -> None:
        job_id = await self._fail_one(fixture)
        before = await fixture.read(job_id)
        await fixture.run(fixture.store.jobs.redrive([job_id], now=fixture.now))
        (again,) = await fixture.claim()
        assert again.attempt == 1
        assert again.fence > before.fence
        await fixture.finish_as(again, "fail", error="Boom: again")
        history = await fixture.attempts(job_id)
        assert [(each.attempt, each.error) for each in history] == [
            (1, "Boom: no"),
            (1, "Boom: again"),
        ]

    async def test_a_failure_is_deferred_while_on_failed_is_to_be_called(
        self, fixture: StoreFixture
    ) -> None:
        store = fixture.store
        job_id, other_id = [await self._fail_one(fixture, each) for each in (MAIL, "other")]
        await fixture.run(store.on_failed.declare([MAIL]))
        deferred = await fixture.run(store.on_failed.defer([job_id, other_id], 2, fixture.now))
        assert deferred == [JobRef(job_id, MAIL)]
        assert await fixture.run(store.on_failed.of_job(job_id)) == FailingJob(
            1, "Boom: no", "boom"
        )
        await fixture.run(counters_equal_rows(fixture))
        (again,) = await fixture.claim()
        assert (again.id, again.attempt, bool(again.failing)) == (job_id, 2, True)
        await fixture.finish_as(again, "fail", error="Boom: no")
        assert await fixture.run(store.on_failed.defer([job_id], 1, fixture.now)) == []
        record = await fixture.read(job_id)
        assert (record.state, record.attempt) == ("failed", 1)
        await fixture.run(counters_equal_rows(fixture))

        await fixture.run(store.jobs.redrive([job_id], now=fixture.now))
        assert await fixture.run(store.on_failed.of_job(job_id)) is None
        (anew,) = await fixture.claim()
        assert not anew.failing

    async def test_redriven_jobs_are_spaced_in_the_order_of_their_ids(
        self, fixture: StoreFixture
    ) -> None:
        ids = [await self._fail_one(fixture, f"type-{number}") for number in range(3)]
        await fixture.run(fixture.store.jobs.redrive(ids[::-1], spacing_us=250, now=fixture.now))
        times = [(await fixture.read(each)).available_at for each in ids]
        assert times == [fixture.now, fixture.now + 250, fixture.now + 500]

    async def test_only_failed_jobs_are_redriven(self, fixture: StoreFixture) -> None:
        done = await fixture.finish_new("complete", "a")
        cancelled = await fixture.finish_new("cancel", "b")
        live = await fixture.start("c")
        before = await fixture.harness.contents()
        ids = [done.id, cancelled.id, live.id, fixture.new_id()]
        assert await fixture.run(fixture.store.jobs.redrive(ids, now=fixture.now)) == []
        assert await fixture.harness.contents() == before

    async def test_a_job_is_redriven_once(self, fixture: StoreFixture) -> None:
        job_id = await self._fail_one(fixture)
        await fixture.run(fixture.store.jobs.redrive([job_id], now=fixture.now))
        assert await fixture.run(fixture.store.jobs.redrive([job_id], now=fixture.now)) == []

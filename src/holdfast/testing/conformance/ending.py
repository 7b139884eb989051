"""Moves from outside: ending live jobs even if a worker holds them, making them due, and taking failed ones back."""

from __future__ import annotations

from typing import Literal

import pytest

from holdfast.core.records import EndedJob, Ending, JobRef
from holdfast.testing.conformance.store_fixture import (
    LEASE_MS,
    MAIL,
    SECOND,
    WORKER,
    Conformance,
    StoreFixture,
)
from holdfast.testing.conformance.workers import counters_equal_rows

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
        job = await fixture.start_running()
        await fixture.finish_as(job, "complete", output="1")
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
        (finished,) = await fixture.finish(fixture.ending(claimed, "complete"), awaited=True)
        assert finished.awaited, "whoever waited for the chain still waits"
        await fixture.run(counters_equal_rows(fixture))

    async def test_a_successor_of_a_job_that_is_not_live_is_not_written(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start_running()
        await fixture.finish_as(job, "complete")
        ending = Ending(job.id, "completed", next=fixture.next_job(job))
        assert await self._end(fixture, ending) == []
        assert len(await fixture.run(fixture.store.chains.jobs(job.id))) == 1

    async def test_locking_tells_which_jobs_are_live(self, fixture: StoreFixture) -> None:
        live, running = await fixture.start("a"), await fixture.start_running("b")
        done = await fixture.start_running("c")
        await fixture.finish_as(done, "complete")
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
        done = await fixture.start_running("b")
        await fixture.finish_as(done, "complete")
        blocked = await fixture.start_blocked(running.id, type="c")
        before = await fixture.harness.contents()
        ids = [running.id, done.id, blocked.id, fixture.new_id()]
        assert await fixture.run(fixture.store.jobs.trigger(ids, fixture.now)) == []
        assert await fixture.harness.contents() == before


class RedrivingConformance(Conformance):
    """Dead letters go back into the queue with their history."""

    async def _failed(self, fixture: StoreFixture, type: str = MAIL) -> str:
        job = await fixture.start_running(type)
        await fixture.finish_as(job, "fail", error="Boom: no", fingerprint="boom")
        return job.id

    async def test_a_redriven_job_begins_anew(self, fixture: StoreFixture) -> None:
        await fixture.start(priority=2, max_attempts=1)
        (job,) = await fixture.claim(priorities=[2])
        fixture.pass_time(ms=LEASE_MS)
        await fixture.run(fixture.store.leases.reap(100, 3, now=fixture.now))
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
        job_id = await self._failed(fixture)
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

    async def test_redriven_jobs_are_spaced_in_the_order_of_their_ids(
        self, fixture: StoreFixture
    ) -> None:
        ids = [await self._failed(fixture, f"type-{number}") for number in range(3)]
        await fixture.run(fixture.store.jobs.redrive(ids[::-1], spacing_us=250, now=fixture.now))
        times = [(await fixture.read(each)).available_at for each in ids]
        assert times == [fixture.now, fixture.now + 250, fixture.now + 500]

    async def test_only_failed_jobs_are_redriven(self, fixture: StoreFixture) -> None:
        done = await fixture.start_running("a")
        await fixture.finish_as(done, "complete")
        cancelled = await fixture.start_running("b")
        await fixture.finish_as(cancelled, "cancel")
        live = await fixture.start("c")
        before = await fixture.harness.contents()
        ids = [done.id, cancelled.id, live.id, fixture.new_id()]
        assert await fixture.run(fixture.store.jobs.redrive(ids, now=fixture.now)) == []
        assert await fixture.harness.contents() == before

    async def test_a_job_is_redriven_once(self, fixture: StoreFixture) -> None:
        job_id = await self._failed(fixture)
        await fixture.run(fixture.store.jobs.redrive([job_id], now=fixture.now))
        assert await fixture.run(fixture.store.jobs.redrive([job_id], now=fixture.now)) == []

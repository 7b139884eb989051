"""Moves from outside: ending live jobs whoever holds them, making them due, and taking failed ones back."""

from __future__ import annotations

from typing import Literal

import pytest

from holdfast.core.records import EndedJob, Ending, JobRef
from holdfast.testing.conformance.counters import counters_equal_rows
from holdfast.testing.conformance.stage import (
    LEASE_MS,
    MAIL,
    SECOND,
    WORKER,
    Conformance,
    Stage,
)

EndState = Literal["completed", "failed", "cancelled"]


class EndingConformance(Conformance):
    """Cancelling, completing and failing from outside takes effect at once."""

    async def _end(self, stage: Stage, *endings: Ending) -> list[EndedJob]:
        return await stage.run(stage.store.jobs.end(endings, stage.now))

    @pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
    async def test_a_running_job_is_ended_over_its_workers_head(
        self, stage: Stage, state: EndState
    ) -> None:
        job = await stage.start_running()
        ended_at = stage.pass_time(seconds=1)
        ending = Ending(job.id, state, output="1", error="why", fingerprint="print")
        assert await self._end(stage, ending) == [
            EndedJob(job.id, job.chain_id, MAIL, was="running", worker=WORKER, awaited=False)
        ]
        record = await stage.read(job.id)
        assert (record.state, record.output, record.error) == (state, "1", "why")
        assert (record.fingerprint, record.worker) == ("print", WORKER)
        assert (record.attempt, record.fence) == (1, job.fence)
        assert (record.started_at, record.finished_at) == (job.claimed_at, ended_at)
        assert await stage.run(stage.store.leases.held(WORKER)) == []

    async def test_a_waiting_job_is_ended_without_a_worker(self, stage: Stage) -> None:
        pending = await stage.start()
        blocked = await stage.start_blocked(pending.id, type="blocked")
        ended = await self._end(
            stage, Ending(pending.id, "completed"), Ending(blocked.id, "cancelled")
        )
        assert {(each.id, each.was, each.worker) for each in ended} == {
            (pending.id, "pending", None),
            (blocked.id, "blocked", None),
        }
        record = await stage.read(pending.id)
        assert (record.started_at, record.worker) == (None, None)
        await stage.run(counters_equal_rows(stage))

    async def test_a_job_that_is_not_live_stays_as_it_is(self, stage: Stage) -> None:
        job = await stage.start_running()
        await stage.finish_as(job, "complete", output="1")
        before = await stage.harness.contents()
        endings = [Ending(job.id, "failed"), Ending(stage.new_id(), "failed")]
        assert await self._end(stage, *endings) == []
        assert await stage.harness.contents() == before

    async def test_an_end_says_whether_others_wait(self, stage: Stage) -> None:
        job = await stage.start()
        await stage.run(stage.store.blockers.wait_on([job.id]))
        (ended,) = await self._end(stage, Ending(job.id, "cancelled"))
        assert ended.awaited

    async def test_a_chain_may_be_continued_from_outside(self, stage: Stage) -> None:
        job = await stage.start()
        await stage.run(stage.store.blockers.wait_on([job.id]))
        successor = stage.next_job(job, input="2", priority=1)
        await self._end(stage, Ending(job.id, "completed", output="1", next=successor))
        first, second = await stage.run(stage.store.chains.jobs(job.id))
        assert (first.state, first.continued) == ("completed", True)
        assert (second.id, second.state, second.input) == (successor.id, "pending", "2")
        (claimed,) = await stage.claim("next", priorities=[1])
        (finished,) = await stage.finish(stage.ending(claimed, "complete"), awaited=True)
        assert finished.awaited, "whoever waited for the chain still waits"
        await stage.run(counters_equal_rows(stage))

    async def test_a_successor_of_a_job_that_is_not_live_is_not_written(self, stage: Stage) -> None:
        job = await stage.start_running()
        await stage.finish_as(job, "complete")
        ending = Ending(job.id, "completed", next=stage.next_job(job))
        assert await self._end(stage, ending) == []
        assert len(await stage.run(stage.store.chains.jobs(job.id))) == 1

    async def test_locking_tells_which_jobs_are_live(self, stage: Stage) -> None:
        live, running = await stage.start("a"), await stage.start_running("b")
        done = await stage.start_running("c")
        await stage.finish_as(done, "complete")
        ids = [done.id, running.id, live.id, stage.new_id()]
        assert await stage.run(stage.store.jobs.lock(ids)) == {live.id, running.id}


class TriggeringConformance(Conformance):
    """A job planned for later is made due now."""

    async def test_a_planned_job_is_due_at_once(self, stage: Stage) -> None:
        job = await stage.start(at=stage.now + 3_600 * SECOND)
        triggered = await stage.run(stage.store.jobs.trigger([job.id], stage.now))
        assert triggered == [JobRef(job.id, MAIL)]
        record = await stage.read(job.id)
        assert (record.available_at, record.planned_at) == (stage.now, job.at)
        assert [each.id for each in await stage.claim()] == [job.id]

    async def test_only_pending_jobs_are_triggered(self, stage: Stage) -> None:
        running = await stage.start_running("a")
        done = await stage.start_running("b")
        await stage.finish_as(done, "complete")
        blocked = await stage.start_blocked(running.id, type="c")
        before = await stage.harness.contents()
        ids = [running.id, done.id, blocked.id, stage.new_id()]
        assert await stage.run(stage.store.jobs.trigger(ids, stage.now)) == []
        assert await stage.harness.contents() == before


class RedrivingConformance(Conformance):
    """Dead letters go back into the queue with their history."""

    async def _failed(self, stage: Stage, type: str = MAIL) -> str:
        job = await stage.start_running(type)
        await stage.finish_as(job, "fail", error="Boom: no", fingerprint="boom")
        return job.id

    async def test_a_redriven_job_begins_anew(self, stage: Stage) -> None:
        await stage.start(priority=2, max_attempts=1)
        (job,) = await stage.claim(priorities=[2])
        stage.pass_time(ms=LEASE_MS)
        await stage.run(stage.store.leases.reap(100, 3, now=stage.now))
        redriven_at = stage.pass_time(seconds=1)
        redriven = await stage.run(stage.store.jobs.redrive([job.id], now=stage.now))
        assert redriven == [JobRef(job.id, MAIL)]
        record = await stage.read(job.id)
        assert (record.state, record.attempt, record.crashes) == ("pending", 0, 0)
        assert (record.priority, record.max_attempts) == (2, 1)
        assert (record.available_at, record.fence) == (redriven_at, job.fence)
        assert (record.error, record.fingerprint, record.finished_at) == (None, None, None)
        await stage.run(counters_equal_rows(stage))

    async def test_the_fence_grows_and_the_history_stays(self, stage: Stage) -> None:
        job_id = await self._failed(stage)
        before = await stage.read(job_id)
        await stage.run(stage.store.jobs.redrive([job_id], now=stage.now))
        (again,) = await stage.claim()
        assert again.attempt == 1
        assert again.fence > before.fence
        await stage.finish_as(again, "fail", error="Boom: again")
        history = await stage.attempts(job_id)
        assert [(each.attempt, each.error) for each in history] == [
            (1, "Boom: no"),
            (1, "Boom: again"),
        ]

    async def test_redriven_jobs_are_spaced_in_the_order_of_their_ids(self, stage: Stage) -> None:
        ids = [await self._failed(stage, f"type-{number}") for number in range(3)]
        await stage.run(stage.store.jobs.redrive(ids[::-1], spacing_us=250, now=stage.now))
        times = [(await stage.read(each)).available_at for each in ids]
        assert times == [stage.now, stage.now + 250, stage.now + 500]

    async def test_only_failed_jobs_are_redriven(self, stage: Stage) -> None:
        done = await stage.start_running("a")
        await stage.finish_as(done, "complete")
        cancelled = await stage.start_running("b")
        await stage.finish_as(cancelled, "cancel")
        live = await stage.start("c")
        before = await stage.harness.contents()
        ids = [done.id, cancelled.id, live.id, stage.new_id()]
        assert await stage.run(stage.store.jobs.redrive(ids, now=stage.now)) == []
        assert await stage.harness.contents() == before

    async def test_a_job_is_redriven_once(self, stage: Stage) -> None:
        job_id = await self._failed(stage)
        await stage.run(stage.store.jobs.redrive([job_id], now=stage.now))
        assert await stage.run(stage.store.jobs.redrive([job_id], now=stage.now)) == []

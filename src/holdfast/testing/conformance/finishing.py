"""Finishing: what each kind of end writes, several of them in one flush, and the job that follows."""

from __future__ import annotations

import pytest

from holdfast.core.records import AttemptRecord, Finished, FinishKind
from holdfast.testing.conformance.counters import counters_equal_rows
from holdfast.testing.conformance.stage import (
    MILLISECOND,
    SECOND,
    WORKER,
    Conformance,
    Stage,
)


class FinishingConformance(Conformance):
    """How one attempt ends."""

    async def test_a_completed_job_keeps_its_output_and_its_times(self, stage: Stage) -> None:
        job = await stage.start_running()
        started = stage.pass_time(ms=10)
        finished = stage.pass_time(ms=20)
        done = await stage.finish(
            stage.ending(job, "complete", output='{"sent": true}', started_at=started)
        )
        assert done == [Finished(job.id, job.type, awaited=False)]
        record = await stage.read(job.id)
        assert (record.state, record.output, record.error) == ("completed", '{"sent": true}', None)
        assert (record.started_at, record.finished_at) == (started, finished)
        assert (record.attempt, record.crashes, record.fence) == (1, 0, job.fence)
        assert (record.worker, record.lease_expires_at) == (WORKER, None)
        assert (record.continued, record.available_at) == (False, None)
        assert await stage.attempts(job.id) == []

    async def test_a_failed_job_keeps_its_error_and_its_history(self, stage: Stage) -> None:
        job = await stage.start_running()
        ended = stage.pass_time(ms=20)
        assert await stage.finish_as(
            job, "fail", error="Boom: no", fingerprint="boom", started_at=job.claimed_at
        )
        record = await stage.read(job.id)
        assert (record.state, record.error, record.fingerprint) == ("failed", "Boom: no", "boom")
        assert await stage.attempts(job.id) == [
            AttemptRecord(
                job.id, 1, job.fence, "fail", WORKER, job.claimed_at, ended, error="Boom: no"
            )
        ]

    async def test_a_job_that_cancels_itself_keeps_its_reason(self, stage: Stage) -> None:
        job = await stage.start_running()
        assert await stage.finish_as(job, "cancel", error="Cancelled: not needed")
        record = await stage.read(job.id)
        assert (record.state, record.error) == ("cancelled", "Cancelled: not needed")
        assert await stage.attempts(job.id) == []

    async def test_a_retried_job_waits_for_its_delay_and_remembers_why(self, stage: Stage) -> None:
        job = await stage.start_running()
        ended = stage.pass_time(ms=20)
        assert await stage.finish_as(
            job, "retry", delay_ms=1_500, error="Boom: later", started_at=job.claimed_at
        )
        record = await stage.read(job.id)
        assert (record.state, record.attempt) == ("pending", 1)
        assert record.available_at == ended + 1_500 * MILLISECOND
        assert (record.worker, record.lease_expires_at, record.error) == (None, None, None)
        assert await stage.attempts(job.id) == [
            AttemptRecord(
                job.id, 1, job.fence, "retry", WORKER, job.claimed_at, ended, error="Boom: later"
            )
        ]

    async def test_a_snoozed_job_waits_without_a_trace(self, stage: Stage) -> None:
        job = await stage.start_running()
        assert await stage.finish_as(job, "snooze", delay_ms=30_000)
        record = await stage.read(job.id)
        assert (record.state, record.attempt) == ("pending", 0)
        assert record.available_at == stage.now + 30 * SECOND
        assert await stage.attempts(job.id) == []

    async def test_a_snooze_with_an_error_is_remembered_under_the_attempt_that_ran(
        self, stage: Stage
    ) -> None:
        job = await stage.start_running()
        assert await stage.finish_as(job, "snooze", delay_ms=30_000, error="Busy: full")
        (attempt,) = await stage.attempts(job.id)
        assert (attempt.attempt, attempt.kind, attempt.error) == (1, "snooze", "Busy: full")
        assert (await stage.read(job.id)).attempt == 0

    async def test_a_released_job_keeps_its_place(self, stage: Stage) -> None:
        job = await stage.start_running()
        stage.pass_time(seconds=5)
        assert await stage.finish_as(job, "release", delay_ms=30_000)
        record = await stage.read(job.id)
        assert (record.state, record.attempt) == ("pending", 0)
        assert record.available_at == job.available_at
        assert await stage.attempts(job.id) == []

    async def test_history_grows_with_every_failed_attempt(self, stage: Stage) -> None:
        await stage.start()
        last: FinishKind = "fail"
        for kind in ("retry", "retry", last):
            (job,) = await stage.claim()
            await stage.finish(stage.ending(job, kind, error=f"Boom: {job.attempt}"))
        history = await stage.attempts(job.id)
        assert [(each.attempt, each.kind, each.error) for each in history] == [
            (1, "retry", "Boom: 1"),
            (2, "retry", "Boom: 2"),
            (3, "fail", "Boom: 3"),
        ]
        fences = [each.fence for each in history]
        assert fences == sorted(set(fences))


class FlushConformance(Conformance):
    """Many ends in one statement."""

    async def test_one_flush_takes_every_kind(self, stage: Stage) -> None:
        kinds: list[FinishKind] = [
            "complete",
            "continue",
            "fail",
            "cancel",
            "retry",
            "snooze",
            "release",
        ]
        await stage.start_all([stage.job() for _ in kinds])
        claimed = await stage.claim()
        finishes = [
            stage.ending(job, kind, next=stage.next_job(job) if kind == "continue" else None)
            for job, kind in zip(claimed, kinds, strict=True)
        ]
        finished = await stage.finish(*finishes)
        assert {each.id for each in finished} == {job.id for job in claimed}
        states = [(await stage.read(job.id)).state for job in claimed]
        assert states == [
            "completed",
            "completed",
            "failed",
            "cancelled",
            "pending",
            "pending",
            "pending",
        ]
        await stage.run(counters_equal_rows(stage))

    async def test_what_was_lost_does_not_hinder_the_others(self, stage: Stage) -> None:
        await stage.start_all([stage.job(), stage.job()])
        lost, held = await stage.claim()
        await stage.run(stage.store.chains.delete([lost.chain_id], stage.now))
        finished = await stage.finish(
            stage.ending(lost, "complete"), stage.ending(held, "complete")
        )
        assert [each.id for each in finished] == [held.id]

    async def test_an_empty_flush_writes_nothing(self, stage: Stage) -> None:
        before = await stage.harness.contents()
        assert await stage.finish() == []
        assert await stage.harness.contents() == before

    @pytest.mark.parametrize("kind", ["complete", "continue", "fail", "cancel", "retry", "release"])
    async def test_a_job_that_others_wait_for_is_taken_only_when_asked(
        self, stage: Stage, kind: FinishKind
    ) -> None:
        await stage.start_all([stage.job(), stage.job()])
        awaited, plain = await stage.claim()
        await stage.run(stage.store.blockers.wait_on([awaited.id]))
        finishes = [
            stage.ending(job, kind, next=stage.next_job(job) if kind == "continue" else None)
            for job in (awaited, plain)
        ]
        assert [each.id for each in await stage.finish(*finishes)] == [plain.id]
        assert (await stage.stand(awaited)).standing == "held"
        assert await stage.finish(finishes[0], awaited=True) == [
            Finished(awaited.id, awaited.type, awaited=True)
        ]


class ContinuingConformance(Conformance):
    """The job that follows is written with the end of the one before."""

    async def test_the_successor_is_written_with_its_predecessors_end(self, stage: Stage) -> None:
        job = await stage.start_running()
        ended = stage.pass_time(seconds=1)
        successor = stage.next_job(
            job, "ship", input='{"order": 1}', priority=2, trace="00-t-02", max_attempts=4
        )
        assert await stage.finish_as(job, "continue", output='"charged"', next=successor)
        first, second = await stage.run(stage.store.chains.jobs(job.chain_id))
        assert (first.state, first.continued, first.output) == ("completed", True, '"charged"')
        assert (second.id, second.state, second.chain_index) == (successor.id, "pending", 1)
        assert (second.type, second.input, second.priority) == ("ship", '{"order": 1}', 2)
        assert (second.trace, second.max_attempts, second.attempt) == ("00-t-02", 4, 0)
        assert (second.created_at, second.available_at) == (ended, ended)
        await stage.run(counters_equal_rows(stage))

    async def test_a_successor_may_be_planned_for_later(self, stage: Stage) -> None:
        job = await stage.start_running()
        successor = stage.next_job(job, at=stage.now + SECOND)
        await stage.finish_as(job, "continue", next=successor)
        record = await stage.read(successor.id)
        assert (record.planned_at, record.available_at) == (successor.at, successor.at)
        assert await stage.claim("next") == []

    async def test_a_successor_may_wait_for_chains(self, stage: Stage) -> None:
        job = await stage.start_running()
        successor = stage.next_job(job, blockers=1)
        await stage.finish_as(job, "continue", next=successor)
        assert (await stage.read(successor.id)).state == "blocked"

    async def test_whoever_waited_for_the_predecessor_waits_for_the_successor(
        self, stage: Stage
    ) -> None:
        job = await stage.start_running()
        await stage.run(stage.store.blockers.wait_on([job.id]))
        successor = stage.next_job(job)
        await stage.finish(stage.ending(job, "continue", next=successor), awaited=True)
        (claimed,) = await stage.claim("next")
        assert await stage.finish(stage.ending(claimed, "complete")) == []
        (finished,) = await stage.finish(stage.ending(claimed, "complete"), awaited=True)
        assert finished.awaited

    async def test_a_place_in_a_chain_is_taken_once(self, stage: Stage) -> None:
        job = await stage.start_running()
        await stage.finish_as(job, "continue", next=stage.next_job(job))
        rival = stage.next_job(job)
        with pytest.raises(Exception, match=r"(?i)unique"):
            await stage.run(stage.store.jobs.insert([rival], now=stage.now))
        assert [each.id for each in await stage.read_all(chain=job.chain_id)][-1] == job.id
        assert len(await stage.read_all(chain=job.chain_id)) == 2

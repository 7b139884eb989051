"""Progress: what running attempts say of themselves, as long as they hold their jobs."""

from __future__ import annotations

from holdfast.core.records import ClaimedJob, NewProgress, ProgressRecord
from holdfast.testing.conformance.stage import Conformance, Stage


def _word(job: ClaimedJob, fraction: float, note: str = "") -> NewProgress:
    return NewProgress(job.id, job.token, job.fence, fraction, note)


class ProgressConformance(Conformance):
    """Only the attempt that holds a job is believed, and only while it does."""

    async def _say(self, stage: Stage, *progress: NewProgress) -> None:
        await stage.run(stage.store.leases.report(progress, stage.now))

    async def _read(self, stage: Stage, *ids: str) -> list[ProgressRecord]:
        return await stage.run(stage.store.leases.progress(ids))

    async def test_the_last_word_counts(self, stage: Stage) -> None:
        job = await stage.start_running()
        await self._say(stage, _word(job, 0.25, "reading"))
        stage.pass_time(seconds=1)
        await self._say(stage, _word(job, 0.75, "writing"))
        assert await self._read(stage, job.id) == [
            ProgressRecord(job.id, job.fence, 0.75, "writing", stage.now)
        ]

    async def test_a_stale_token_is_not_believed(self, stage: Stage) -> None:
        lost = await stage.start_running()
        await stage.finish_as(lost, "release")
        (held,) = await stage.claim()
        await self._say(stage, _word(held, 0.5), _word(lost, 0.9))
        (record,) = await self._read(stage, held.id)
        assert (record.fence, record.fraction) == (held.fence, 0.5)

    async def test_the_next_attempt_begins_without_a_word(self, stage: Stage) -> None:
        first = await stage.start_running()
        await self._say(stage, _word(first, 0.5))
        await stage.finish_as(first, "retry")
        assert await self._read(stage, first.id) == []
        (second,) = await stage.claim()
        assert await self._read(stage, first.id) == []
        await self._say(stage, _word(second, 0.1))
        (record,) = await self._read(stage, first.id)
        assert record.fraction == 0.1

    async def test_an_ended_job_says_nothing_more(self, stage: Stage) -> None:
        job = await stage.start_running()
        await self._say(stage, _word(job, 0.5))
        await stage.finish_as(job, "complete")
        assert await self._read(stage, job.id) == []

    async def test_what_was_said_is_forgotten_unless_a_later_attempt_spoke(
        self, stage: Stage
    ) -> None:
        first = await stage.start_running()
        await self._say(stage, _word(first, 0.5))
        await stage.finish_as(first, "retry")
        (second,) = await stage.claim()
        await self._say(stage, _word(second, 0.1))
        await stage.run(stage.store.leases.forget([_word(first, 0.5)]))
        assert len(await self._read(stage, first.id)) == 1
        await stage.run(stage.store.leases.forget([_word(second, 0.1)]))
        assert await self._read(stage, first.id) == []

    async def test_a_guarded_transaction_goes_on_while_it_is_busy(self, stage: Stage) -> None:
        job = await stage.start_running()
        transaction = await stage.harness.begin()
        await transaction.run(stage.store.leases.guard(30_000))
        finish = stage.ending(job, "complete")
        assert await transaction.run(stage.store.jobs.finish([finish], now=stage.now))
        await transaction.commit()
        assert (await stage.stand(job)).standing == "done"

"""Starting: the beginning of a job's life."""

from __future__ import annotations

from holdfast.testing.conformance.counters import counters_equal_rows
from holdfast.testing.conformance.stage import SECOND, Conformance, Stage


class StartingConformance(Conformance):
    """A job is kept as it was asked for."""

    async def test_a_started_job_keeps_what_was_asked(self, stage: Stage) -> None:
        asked = stage.job(
            input='{"a": 1}',
            priority=0,
            key="k",
            trace="00-t-01",
            max_attempts=3,
            at=stage.now + SECOND,
        )
        await stage.start_all([asked])
        record = await stage.read(asked.id)
        assert (record.id, record.chain_id, record.chain_index) == (asked.id, asked.id, 0)
        assert (record.type, record.input, record.priority) == ("mail", '{"a": 1}', 0)
        assert (record.key, record.trace, record.max_attempts) == ("k", "00-t-01", 3)
        assert (record.created_at, record.planned_at) == (stage.now, stage.now + SECOND)
        assert (record.state, record.available_at) == ("pending", stage.now + SECOND)
        assert (record.attempt, record.crashes, record.fence) == (0, 0, 0)
        assert (record.worker, record.started_at, record.finished_at) == (None, None, None)

    async def test_a_start_repeated_after_an_unknown_commit_is_harmless(self, stage: Stage) -> None:
        first = await stage.start()
        before = await stage.harness.contents()
        second = stage.job()
        assert await stage.run(stage.store.jobs.insert([first], now=stage.now)) == set()
        assert await stage.harness.contents() == before
        written = await stage.run(stage.store.jobs.insert([first, second], now=stage.now))
        assert written == {second.id}
        await stage.run(counters_equal_rows(stage))

    async def test_a_blocked_job_shows_no_due_time(self, stage: Stage) -> None:
        blocker = await stage.start()
        job = await stage.start_blocked(blocker.id)
        record = await stage.read(job.id)
        assert (record.state, record.available_at) == ("blocked", None)

    async def test_thousands_of_jobs_are_written_at_once(self, stage: Stage) -> None:
        await stage.start_all([stage.job(f"type-{n % 3}") for n in range(3_000)])
        await stage.run(counters_equal_rows(stage))

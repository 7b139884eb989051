"""Retention: whole chains, old enough, that nobody depends on; and nothing else."""

from __future__ import annotations

from typing import Any

from holdfast.commands.cycles import begin_slot, complete_slot
from holdfast.commands.retention import FIRST_ID, Ages, RetentionPage, remove_chains, remove_records
from holdfast.commands.start import Started, StartRequest, start_chains
from holdfast.core.cycle import NewRun, slot_at
from holdfast.core.records import NewJob, NewKey, WorkerSign
from holdfast.testing.conformance.counters import counters_equal_rows
from holdfast.testing.conformance.cycles import CLEANUP, CycleStage
from holdfast.testing.conformance.stage import LEASE_MS, WORKER, Conformance, Stage

DAY = 86_400
AGES = Ages(chains=30, dead_letters=90, runs=30)


class RetentionConformance(Conformance):
    """Removing finished chains."""

    async def _ended(self, stage: Stage, kind: Any, **fields: Any) -> NewJob:
        job = await stage.start(**fields)
        (claimed,) = await stage.claim()
        assert await stage.finish_as(claimed, kind)
        return job

    async def _remove(self, stage: Stage, after: str = FIRST_ID, limit: int = 100) -> RetentionPage:
        page = await stage.run(remove_chains(stage.store, AGES, after, limit, stage.now))
        await stage.run(counters_equal_rows(stage))
        return page

    async def _exists(self, stage: Stage, job: NewJob) -> bool:
        return bool(await stage.run(stage.store.jobs.get([job.id])))

    async def test_finished_chains_go_when_they_are_old_enough_and_dead_letters_later(
        self, stage: Stage
    ) -> None:
        done = await self._ended(stage, "complete")
        dropped = await self._ended(stage, "cancel")
        dead = await self._ended(stage, "fail")
        stage.pass_time(seconds=30 * DAY)
        assert (await self._remove(stage)).removed == 0
        stage.pass_time(seconds=1)
        assert (await self._remove(stage)).removed == 2
        assert not await self._exists(stage, done)
        assert not await self._exists(stage, dropped)
        assert await self._exists(stage, dead)
        stage.pass_time(seconds=60 * DAY)
        assert (await self._remove(stage)).removed == 1

    async def test_with_a_chain_go_its_attempts_its_edges_and_its_key(self, stage: Stage) -> None:
        job = stage.job(key="k")
        key = NewKey(job.type, "k", job.id)
        await stage.run(stage.store.chains.claim_keys([key], stage.now))
        await stage.start_all([job])
        (claimed,) = await stage.claim()
        await stage.finish_as(claimed, "retry", error="once")
        (claimed,) = await stage.claim()
        await stage.finish_as(claimed, "complete")
        stage.pass_time(seconds=31 * DAY)
        assert (await self._remove(stage)).removed == 1
        contents = await stage.harness.contents()
        left = [
            row
            for table, rows in contents.items()
            for row in rows
            if job.id in row and "lease" not in table
        ]
        assert left == []

    async def test_a_key_that_still_counts_keeps_its_chain(self, stage: Stage) -> None:
        job = stage.job(key="k")
        key = NewKey(job.type, "k", job.id, "any", window_ms=40 * DAY * 1000)
        await stage.run(stage.store.chains.claim_keys([key], stage.now))
        await stage.start_all([job])
        (claimed,) = await stage.claim()
        await stage.finish_as(claimed, "complete")
        stage.pass_time(seconds=31 * DAY)
        assert (await self._remove(stage)).removed == 0
        stage.pass_time(seconds=10 * DAY)
        assert (await self._remove(stage)).removed == 1

    async def _keyed(self, stage: Stage, scope: Any) -> Started:
        job = stage.job(key="k")
        request = StartRequest(job, NewKey(job.type, "k", job.id, scope))
        (started,) = await stage.run(start_chains(stage.store, [request], now=stage.now))
        return started

    async def _completed_long_ago(self, stage: Stage) -> None:
        (claimed,) = await stage.claim()
        await stage.finish_as(claimed, "complete")
        stage.pass_time(seconds=31 * DAY)
        assert (await self._remove(stage)).removed == 1

    async def test_a_key_of_scope_any_outlives_its_chain(self, stage: Stage) -> None:
        first = await self._keyed(stage, "any")
        await self._completed_long_ago(stage)
        stage.pass_time(seconds=4_000 * DAY)
        await stage.run(remove_records(stage.store, AGES, 100, stage.now))
        again = await self._keyed(stage, "any")
        assert again == Started(first.id, first.type, "removed", True)
        # A start of the other scope asks only whether something is open.
        renewed = await self._keyed(stage, "open")
        assert (renewed.state, renewed.deduplicated) == ("pending", False)
        assert (await self._keyed(stage, "any")).id == renewed.id
        await self._completed_long_ago(stage)
        assert await self._keyed(stage, "any") == Started(renewed.id, first.type, "removed", True)

    async def test_a_key_that_somebody_asked_for_with_scope_any_outlives_its_chain(
        self, stage: Stage
    ) -> None:
        first = await self._keyed(stage, "open")
        assert (await self._keyed(stage, "any")).deduplicated
        await self._completed_long_ago(stage)
        assert await self._keyed(stage, "any") == Started(first.id, first.type, "removed", True)

    async def test_a_key_of_scope_open_goes_with_its_chain(self, stage: Stage) -> None:
        await self._keyed(stage, "open")
        await self._completed_long_ago(stage)
        assert not (await self._keyed(stage, "any")).deduplicated

    async def test_keys_without_chains_go_when_they_are_old_enough(self, stage: Stage) -> None:
        await self._keyed(stage, "any")
        await self._completed_long_ago(stage)
        ages = Ages(chains=30, dead_letters=90, runs=30, keys=365)
        stage.pass_time(seconds=365 * DAY)
        assert await stage.run(remove_records(stage.store, ages, 100, stage.now)) == 0
        stage.pass_time(seconds=1)
        assert await stage.run(remove_records(stage.store, ages, 100, stage.now)) == 1
        assert not (await self._keyed(stage, "any")).deduplicated

    async def test_deleting_a_chain_frees_its_key_whatever_the_scope(self, stage: Stage) -> None:
        first = await self._keyed(stage, "any")
        await stage.run(stage.store.chains.delete([first.id], stage.now))
        assert not (await self._keyed(stage, "any")).deduplicated

    async def test_a_live_chain_stays_with_its_finished_jobs(self, stage: Stage) -> None:
        first = await stage.start()
        (claimed,) = await stage.claim()
        following = stage.next_job(claimed)
        assert await stage.finish_as(claimed, "continue", next=following)
        stage.pass_time(seconds=400 * DAY)
        assert (await self._remove(stage)).removed == 0
        assert await self._exists(stage, first)
        (claimed,) = await stage.claim("next")
        await stage.finish_as(claimed, "complete")
        stage.pass_time(seconds=31 * DAY)
        assert (await self._remove(stage)).removed == 1
        assert not await self._exists(stage, following)

    async def test_a_chain_that_a_live_job_depends_on_stays(self, stage: Stage) -> None:
        blocking = await self._ended(stage, "complete")
        waiting = await stage.start_blocked(blocking.id, type="waits")
        stage.pass_time(seconds=31 * DAY)
        assert (await self._remove(stage)).removed == 0
        assert await self._exists(stage, waiting)

    async def test_batches_are_bounded_and_go_on_where_the_last_ended(self, stage: Stage) -> None:
        jobs = []
        for _ in range(5):
            jobs.append(await self._ended(stage, "complete"))
            stage.pass_time(ms=2)
        stage.pass_time(seconds=31 * DAY)
        first = await self._remove(stage, limit=2)
        assert first == RetentionPage(2, 2, jobs[1].id)
        second = await self._remove(stage, first.last, limit=2)
        assert second == RetentionPage(2, 2, jobs[3].id)
        third = await self._remove(stage, second.last, limit=2)
        assert third == RetentionPage(1, 1, jobs[4].id)

    async def test_old_runs_slots_and_workers_go(self, stage: Stage) -> None:
        cycles = CycleStage(stage)
        await cycles.register(CLEANUP)
        run = NewRun(stage.new_id(), CLEANUP, WORKER, "s")
        slot = slot_at(stage.now + 1_000_000)
        held = await stage.run(
            begin_slot(stage.store, run, slot, stage.new_id(), LEASE_MS, stage.now)
        )
        assert held is not None
        await stage.run(complete_slot(stage.store, held, "{}", stage.now))
        sign = WorkerSign("w", "w", "h", 1, "0", 1, "[]", "{}", None)
        await stage.run(stage.store.workers.sign(sign, stage.now))
        await stage.run(stage.store.workers.stop("w", "{}", stage.now))
        assert await stage.run(remove_records(stage.store, AGES, 100, stage.now)) == 0
        stage.pass_time(seconds=31 * DAY)
        assert await stage.run(remove_records(stage.store, AGES, 100, stage.now)) == 3
        assert await cycles.begin(slot) is None

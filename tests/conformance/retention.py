"""Removing chains: deleting them with everything that belongs to them, and retention, which takes old ones."""

from __future__ import annotations

from typing import Any

from holdfast.commands.retention import (
    FIRST_ID,
    Ages,
    RetentionPage,
    declare_keeps,
    read_progress,
    remove_by_rule,
    remove_chains,
    remove_dead_letters,
    remove_records,
)
from holdfast.commands.start import Started, StartRequest, start_chains
from holdfast.core.codec import TypeCodec
from holdfast.core.cycle import slot_at
from holdfast.core.keep import Keep
from holdfast.core.records import Finish, Held, NewBlocker, NewJob, NewKey, NewProgress, Reference
from holdfast.core.registry import JobType, Registry
from holdfast.core.statistics import RetentionProgress
from holdfast.core.worker_presence import WorkerSign
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from tests.conformance.cycles import CLEANUP, CycleFixture
from tests.conformance.harness import MAIL, Conformance, Harness, StoreFixture
from tests.conformance.workers import counters_equal_rows

DAY = 86_400
AGES = Ages(chains=30, dead_letters=90, runs=30)


class RetentionConformance(Conformance):
    """Removing finished chains."""

    async def _end_one(self, fixture: StoreFixture, kind: Any, **fields: Any) -> NewJob:
        job = await fixture.start(**fields)
        await fixture.finish_next(kind)
        return job

    async def _remove(
        self, fixture: StoreFixture, after: str = FIRST_ID, limit: int = 100
    ) -> RetentionPage:
        page = await fixture.run(remove_chains(fixture.store, AGES, after, limit, fixture.now))
        await fixture.run(counters_equal_rows(fixture))
        return page

    async def _remove_dead(
        self, fixture: StoreFixture, ages: Ages = AGES, after: str = FIRST_ID, limit: int = 100
    ) -> RetentionPage:
        op = remove_dead_letters(fixture.store, ages, after, limit, fixture.now)
        page = await fixture.run(op)
        await fixture.run(counters_equal_rows(fixture))
        return page

    async def _exists(self, fixture: StoreFixture, job: NewJob) -> bool:
        return bool(await fixture.run(fixture.store.jobs.get([job.id])))

    async def test_finished_chains_go_when_they_are_old_enough_and_dead_letters_later(
        self, fixture: StoreFixture
    ) -> None:
        done = await self._end_one(fixture, "complete")
        dropped = await self._end_one(fixture, "cancel")
        dead = await self._end_one(fixture, "fail")
        fixture.pass_time(seconds=30 * DAY)
        assert (await self._remove(fixture)).removed == 0
        fixture.pass_time(seconds=1)
        assert (await self._remove(fixture)).removed == 2
        assert not await self._exists(fixture, done)
        assert not await self._exists(fixture, dropped)
        assert await self._exists(fixture, dead)
        assert (await self._remove_dead(fixture)).removed == 0
        fixture.pass_time(seconds=60 * DAY)
        assert (await self._remove(fixture)).removed == 0
        assert (await self._remove_dead(fixture)).removed == 1
        assert not await self._exists(fixture, dead)

    async def _keep(self, fixture: StoreFixture, keep: Keep | None) -> None:
        registry = Registry()
        registry.add(JobType(MAIL, print, TypeCodec(Any), TypeCodec(Any), keep=keep))
        await fixture.run(declare_keeps(fixture.store, registry))

    async def _remove_by_rules(self, fixture: StoreFixture, limit: int = 100) -> int:
        """Go through all rules until there is nothing more to do; return how many chains went."""
        removed, is_done = 0, False
        while not is_done:
            is_done = True
            for rule in await fixture.run(fixture.store.keeps.rules()):
                page = await fixture.run(remove_by_rule(fixture.store, rule, limit, fixture.now))
                removed += page.removed
                is_done = is_done and page.seen == 0
        await fixture.run(counters_equal_rows(fixture))
        return removed

    async def test_a_type_is_kept_for_its_own_time_by_how_its_chains_ended(
        self, fixture: StoreFixture
    ) -> None:
        await self._keep(fixture, Keep(completed="1h", failed="1d", cancelled="40d"))
        done = await self._end_one(fixture, "complete")
        dead = await self._end_one(fixture, "fail")
        dropped = await self._end_one(fixture, "cancel")
        fixture.pass_time(seconds=3600)
        assert await self._remove_by_rules(fixture) == 0
        fixture.pass_time(seconds=120)
        assert await self._remove_by_rules(fixture) == 1
        assert not await self._exists(fixture, done)
        late = await self._end_one(fixture, "complete")
        fixture.pass_time(seconds=DAY)
        assert await self._remove_by_rules(fixture) == 2
        assert not await self._exists(fixture, dead)
        assert not await self._exists(fixture, late)
        fixture.pass_time(seconds=30 * DAY)
        assert (await self._remove(fixture)).removed == 0, "it is kept longer than others"
        fixture.pass_time(seconds=10 * DAY)
        assert await self._remove_by_rules(fixture) == 1
        assert not await self._exists(fixture, dropped)

    async def test_what_ended_in_one_moment_goes_in_pages_and_what_is_needed_does_not_block_it(
        self, fixture: StoreFixture
    ) -> None:
        await self._keep(fixture, Keep(completed=0))
        jobs = [await self._end_one(fixture, "complete") for _ in range(7)]
        fixture.pass_time(seconds=600)
        assert await self._remove_by_rules(fixture, limit=3) == 7
        assert not [each for each in jobs if await self._exists(fixture, each)]

    async def test_a_completion_that_is_not_kept_leaves_nothing_behind(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start()
        (claimed,) = await fixture.claim(MAIL)
        refused = Finish(job.id, new_id(), "complete", "w", job.id, output="1", drop=True)
        assert await fixture.run(fixture.store.jobs.finish([refused], now=fixture.now)) == []
        finish = Finish(job.id, claimed.token, "complete", "w", job.id, output="1", drop=True)
        (done,) = await fixture.run(fixture.store.jobs.finish([finish], now=fixture.now))
        assert done.id == job.id
        assert not await self._exists(fixture, job)
        (status,) = await fixture.run(
            fixture.store.jobs.lease_status([Held(job.id, claimed.token)])
        )
        assert status.lease == "gone"
        await fixture.run(counters_equal_rows(fixture))

    async def test_a_rule_that_the_code_no_longer_has_is_forgotten(
        self, fixture: StoreFixture
    ) -> None:
        await self._keep(fixture, Keep(completed="1h", failed="1d"))
        assert len(await fixture.run(fixture.store.keeps.rules())) == 2
        await self._keep(fixture, Keep(completed="2h"))
        (rule,) = await fixture.run(fixture.store.keeps.rules())
        assert (rule.state, rule.keep_ms) == ("completed", 7_200_000)
        await self._keep(fixture, None)
        assert await fixture.run(fixture.store.keeps.rules()) == []

    async def test_the_backlog_is_what_ended_and_is_old_enough_and_the_rate_what_was_removed_lately(
        self, fixture: StoreFixture
    ) -> None:
        for kind in ("complete", "cancel", "complete", "fail"):
            await self._end_one(fixture, kind)
        await fixture.start(type="later", at=fixture.now + 365 * DAY * 1_000_000)
        assert await self._progress(fixture) == RetentionProgress(0, 0)
        fixture.pass_time(seconds=32 * DAY)
        await self._end_one(fixture, "complete")
        assert await self._progress(fixture) == RetentionProgress(3, 0)
        assert (await self._remove(fixture)).removed == 3
        assert await self._progress(fixture) == RetentionProgress(0, 3 / 600)
        fixture.pass_time(seconds=601)
        await fixture.run(fixture.store.workers.fold_tally(1_000, fixture.now))
        assert await self._progress(fixture) == RetentionProgress(0, 0)

    async def _progress(self, fixture: StoreFixture) -> RetentionProgress | None:
        return await fixture.run(read_progress(fixture.store, AGES, fixture.now))

    async def test_dead_letters_go_before_the_completed_chains_around_them(
        self, fixture: StoreFixture
    ) -> None:
        done = await self._end_one(fixture, "complete")
        dropped = await self._end_one(fixture, "cancel")
        dead = await self._end_one(fixture, "fail")
        for ages in (Ages(chains=30, dead_letters=7, runs=30), Ages(0, 7, 30)):
            assert (await self._remove_dead(fixture, ages)).removed == 0
        fixture.pass_time(seconds=7 * DAY + 1)
        ages = Ages(chains=30, dead_letters=7, runs=30)
        assert (await self._remove_dead(fixture, ages)).removed == 1
        assert not await self._exists(fixture, dead)
        assert await self._exists(fixture, done)
        assert await self._exists(fixture, dropped)

    async def test_dead_letters_go_with_their_whole_chain_in_bounded_batches(
        self, fixture: StoreFixture
    ) -> None:
        tails = []
        for _ in range(3):
            await fixture.start()
            (claimed,) = await fixture.claim()
            tails.append(fixture.next_job(claimed))
            assert await fixture.finish_as(claimed, "continue", next=tails[-1])
            await fixture.finish_next("fail", "next")
            fixture.pass_time(ms=2)
        waiting = await fixture.start_blocked(tails[2].chain_id, type="waits")
        fixture.pass_time(seconds=91 * DAY)
        first = await self._remove_dead(fixture, limit=2)
        assert first == RetentionPage(2, 2, tails[1].id)
        second = await self._remove_dead(fixture, after=first.last, limit=2)
        assert second == RetentionPage(1, 0, tails[2].id)
        left = {each.id for each in await fixture.read_all()}
        assert left == {tails[2].chain_id, tails[2].id, waiting.id}

    async def test_with_a_chain_go_its_attempts_its_edges_and_its_key(
        self, fixture: StoreFixture
    ) -> None:
        job = fixture.job(key="k")
        key = NewKey(job.type, "k", job.id)
        await fixture.run(fixture.store.chains.claim_keys([key], fixture.now))
        await fixture.start_all([job])
        await fixture.finish_next("retry", error="once")
        await fixture.finish_next("complete")
        fixture.pass_time(seconds=31 * DAY)
        assert (await self._remove(fixture)).removed == 1
        contents = await fixture.harness.contents()
        left = [
            row
            for table, rows in contents.items()
            for row in rows
            if job.id in row and "lease" not in table
        ]
        assert left == []

    async def test_a_key_that_still_counts_keeps_its_chain(self, fixture: StoreFixture) -> None:
        job = fixture.job(key="k")
        key = NewKey(job.type, "k", job.id, "any", window_ms=40 * DAY * 1000)
        await fixture.run(fixture.store.chains.claim_keys([key], fixture.now))
        await fixture.start_all([job])
        await fixture.finish_next("complete")
        fixture.pass_time(seconds=31 * DAY)
        assert (await self._remove(fixture)).removed == 0
        fixture.pass_time(seconds=10 * DAY)
        assert (await self._remove(fixture)).removed == 1

    async def _start_keyed(self, fixture: StoreFixture, scope: Any) -> Started:
        job = fixture.job(key="k")
        request = StartRequest(job, NewKey(job.type, "k", job.id, scope))
        (started,) = await fixture.run(start_chains(fixture.store, [request], now=fixture.now))
        return started

    async def _completed_long_ago(self, fixture: StoreFixture) -> None:
        await fixture.finish_next("complete")
        fixture.pass_time(seconds=31 * DAY)
        assert (await self._remove(fixture)).removed == 1

    async def test_a_key_of_scope_any_outlives_its_chain(self, fixture: StoreFixture) -> None:
        first = await self._start_keyed(fixture, "any")
        await self._completed_long_ago(fixture)
        fixture.pass_time(seconds=4_000 * DAY)
        await fixture.run(remove_records(fixture.store, AGES, 100, fixture.now))
        again = await self._start_keyed(fixture, "any")
        assert again == Started(first.id, first.type, "removed", True)
        # A start of the other scope asks only whether something is open.
        renewed = await self._start_keyed(fixture, "open")
        assert (renewed.state, renewed.deduplicated) == ("pending", False)
        assert (await self._start_keyed(fixture, "any")).id == renewed.id
        await self._completed_long_ago(fixture)
        assert await self._start_keyed(fixture, "any") == Started(
            renewed.id, first.type, "removed", True
        )

    async def test_a_key_asked_for_with_scope_any_outlives_its_chain(
        self, fixture: StoreFixture
    ) -> None:
        first = await self._start_keyed(fixture, "open")
        assert (await self._start_keyed(fixture, "any")).deduplicated
        await self._completed_long_ago(fixture)
        assert await self._start_keyed(fixture, "any") == Started(
            first.id, first.type, "removed", True
        )

    async def test_a_key_of_scope_open_goes_with_its_chain(self, fixture: StoreFixture) -> None:
        await self._start_keyed(fixture, "open")
        await self._completed_long_ago(fixture)
        assert not (await self._start_keyed(fixture, "any")).deduplicated

    async def test_keys_without_chains_go_when_they_are_old_enough(
        self, fixture: StoreFixture
    ) -> None:
        await self._start_keyed(fixture, "any")
        await self._completed_long_ago(fixture)
        ages = Ages(chains=30, dead_letters=90, runs=30, keys=365)
        fixture.pass_time(seconds=365 * DAY)
        assert await fixture.run(remove_records(fixture.store, ages, 100, fixture.now)) == 0
        fixture.pass_time(seconds=1)
        assert await fixture.run(remove_records(fixture.store, ages, 100, fixture.now)) == 1
        assert not (await self._start_keyed(fixture, "any")).deduplicated

    async def test_used_keys_go_when_they_are_old_enough(self, fixture: StoreFixture) -> None:
        def use() -> Op[bool]:
            return fixture.store.chains.use_key("used calls", "k", fixture.now)

        assert await fixture.run(use())
        ages = Ages(chains=30, dead_letters=90, runs=30, keys=365)
        fixture.pass_time(seconds=365 * DAY)
        assert await fixture.run(remove_records(fixture.store, AGES, 100, fixture.now)) == 0
        assert await fixture.run(remove_records(fixture.store, ages, 100, fixture.now)) == 0
        assert not await fixture.run(use())
        fixture.pass_time(seconds=1)
        assert await fixture.run(remove_records(fixture.store, ages, 100, fixture.now)) == 1
        assert await fixture.run(use())

    async def test_deleting_a_chain_frees_its_key_whatever_the_scope(
        self, fixture: StoreFixture
    ) -> None:
        first = await self._start_keyed(fixture, "any")
        await fixture.run(fixture.store.chains.delete([first.id], fixture.now))
        assert not (await self._start_keyed(fixture, "any")).deduplicated

    async def test_a_live_chain_stays_with_its_finished_jobs(self, fixture: StoreFixture) -> None:
        first = await fixture.start()
        (claimed,) = await fixture.claim()
        following = fixture.next_job(claimed)
        assert await fixture.finish_as(claimed, "continue", next=following)
        fixture.pass_time(seconds=400 * DAY)
        assert (await self._remove(fixture)).removed == 0
        assert await self._exists(fixture, first)
        await fixture.finish_next("complete", "next")
        fixture.pass_time(seconds=31 * DAY)
        assert (await self._remove(fixture)).removed == 1
        assert not await self._exists(fixture, following)

    async def test_a_chain_that_a_live_job_depends_on_stays(self, fixture: StoreFixture) -> None:
        blocking = await self._end_one(fixture, "complete")
        waiting = await fixture.start_blocked(blocking.id, type="waits")
        fixture.pass_time(seconds=31 * DAY)
        assert (await self._remove(fixture)).removed == 0
        assert await self._exists(fixture, waiting)

    async def test_batches_are_bounded_and_go_on_where_the_last_ended(
        self, fixture: StoreFixture
    ) -> None:
        jobs = []
        for _ in range(5):
            jobs.append(await self._end_one(fixture, "complete"))
            fixture.pass_time(ms=2)
        fixture.pass_time(seconds=31 * DAY)
        first = await self._remove(fixture, limit=2)
        assert first == RetentionPage(2, 2, jobs[1].id)
        second = await self._remove(fixture, first.last, limit=2)
        assert second == RetentionPage(2, 2, jobs[3].id)
        third = await self._remove(fixture, second.last, limit=2)
        assert third == RetentionPage(1, 1, jobs[4].id)

    async def test_old_runs_slots_and_workers_go(self, harness: Harness) -> None:
        cycles = CycleFixture(harness)
        await cycles.register(CLEANUP)
        slot = slot_at(cycles.now + 1_000_000)
        assert await cycles.complete(await cycles.hold(slot))
        sign = WorkerSign("w", "w", "h", 1, "0", 1, "[]", "{}", None)
        await cycles.run(cycles.store.workers.sign(sign, cycles.now))
        await cycles.run(cycles.store.workers.stop("w", "{}", cycles.now))
        assert await cycles.run(remove_records(cycles.store, AGES, 100, cycles.now)) == 0
        cycles.pass_time(seconds=31 * DAY)
        assert await cycles.run(remove_records(cycles.store, AGES, 100, cycles.now)) == 3
        assert await cycles.begin(slot) is None


class DeletingConformance(Conformance):
    """A deleted chain leaves nothing, and others lose nothing."""

    async def test_a_deleted_chain_leaves_nothing_but_counts(self, fixture: StoreFixture) -> None:
        blocker = await fixture.start("blocker")
        first = await fixture.start(key="k")
        key = NewKey(MAIL, "k", first.id)
        await fixture.run(fixture.store.chains.claim_keys([key], fixture.now))
        job = await fixture.finish_next("retry", error="Boom: no")
        await fixture.run(fixture.store.leases.free([job.token]))
        (job,) = await fixture.claim()
        successor = fixture.next_job(job, blockers=1)
        await fixture.finish_as(job, "continue", next=successor)
        await fixture.run(fixture.store.blockers.insert([NewBlocker(successor.id, 0, blocker.id)]))
        await fixture.run(fixture.store.leases.free([job.token]))
        waiting = await fixture.start_blocked(blocker.id, type="waiting")
        deleted = await fixture.run(fixture.store.chains.delete([first.id], fixture.now))
        assert sorted(deleted) == [first.id, successor.id]
        for table, rows in (await fixture.harness.contents()).items():
            assert not any(first.id in row or successor.id in row for row in rows), table
        assert {row.id for row in await fixture.read_all()} == {blocker.id, waiting.id}
        await fixture.run(counters_equal_rows(fixture))

    async def test_a_deleted_chain_leaves_what_others_have(self, fixture: StoreFixture) -> None:
        jobs = [fixture.job(key="k"), fixture.job(key="k")]
        await fixture.start_all(jobs)
        gone, kept = await fixture.claim()
        said = [NewProgress(each.id, each.token, each.fence, 0.5, "") for each in (gone, kept)]
        await fixture.run(fixture.store.leases.report(said, fixture.now))
        chains = fixture.store.chains
        for job, exclude in ((gone, []), (kept, [gone.id])):
            key = NewKey(MAIL, "k", job.id, scope="any", exclude=exclude)
            await fixture.run(chains.claim_keys([key], fixture.now))
        keys = await fixture.rows("chain_key")
        await fixture.run(chains.delete([gone.id], fixture.now, keep_keys=True))
        assert await fixture.rows("chain_key") == keys
        (progress,) = await fixture.rows("progress")
        assert kept.id in progress

    async def test_a_chain_is_deleted_in_any_state(self, fixture: StoreFixture) -> None:
        running = await fixture.start_running("a")
        failed = await fixture.finish_new("fail", "b")
        pending = await fixture.start("c")
        chains = [running.id, failed.id, pending.id]
        assert sorted(await fixture.run(fixture.store.chains.delete(chains, fixture.now))) == chains
        assert (await fixture.lease_status(running)).lease == "gone"
        assert not await fixture.finish_as(running, "complete")
        await fixture.run(counters_equal_rows(fixture))

    async def test_an_unknown_chain_deletes_nothing(self, fixture: StoreFixture) -> None:
        await fixture.start()
        before = await fixture.harness.contents()
        assert await fixture.run(fixture.store.chains.delete([fixture.new_id()], fixture.now)) == []
        assert await fixture.harness.contents() == before

    async def test_references_are_the_open_edges_from_other_chains(
        self, fixture: StoreFixture
    ) -> None:
        blocker, closed = await fixture.start("a"), await fixture.start("b")
        waiting = await fixture.start_blocked(blocker.id, type="c")
        waited = await fixture.start_blocked(closed.id, type="d")
        await fixture.start_blocked((await fixture.start("e")).id, type="f")
        await fixture.run(fixture.store.blockers.close([(closed.id, "completed")]))
        references = fixture.store.chains.references
        assert await fixture.run(references([blocker.id, closed.id])) == [
            Reference(blocker.id, waiting.id, waiting.chain_id)
        ]
        assert await fixture.run(references([blocker.id, waiting.id, waited.id])) == []

    async def test_the_way_down_knows_every_blocker_of_every_job(
        self, fixture: StoreFixture
    ) -> None:
        first, second = await fixture.start("a"), await fixture.start("b")
        job = await fixture.start_running()
        successor = fixture.next_job(job)
        await fixture.finish_as(job, "continue", next=successor)
        waiting = await fixture.start_blocked(first.id, second.id, type="c")
        await fixture.run(fixture.store.blockers.close([(first.id, "completed")]))
        blocking = fixture.store.chains.blocking
        assert await fixture.run(blocking([waiting.id])) == {first.id, second.id}
        assert await fixture.run(blocking([job.chain_id])) == set()

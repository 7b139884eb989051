"""Inputs of newer versions than a worker reads: its claims leave them alone, and nothing readable waits behind them."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.records import NewJob, UnreadableGroup
from holdfast.core.worker_presence import WorkerSign
from tests.conformance.claiming import LINES, Lines, ids
from tests.conformance.harness import MAIL, SECOND, Conformance, StoreFixture
from tests.conformance.limiting import LimitedConformance, LimitFixture

ORDERED = pytest.mark.parametrize("ordered", [None, "skip"], ids=["unordered", "ordered"])
SIGN = WorkerSign("w-1", "w", "h", 1, "1", 1, f'["{MAIL}"]', "{}", None, 20_000)


class NewerVersionConformance(Conformance):
    """Claims of types without limits."""

    @LINES
    async def test_a_claim_leaves_what_it_cannot_read_and_takes_what_is_behind(
        self, fixture: StoreFixture, lines: Lines
    ) -> None:
        newer = await fixture.start(version=3)
        first, second = await fixture.start(), await fixture.start(version=2)
        assert ids(await fixture.claim(priorities=lines, reads=2)) == [first.id, second.id]
        record = await fixture.read(newer.id)
        assert (record.state, record.attempt, record.fence, record.version) == ("pending", 0, 0, 3)
        assert await fixture.claim(priorities=lines, reads=2) == []
        (job,) = await fixture.claim(priorities=lines, reads=3)
        assert (job.id, job.attempt, job.version) == (newer.id, 1, 3)

    async def test_each_type_has_a_version_of_its_own(self, fixture: StoreFixture) -> None:
        for type in ("a", "b"):
            await fixture.start(type, version=2)
        assert [each.type for each in await fixture.claim("a", reads=2)] == ["a"]
        assert await fixture.claim("b", reads=1) == []

    async def test_many_newer_jobs_do_not_hide_a_readable_one(self, fixture: StoreFixture) -> None:
        await fixture.start_all([fixture.job(version=2) for _ in range(250)])
        readable = await fixture.start()
        assert ids(await fixture.claim(limit=1, reads=1)) == [readable.id]

    async def test_the_next_due_time_is_that_of_a_readable_job(self, fixture: StoreFixture) -> None:
        due = [fixture.job(version=2, at=fixture.now + each * SECOND) for each in range(1, 20)]
        await fixture.start_all(due)
        assert await self._next_due(fixture, 2) == SECOND
        assert await self._next_due(fixture, 1) is None
        await fixture.start_all([fixture.job(at=fixture.now + 30 * SECOND)])
        assert await self._next_due(fixture, 1) == 30 * SECOND

    async def test_behind_many_newer_jobs_the_next_look_is_when_the_fiftieth_is_due(
        self, fixture: StoreFixture
    ) -> None:
        later = [fixture.job(version=2, at=fixture.now + each * SECOND) for each in range(1, 60)]
        await fixture.start_all(later)
        await fixture.start_all([fixture.job(at=fixture.now + 5_000 * SECOND)])
        assert await self._next_due(fixture, 1) == 50 * SECOND

    async def test_the_last_newer_jobs_that_have_been_due_for_a_while_are_told_by_queue(
        self, fixture: StoreFixture
    ) -> None:
        await fixture.start(version=3)
        await fixture.start_all([fixture.job(version=2, at=fixture.now + SECOND)])
        last = await fixture.start(version=2)
        urgent = await fixture.start(version=2, priority=1)
        await fixture.start("other", version=2)
        began = fixture.now
        assert (
            await fixture.run(fixture.store.unreadable.newer([MAIL], {MAIL: 1}, fixture.now)) == []
        )
        fixture.pass_time(seconds=5)
        reads = {MAIL: 1, "none": 1}
        newer = await fixture.run(fixture.store.unreadable.newer(list(reads), reads, fixture.now))
        places = {(type, priority, id) for type, priority, _, id in newer}
        assert {(MAIL, 5, last.id), (MAIL, 1, urgent.id)} <= places
        assert {(type, at) for type, _, at, _ in newer} == {(MAIL, began)}
        assert (
            await fixture.run(fixture.store.unreadable.newer([MAIL], {MAIL: 3}, fixture.now)) == []
        )

    async def test_a_successor_bears_its_version(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        following = fixture.next_job(job, version=2)
        await fixture.finish_as(job, "continue", next=following)
        assert await fixture.claim("next", reads=1) == []
        assert ids(await fixture.claim("next", reads=2)) == [following.id]

    async def test_a_redriven_job_bears_its_version(self, fixture: StoreFixture) -> None:
        await fixture.start(version=2)
        (job,) = await fixture.claim(reads=2)
        await fixture.finish_as(job, "fail", error="boom")
        await fixture.run(fixture.store.jobs.redrive([job.id], now=fixture.now))
        assert await fixture.claim(reads=1) == []
        assert ids(await fixture.claim(reads=2)) == [job.id]

    async def test_a_job_that_was_blocked_bears_its_version(self, fixture: StoreFixture) -> None:
        blocker = await fixture.start_running("first")
        waiting = await fixture.start_blocked(blocker.id, version=2)
        await fixture.finish_as(blocker, "complete")
        await fixture.run(fixture.store.blockers.close([(blocker.id, "completed")]))
        await fixture.run(fixture.store.blockers.open_jobs([waiting.id], fixture.now))
        assert await fixture.claim(reads=1) == []
        assert ids(await fixture.claim(reads=2)) == [waiting.id]

    @pytest.mark.parametrize(
        ("reads", "counted"),
        [('{"mail": 2}', 1), ('{"mail": 3}', 0), ("{}", 2), (None, 0)],
        ids=["some", "all", "none", "not-said"],
    )
    async def test_due_jobs_that_no_live_worker_reads_are_counted(
        self, fixture: StoreFixture, reads: str | None, counted: int
    ) -> None:
        for version in (None, 2, 3):
            await fixture.start(version=version)
        await fixture.start_all([fixture.job(version=3, at=fixture.now + 60 * SECOND)])
        store = fixture.store.unreadable
        # Without a worker for the type, that is what is wrong with them.
        assert await fixture.run(store.count(10, fixture.now)) == 0
        sign = msgspec.structs.replace(SIGN, reads=reads)
        await fixture.run(fixture.store.workers.sign(sign, fixture.now))
        assert await fixture.run(store.count(10, fixture.now)) == counted
        groups = [UnreadableGroup(MAIL, counted, fixture.now)] if counted else []
        assert await fixture.run(store.groups(fixture.now)) == groups
        fixture.pass_time(seconds=20)
        assert await fixture.run(store.count(10, fixture.now)) == 0

    async def _next_due(self, fixture: StoreFixture, reads: int) -> int | None:
        jobs = fixture.store.jobs
        return await fixture.run(jobs.next_due([MAIL], 0, fixture.now, {MAIL: reads}))


class NewerVersionInPartitionConformance(LimitedConformance):
    """Claims through partitions."""

    async def _put(
        self, fixture: LimitFixture, ordered: str | None, *versions: int
    ) -> list[NewJob]:
        fields = {} if ordered is None else {"ordered": True}
        jobs: list[NewJob] = []
        for version in versions:
            jobs += await fixture.put("a", version=None if version == 1 else version, **fields)
            fixture.pass_time(ms=1)
        return jobs

    @ORDERED
    async def test_a_poll_leaves_what_it_cannot_read_to_workers_that_do(
        self, fixture: LimitFixture, ordered: str | None
    ) -> None:
        (newer,) = await self._put(fixture, ordered, 2)
        for _ in range(3):
            answer = await fixture.look(allowed=2, ordered=ordered, reads=1)
            assert (answer.jobs, answer.left, answer.signals) == ([], 0, 0)
        record = await fixture.read(newer.id)
        assert (record.state, record.attempt, record.fence) == ("pending", 0, 0)
        assert ids(await fixture.take(allowed=2, ordered=ordered, reads=2)) == [newer.id]

    async def test_what_is_readable_comes_past_a_newer_job(self, fixture: LimitFixture) -> None:
        newer, first, second = await self._put(fixture, None, 3, 1, 2)
        assert ids(await fixture.take(reads=2)) == [first.id, second.id]
        assert await fixture.take(reads=2) == []
        assert ids(await fixture.take(reads=3)) == [newer.id]

    async def test_a_newer_job_at_the_head_holds_an_ordered_queue(
        self, fixture: LimitFixture
    ) -> None:
        first, newer, last = await self._put(fixture, "skip", 1, 2, 1)
        (job,) = await fixture.take(ordered="skip", reads=1)
        assert job.id == first.id
        await fixture.finish_as(job, "complete")
        for _ in range(3):
            assert await fixture.take(ordered="skip", reads=1) == []
            fixture.pass_time(seconds=1)
        (job,) = await fixture.take(ordered="skip", reads=2)
        assert job.id == newer.id
        await fixture.finish_as(job, "complete")
        assert ids(await fixture.take(ordered="skip", reads=1)) == [last.id]

    async def test_an_old_worker_that_answers_the_signal_of_a_freed_place_leaves_one_for_newer_ones(
        self, fixture: LimitFixture
    ) -> None:
        _, newer = await self._put(fixture, None, 1, 2)
        # The newer worker finds the place taken, and answers all signals.
        (job,) = await fixture.take(allowed=1, reads=2)
        assert await fixture.take(allowed=1, reads=2) == []
        await fixture.finish_as(job, "complete")
        for _ in range(3):
            assert await fixture.take(allowed=1, reads=1) == []
        assert ids(await fixture.take(allowed=1, reads=2)) == [newer.id]

    async def test_a_job_of_the_version_between_is_found_by_workers_between(
        self, fixture: LimitFixture
    ) -> None:
        _, newest, newer = await self._put(fixture, None, 1, 4, 3)
        (job,) = await fixture.take(allowed=1, reads=4)
        assert await fixture.take(allowed=1, reads=4) == []
        await fixture.finish_as(job, "complete")
        assert await fixture.take(allowed=1, reads=1) == []
        (job,) = await fixture.take(allowed=1, reads=3)
        assert job.id == newer.id
        await fixture.finish_as(job, "complete")
        assert await fixture.take(allowed=1, reads=3) == []
        assert ids(await fixture.take(allowed=1, reads=4)) == [newest.id]

    async def test_a_retried_newer_job_frees_its_place_for_readable_ones(
        self, fixture: LimitFixture
    ) -> None:
        newer, readable = await self._put(fixture, None, 2, 1)
        (job,) = await fixture.take(allowed=1, reads=2)
        assert job.id == newer.id
        assert await fixture.take(allowed=1, reads=1) == []
        await fixture.finish_as(job, "retry", delay_ms=60_000, error="boom")
        assert ids(await fixture.take(allowed=1, reads=1)) == [readable.id]

    async def test_what_is_newer_is_not_moved_into_a_partition(self, fixture: LimitFixture) -> None:
        await fixture.start(version=2)
        limits = fixture.store.limits
        assert await fixture.run(limits.unqueued(MAIL, 10, 1)) == []
        assert len(await fixture.run(limits.unqueued(MAIL, 10, 2))) == 1

"""Jobs of one key that run together: when a batch is full, and how long it waits for more."""

from __future__ import annotations

from holdfast.core.partitions import BatchRule
from tests.conformance.harness import SECOND
from tests.conformance.limiting import LimitedConformance, LimitFixture, by_key

BATCH = BatchRule(4, 10_000)
"""Four jobs of a key, or what came within ten seconds."""


class BatchConformance(LimitedConformance):
    """Jobs of a key are taken together: a whole batch at once, fewer when they have waited long enough."""

    async def test_a_whole_batch_goes_at_once_and_the_rest_waits_for_more(
        self, fixture: LimitFixture
    ) -> None:
        await fixture.put("a", 6)
        answer = await fixture.look(batch=BATCH, calls=3)
        assert by_key(answer.jobs) == {"a": 4}
        assert answer.next_us == 10 * SECOND
        fixture.pass_time(seconds=10)
        assert by_key(await fixture.take(batch=BATCH)) == {"a": 2}

    async def test_a_part_of_a_batch_goes_when_its_first_job_has_waited_long_enough(
        self, fixture: LimitFixture
    ) -> None:
        await fixture.put("a", 1)
        assert (await fixture.look(batch=BATCH)).next_us == 10 * SECOND
        fixture.pass_time(seconds=9)
        await fixture.put("a", 1)
        answer = await fixture.look(batch=BATCH)
        assert (answer.jobs, answer.next_us) == ([], SECOND)
        fixture.pass_time(seconds=1)
        answer = await fixture.look(batch=BATCH)
        assert (by_key(answer.jobs), answer.next_us) == ({"a": 2}, None)

    async def test_the_last_job_of_a_batch_wakes_it(self, fixture: LimitFixture) -> None:
        await fixture.put("a", 3)
        assert await fixture.take(batch=BATCH) == []
        fixture.pass_time(seconds=2)
        await fixture.put("a", 1)
        assert by_key(await fixture.take(batch=BATCH)) == {"a": 4}

    async def test_what_was_due_for_longer_than_the_wait_goes_at_once(
        self, fixture: LimitFixture
    ) -> None:
        await fixture.put("a", 2)
        fixture.pass_time(seconds=60)
        assert by_key(await fixture.take(batch=BATCH)) == {"a": 2}

    async def test_a_planned_job_waits_for_more_from_the_moment_it_is_due(
        self, fixture: LimitFixture
    ) -> None:
        await fixture.put("a", at=fixture.now + 30 * SECOND)
        assert (await fixture.look(batch=BATCH)).next_us == 30 * SECOND
        fixture.pass_time(seconds=30)
        assert (await fixture.look(batch=BATCH)).next_us == 10 * SECOND
        fixture.pass_time(seconds=10)
        assert len(await fixture.take(batch=BATCH)) == 1

    async def test_without_a_wait_only_the_key_counts(self, fixture: LimitFixture) -> None:
        await fixture.put("a", 3)
        await fixture.put("b", 2)
        rule = BatchRule(4)
        first = by_key(await fixture.take(batch=rule))
        second = by_key(await fixture.take(batch=rule))
        assert sorted([first, second], key=str) == [{"a": 3}, {"b": 2}]

    async def test_a_look_takes_jobs_for_as_many_calls_as_were_asked_for(
        self, fixture: LimitFixture
    ) -> None:
        for key in "abcd":
            await fixture.put(key, 5)
        answer = await fixture.look(batch=BATCH, calls=3)
        assert sorted(by_key(answer.jobs).values()) == [4, 4, 4]
        assert answer.left > 0
        assert list(by_key(await fixture.take(batch=BATCH, calls=3)).values()) == [4]
        assert await fixture.take(batch=BATCH, calls=3) == []

    async def test_one_key_fills_the_calls_that_no_other_needs(self, fixture: LimitFixture) -> None:
        await fixture.put("a", 10)
        assert by_key(await fixture.take(batch=BATCH, calls=2)) == {"a": 8}

    async def test_a_limit_that_is_lower_than_a_batch_cuts_it(self, fixture: LimitFixture) -> None:
        await fixture.put("a", 6)
        jobs = await fixture.take(batch=BATCH, allowed=3)
        assert by_key(jobs) == {"a": 3}
        assert await fixture.take(batch=BATCH, allowed=3) == []
        for job in jobs:
            await fixture.finish_as(job, "complete")
        fixture.pass_time(seconds=10)
        assert by_key(await fixture.take(batch=BATCH, allowed=3)) == {"a": 3}

    async def test_a_released_batch_is_taken_again_without_another_wait(
        self, fixture: LimitFixture
    ) -> None:
        await fixture.put("a", 2)
        fixture.pass_time(seconds=10)
        jobs = await fixture.take(batch=BATCH)
        await fixture.run(fixture.store.leases.release([jobs[0].token], now=fixture.now))
        again = await fixture.take(batch=BATCH)
        assert {job.id for job in again} == {job.id for job in jobs}

    async def test_urgent_jobs_of_a_key_are_in_the_first_batch(self, fixture: LimitFixture) -> None:
        await fixture.put("a", 3)
        urgent = await fixture.put("a", 2, priority=1)
        jobs = await fixture.take(batch=BATCH)
        assert len(jobs) == 4
        assert {each.id for each in urgent} < {each.id for each in jobs}

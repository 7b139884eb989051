"""Turns and order: keys of a type take turns, and jobs of one key run one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.partitions import partition_id
from holdfast.core.records import ClaimedJob, Ending, NewJob
from tests.conformance.harness import BACKOFF_MS, MAIL, SECOND
from tests.conformance.limiting import LimitedConformance, LimitFixture, by_key


class TurnConformance(LimitedConformance):
    """Keys take turns, and a heavier one gets more of each."""

    async def test_a_large_backlog_of_one_key_delays_no_other(self, fixture: LimitFixture) -> None:
        await fixture.put("large", 300)
        for key in "abcde":
            await fixture.put(key, 4)
        order: list[str] = []
        while order.count("large") < 40:
            jobs = await fixture.take(10)
            order += [key for key, number in by_key(jobs).items() for _ in range(number)]
            for job in jobs:
                await fixture.finish_as(job, "complete")
        assert len(order) - order.count("large") == 20

    async def test_many_wakeups_of_one_key_are_one_turn(self, fixture: LimitFixture) -> None:
        for _ in range(30):
            await fixture.put("large")
        await fixture.put("small")
        taken: list[ClaimedJob] = []
        for window in (10, 20):
            taken += await fixture.take(10, window=window)
        assert by_key(taken)["small"] == 1
        assert by_key(taken)["large"] <= 11

    async def test_a_heavier_key_gets_more_of_each_turn(self, fixture: LimitFixture) -> None:
        for key in "abc":
            await fixture.put(key, 30)
        jobs = await fixture.take(10, weights={"mail#b": 3})
        jobs += await fixture.take(15, weights={"mail#b": 3})
        for light in "ac":
            assert 2.5 <= by_key(jobs)["b"] / by_key(jobs)[light] <= 3.5


class OrderConformance(LimitedConformance):
    """One at a time and first in, first out, whatever happens to the first."""

    async def put_in_order(self, fixture: LimitFixture, number: int, **fields: Any) -> list[NewJob]:
        """Write jobs of one key, one after the other."""
        jobs: list[NewJob] = []
        for _ in range(number):
            jobs += await fixture.put("a", ordered=True, **fields)
            fixture.pass_time(ms=1)
        return jobs

    async def test_a_job_in_line_that_nobody_handles_is_due_from_its_time_on(
        self, fixture: LimitFixture
    ) -> None:
        unhandled = fixture.store.events.unhandled
        blocker = await fixture.start("other")
        await fixture.start_blocked(blocker.id, gate=partition_id(MAIL, "a"), ordered=True)
        (plain,) = await fixture.put("a")
        (ordered,) = await fixture.put("b", ordered=True)
        await fixture.put("a", at=fixture.now + 2_000_000)
        fixture.pass_time(seconds=1)
        assert await fixture.run(unhandled(MAIL, 1_001, 10, fixture.now)) == []
        found = await fixture.run(unhandled(MAIL, 1_000, 10, fixture.now))
        assert found == [plain.id, ordered.id]

    async def test_jobs_run_one_at_a_time_in_order(self, fixture: LimitFixture) -> None:
        jobs = await self.put_in_order(fixture, 4)
        for expected in jobs:
            (job,) = await fixture.take(ordered="hold")
            assert job.id == expected.id
            await fixture.finish_as(job, "complete")

    @pytest.mark.parametrize("kind", ["retry", "snooze", "release"])
    async def test_a_job_that_comes_back_keeps_its_place(
        self, fixture: LimitFixture, kind: Any
    ) -> None:
        first, second = await self.put_in_order(fixture, 2)
        (job,) = await fixture.take(ordered="skip")
        await fixture.finish_as(job, kind, delay_ms=5_000)
        if kind != "release":
            answer = await fixture.look(ordered="skip")
            assert (answer.jobs, answer.next_us) == ([], 5 * SECOND)
            assert (await fixture.read(first.id)).available_at == fixture.now + 5 * SECOND
            fixture.pass_time(seconds=5)
        (again,) = await fixture.take(ordered="skip")
        assert again.id == first.id
        await fixture.finish_as(again, "complete")
        assert [each.id for each in await fixture.take(ordered="skip")] == [second.id]

    async def test_a_crashed_job_keeps_its_place(self, fixture: LimitFixture) -> None:
        first, _ = await self.put_in_order(fixture, 2)
        for _ in range(2):
            claimed = await fixture.take(ordered="hold", lease_ms=1_000)
            assert [each.id for each in claimed] == [first.id]
            fixture.pass_time(seconds=1)
            await fixture.reap()
        # After its second crash it waits, and the others with it.
        assert await fixture.take(ordered="hold") == []
        fixture.pass_time(seconds=BACKOFF_MS // 1000)
        assert [each.id for each in await fixture.take(ordered="hold")] == [first.id]

    async def test_no_priority_overtakes_in_an_ordered_line(self, fixture: LimitFixture) -> None:
        (first,) = await self.put_in_order(fixture, 1, priority=9)
        (second,) = await self.put_in_order(fixture, 1, priority=0)
        for expected in (first, second):
            (job,) = await fixture.take(ordered="hold")
            assert job.id == expected.id
            await fixture.finish_as(job, "complete")

    async def test_a_job_that_waits_at_its_place_is_made_due_there(
        self, fixture: LimitFixture
    ) -> None:
        first, _ = await self.put_in_order(fixture, 2)
        (job,) = await fixture.take(ordered="hold")
        await fixture.finish_as(job, "retry", delay_ms=60_000)
        assert await fixture.take(ordered="hold") == []
        await fixture.run(fixture.store.jobs.trigger([first.id], fixture.now))
        assert [each.id for each in await fixture.take(ordered="hold")] == [first.id]

    @pytest.mark.parametrize("how", ["by its handler", "from outside", "with its worker"])
    async def test_a_line_waits_for_its_dead_letter_until_it_is_redriven(
        self, fixture: LimitFixture, how: str
    ) -> None:
        first, second = await self.put_in_order(fixture, 2, priority=9, max_attempts=1)
        (job,) = await fixture.take(ordered="hold", lease_ms=1_000)
        if how == "by its handler":
            await fixture.finish_as(job, "fail", error="no")
        elif how == "from outside":
            await fixture.run(fixture.store.jobs.end([Ending(job.id, "failed")], fixture.now))
        else:
            fixture.pass_time(seconds=1)
            await fixture.reap()
        assert await fixture.take(ordered="hold") == []
        (place,) = await fixture.run(fixture.store.limits.place([second.id]))
        assert place.held_by == first.id
        await fixture.run(fixture.store.jobs.redrive([first.id], now=fixture.now))
        (again,) = await fixture.take(ordered="hold")
        assert again.id == first.id
        await fixture.finish_as(again, "complete")
        assert [each.id for each in await fixture.take(ordered="hold")] == [second.id]

    async def test_a_line_goes_on_when_its_dead_letter_is_dropped(
        self, fixture: LimitFixture
    ) -> None:
        _, second = await self.put_in_order(fixture, 2)
        (job,) = await fixture.take(ordered="hold")
        await fixture.finish_as(job, "fail", error="no")
        assert await fixture.take(ordered="hold") == []
        await fixture.run(fixture.store.chains.delete([job.chain_id], fixture.now))
        assert [each.id for each in await fixture.take(ordered="hold")] == [second.id]

    async def test_a_line_that_skips_goes_on_after_a_failure(self, fixture: LimitFixture) -> None:
        _, second = await self.put_in_order(fixture, 2)
        (job,) = await fixture.take(ordered="skip")
        await fixture.finish_as(job, "fail", error="no")
        assert [each.id for each in await fixture.take(ordered="skip")] == [second.id]

"""Limits and rates that count what jobs cost: what fits goes, in order, and nothing goes beyond."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.partitions import (
    BatchRule,
    LimitedAnswer,
    LimitedClaim,
    PartitionRule,
    QueuedJob,
)
from holdfast.core.records import ClaimedJob, LeaseClass
from holdfast_costs.settlement import settle
from tests.conformance.harness import (
    BACKOFF_CAP_MS,
    BACKOFF_MS,
    LEASE_MS,
    MAIL,
    WORKER,
    Conformance,
    Harness,
)
from tests.conformance.limiting import EVERY_PRIORITY, LimitFixture

PERIOD_MS = 10_000


def costs(
    limit: int | None = None, rate: int | None = None, id: str = MAIL, **fields: Any
) -> PartitionRule:
    """A rule that counts costs; as declarations do, it bounds the number of those that run."""
    allowed = None if limit is None else 10_000
    bounds = {"cost_allowed": limit, "cost_rate": rate, "cost_period_ms": PERIOD_MS}
    return PartitionRule(id, allowed, **bounds | fields)


class CostFixture(LimitFixture):
    """A store with a type whose jobs cost something."""

    def __init__(self, harness: Harness) -> None:
        super().__init__(harness)
        self.said: dict[str, int] = {}

    async def look(
        self, limit: int = 100, *, lease_ms: int = LEASE_MS, **fields: Any
    ) -> LimitedAnswer:
        """Poll once, with the rule of each key and those of all keys."""
        rules = (fields.get("per_key", PartitionRule(MAIL)), *fields.get("shared", ()))
        bounds = [each for rule in rules for each in (rule.cost_allowed, rule.cost_rate) if each]
        claim = LimitedClaim(
            **{
                "worker": WORKER,
                "type": MAIL,
                "limit": limit,
                "lease": LeaseClass(self.new_id(), lease_ms, 25, BACKOFF_MS, BACKOFF_CAP_MS),
                "per_key": PartitionRule(MAIL),
                "marks": EVERY_PRIORITY,
                "per_round": 10,
                "max_cost": min(bounds),
            }
            | fields
        )
        return await self.run(self.store.jobs.claim_limited(claim, self.now))

    async def take(self, limit: int = 100, **fields: Any) -> list[ClaimedJob]:
        """Poll as long as something comes."""
        found: list[ClaimedJob] = []
        while jobs := (await self.look(limit, **fields)).jobs:
            found += jobs
        return found

    async def heap(self, key: str, *given: int) -> list[str]:
        """Write jobs of a key that cost so much, in this order."""
        ids = []
        for cost in given:
            (job,) = await self.put(key, cost=cost)
            self.said[job.id] = cost
            ids.append(job.id)
            self.pass_time(ms=1)
        return ids

    def cost_of(self, job: ClaimedJob) -> int:
        """What a job was said to cost."""
        return self.said[job.id]

    async def settle(self, job: ClaimedJob, spent: int, rule: PartitionRule) -> bool:
        """Say what an attempt spent in truth."""
        rules = [(rule if rule.id != MAIL else _of(rule, job))]
        return await self.run(settle(self.store, job, spent, rules, self.now))


def _of(rule: PartitionRule, job: ClaimedJob) -> PartitionRule:
    return costs(rule.cost_allowed, rule.cost_rate, job.gate or "")


class CostConformance(Conformance):
    """What jobs cost is counted instead of how many they are."""

    @pytest.fixture
    def fixture(self, harness: Harness) -> CostFixture:
        """A store with nothing in it, at the start of time."""
        return CostFixture(harness)

    async def test_jobs_run_at_once_as_far_as_their_costs_fit(self, fixture: CostFixture) -> None:
        ids = await fixture.heap("a", 40, 50, 10, 1)
        taken = await fixture.take(per_key=costs(100))
        assert [each.id for each in taken] == ids[:3]
        await fixture.finish_as(taken[2], "complete")
        assert [each.id for each in await fixture.take(per_key=costs(100))] == ids[3:]

    async def test_jobs_start_in_a_period_as_far_as_their_costs_fit(
        self, fixture: CostFixture
    ) -> None:
        await fixture.heap("a", *[each % 7 for each in range(60)])
        started: list[tuple[int, int]] = []
        for step in range(200):
            fixture.pass_time(ms=500 + 137 * (step % 3))
            jobs = await fixture.take(3, per_key=costs(rate=20))
            started += [(fixture.now, fixture.cost_of(each)) for each in jobs]
        for first, _ in started:
            within = [cost for at, cost in started if first <= at < first + PERIOD_MS * 1000]
            assert sum(within) <= 20
        assert len(started) == 60

    async def test_many_costs_are_counted_in_steps_and_never_too_few(
        self, fixture: CostFixture
    ) -> None:
        await fixture.heap("a", *[100 + each % 300 for each in range(120)])
        started: list[tuple[int, int]] = []
        for _ in range(120):
            fixture.pass_time(ms=397)
            jobs = await fixture.take(3, per_key=costs(rate=3_000))
            started += [(fixture.now, fixture.cost_of(each)) for each in jobs]
        for first, _ in started:
            within = [cost for at, cost in started if first <= at < first + PERIOD_MS * 1000]
            assert sum(within) <= 3_000
        assert sum(cost for _, cost in started) > 3_000 * 3

    @pytest.mark.parametrize("is_shared", [False, True])
    async def test_a_heavy_job_is_not_overtaken_by_lighter_ones(
        self, fixture: CostFixture, is_shared: bool
    ) -> None:
        ids = await fixture.heap("a", 60, 50, 1, 0)
        rule = costs(rate=100, id="@api" if is_shared else MAIL)
        given: dict[str, Any] = {"shared": (rule,)} if is_shared else {"per_key": rule}
        first = await fixture.take(**given)
        assert [each.id for each in first] == ids[:1]
        fixture.pass_time(seconds=4)
        answer = await fixture.look(**given)
        assert answer.jobs == []
        # One signal, when the heavy one fits; nobody polls until then.
        left = PERIOD_MS * 1000 - (fixture.now - first[0].claimed_at)
        assert answer.next_us == left
        fixture.pass_time(ms=left // 1000)
        assert [each.id for each in await fixture.take(**given)] == ids[1:]

    async def test_what_costs_nothing_goes_as_long_as_nothing_waits_before_it(
        self, fixture: CostFixture
    ) -> None:
        ids = await fixture.heap("a", 100, 0, 0, 1, 0)
        taken = await fixture.take(per_key=costs(rate=100))
        assert [each.id for each in taken] == ids[:3]

    async def test_jobs_without_a_cost_cost_one(self, fixture: CostFixture) -> None:
        await fixture.put("a", 5)
        assert len(await fixture.take(per_key=costs(rate=3))) == 3

    async def test_keys_have_their_own_costs(self, fixture: CostFixture) -> None:
        for key in "ab":
            await fixture.heap(key, 60, 60)
        assert len(await fixture.take(per_key=costs(rate=100))) == 2

    async def test_numbers_and_costs_hold_together(self, fixture: CostFixture) -> None:
        for key in "ab":
            await fixture.heap(key, *[10] * 12)
        few = PartitionRule(MAIL, None, 3, PERIOD_MS, None, 100, PERIOD_MS)
        assert len(await fixture.take(per_key=few)) == 6
        many = PartitionRule(MAIL, None, 50, PERIOD_MS, None, 40, PERIOD_MS)
        fixture.pass_time(ms=PERIOD_MS)
        assert len(await fixture.take(per_key=many)) == 8

    async def test_a_cost_of_all_keys_holds_beside_that_of_each(self, fixture: CostFixture) -> None:
        for key in "abc":
            await fixture.heap(key, 30, 30, 30)
        shared = (costs(limit=100, id=MAIL), costs(rate=80, id="@api"))
        taken = await fixture.take(per_key=costs(rate=40), shared=shared)
        assert len(taken) == 2
        assert len({each.gate for each in taken}) == 2
        answer = await fixture.look(per_key=costs(rate=40), shared=shared)
        assert (answer.jobs, answer.held_back, answer.signals) == ([], True, 0)

    async def test_a_job_that_no_longer_fits_runs_alone(self, fixture: CostFixture) -> None:
        ids = await fixture.heap("a", 10, 500, 10)
        rule = costs(rate=100)
        assert [each.id for each in await fixture.take(per_key=rule)] == ids[:1]
        fixture.pass_time(ms=PERIOD_MS)
        assert [each.id for each in await fixture.take(per_key=rule)] == ids[1:2]
        fixture.pass_time(ms=PERIOD_MS)
        assert [each.id for each in await fixture.take(per_key=rule)] == ids[2:]

    async def test_every_attempt_costs(self, fixture: CostFixture) -> None:
        await fixture.heap("a", 60)
        rule = costs(rate=100)
        (job,) = await fixture.take(per_key=rule)
        await fixture.finish_as(job, "retry", delay_ms=0)
        assert await fixture.take(per_key=rule) == []
        fixture.pass_time(ms=PERIOD_MS)
        assert len(await fixture.take(per_key=rule)) == 1

    async def test_a_redriven_job_costs_what_it_did(self, fixture: CostFixture) -> None:
        (id,) = await fixture.heap("a", 60)
        (job,) = await fixture.take(per_key=costs(100))
        await fixture.finish_as(job, "fail")
        await fixture.run(fixture.store.jobs.redrive([id], now=fixture.now))
        await fixture.heap("a", 50)
        assert [each.id for each in await fixture.take(per_key=costs(100))] == [id]

    async def test_a_backlog_that_lines_up_brings_its_costs(self, fixture: CostFixture) -> None:
        jobs = [fixture.job() for _ in range(2)]
        await fixture.start_all(jobs)
        found = await fixture.run(fixture.store.limits.unqueued(MAIL, 10))
        moves = [QueuedJob(each.id, f"{MAIL}#a", each.available_at, 60) for each in found]
        await fixture.run(fixture.store.limits.enqueue(moves, False, fixture.now))
        assert len(await fixture.take(per_key=costs(100))) == 1

    async def test_a_batch_takes_what_fits(self, fixture: CostFixture) -> None:
        await fixture.heap("a", 30, 30, 30, 30, 30)
        given: dict[str, Any] = {"batch": BatchRule(4), "per_round": 4}
        first = await fixture.look(per_key=costs(rate=100), **given)
        assert len(first.jobs) == 3

    async def test_an_ordered_queue_counts_costs(self, fixture: CostFixture) -> None:
        jobs = []
        for cost in (60, 60):
            jobs += await fixture.put("a", cost=cost, ordered=True)
            fixture.pass_time(ms=1)
        rule = PartitionRule(MAIL, 1, None, None, None, 100, PERIOD_MS)
        (first,) = await fixture.take(per_key=rule, ordered=True)
        await fixture.finish_as(first, "complete")
        assert await fixture.take(per_key=rule, ordered=True) == []
        fixture.pass_time(ms=PERIOD_MS)
        assert len(await fixture.take(per_key=rule, ordered=True)) == 1

    async def test_what_was_not_spent_is_given_back_at_once(self, fixture: CostFixture) -> None:
        ids = await fixture.heap("a", 80, 60)
        rule = costs(rate=100)
        (job,) = await fixture.take(per_key=rule)
        assert (await fixture.look(per_key=rule)).jobs == []
        assert await fixture.settle(job, 40, rule)
        assert [each.id for each in await fixture.take(per_key=rule)] == ids[1:]

    async def test_what_was_spent_beyond_counts_and_starts_wait(self, fixture: CostFixture) -> None:
        ids = await fixture.heap("a", 10, 10)
        rule = costs(rate=100)
        (job,) = (await fixture.look(1, per_key=rule)).jobs
        assert await fixture.settle(job, 250, rule)
        answer = await fixture.look(per_key=rule)
        left = PERIOD_MS * 1000 - (fixture.now - job.claimed_at)
        assert (answer.jobs, answer.next_us) == ([], left)
        fixture.pass_time(ms=left // 1000)
        assert [each.id for each in await fixture.take(per_key=rule)] == ids[1:]

    async def test_the_last_word_of_an_attempt_counts(self, fixture: CostFixture) -> None:
        await fixture.heap("a", 80, 60)
        rule = costs(rate=100)
        (job,) = await fixture.take(per_key=rule)
        for spent in (90, 0, 70, 70):
            assert await fixture.settle(job, spent, rule)
        assert await fixture.take(per_key=rule) == []
        assert await fixture.settle(job, 40, rule)
        assert len(await fixture.take(per_key=rule)) == 1

    async def test_an_attempt_that_lost_its_job_settles_nothing(self, fixture: CostFixture) -> None:
        await fixture.heap("a", 80, 60)
        rule = costs(rate=100)
        (job,) = await fixture.take(per_key=rule, lease_ms=1_000)
        fixture.pass_time(seconds=1)
        await fixture.reap()
        assert not await fixture.settle(job, 0, rule)
        assert await fixture.take(per_key=rule) == []

    async def test_the_next_attempt_is_charged_anew(self, fixture: CostFixture) -> None:
        await fixture.heap("a", 60)
        rule = costs(rate=100)
        (job,) = await fixture.take(per_key=rule)
        assert await fixture.settle(job, 0, rule)
        await fixture.finish_as(job, "retry", delay_ms=0)
        (again,) = await fixture.take(per_key=rule)
        assert await fixture.settle(again, 50, rule)
        await fixture.heap("a", 50, 1)
        assert len(await fixture.take(per_key=rule)) == 1

    async def test_what_is_settled_after_its_period_changes_nothing(
        self, fixture: CostFixture
    ) -> None:
        await fixture.heap("a", 80, 100)
        rule = costs(rate=100)
        (job,) = await fixture.take(per_key=rule)
        fixture.pass_time(ms=PERIOD_MS)
        assert await fixture.settle(job, 5_000, rule)
        assert len(await fixture.take(per_key=rule)) == 1

    async def test_a_rate_of_all_keys_is_settled_too(self, fixture: CostFixture) -> None:
        await fixture.heap("a", 80)
        await fixture.heap("b", 60)
        rule = costs(rate=100, id="@api")
        (job,) = await fixture.take(shared=(rule,))
        assert await fixture.settle(job, 30, rule)
        assert len(await fixture.take(shared=(rule,))) == 1

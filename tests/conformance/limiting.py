"""Limits and rates per key: what partitions let through, who wakes them, and what was set at run time."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from holdfast.commands.retention import FIRST_ID
from holdfast.core.partitions import (
    BatchRule,
    LimitedAnswer,
    LimitedClaim,
    PartitionRule,
    PartitionState,
    QueuedJob,
    SignalMark,
    every_key,
    partition_id,
)
from holdfast.core.records import ClaimedJob, Ending, Finish, LeaseClass, NewJob
from holdfast.core.worker_presence import WorkerSign
from holdfast.storage.operation import Op
from tests.conformance.harness import (
    BACKOFF_CAP_MS,
    BACKOFF_MS,
    LEASE_MS,
    MAIL,
    SECOND,
    WORKER,
    Conformance,
    Harness,
    StoreFixture,
)
from tests.conformance.workers import counters_equal_rows

CLAIMERS = 8
EVERY_PRIORITY = tuple(SignalMark(priority) for priority in range(10))


def by_key(jobs: list[ClaimedJob]) -> Counter[str]:
    """How many jobs of each key."""
    return Counter((each.gate or "").partition("#")[2] for each in jobs)


class LimitFixture(StoreFixture):
    """A store with a limited type."""

    def at(self, key: str, /, **fields: Any) -> NewJob:
        """Return a job that waits in the line of a key."""
        return self.job(gate=partition_id(MAIL, key), **fields)

    async def put(self, key: str, /, number: int = 1, **fields: Any) -> list[NewJob]:
        """Write jobs of a key."""
        jobs = [self.at(key, **fields) for _ in range(number)]
        await self.start_all(jobs)
        return jobs

    def look_op(
        self,
        limit: int = 100,
        *,
        allowed: int | None = None,
        rate: int | None = None,
        period_ms: int | None = None,
        ordered: str | None = None,
        lease_ms: int = LEASE_MS,
        batch: BatchRule | None = None,
        **fields: Any,
    ) -> Op[LimitedAnswer]:
        """Return one poll of the partitions under a new lease; for the other fields see `LimitedClaim`."""
        defaults: dict[str, Any] = {"worker": WORKER, "window": 400, "partitions": 200}
        claim = LimitedClaim(
            type=MAIL,
            limit=limit,
            lease=LeaseClass(self.new_id(), lease_ms, 25, BACKOFF_MS, BACKOFF_CAP_MS),
            per_key=PartitionRule(MAIL, 1 if ordered else allowed, rate, period_ms),
            ordered=ordered is not None,
            holds=ordered == "hold",
            marks=EVERY_PRIORITY,
            per_round=batch.size if batch else 1,
            batch=batch,
            **defaults | fields,
        )
        return self.store.jobs.claim_limited(claim, self.now)

    async def look(self, limit: int = 100, **options: Any) -> LimitedAnswer:
        """Look once."""
        return await self.run(self.look_op(limit, **options))

    async def take(self, limit: int = 100, **options: Any) -> list[ClaimedJob]:
        """Look once and return what came."""
        return (await self.look(limit, **options)).jobs


class LimitedConformance(Conformance):
    """The base of the classes here."""

    @pytest.fixture
    def fixture(self, harness: Harness) -> LimitFixture:
        """A store with nothing in it, at the start of time."""
        return LimitFixture(harness)


async def _crash(fixture: LimitFixture) -> NewJob:
    """Let a job's worker die."""
    (job,) = await fixture.put("a")
    await fixture.take(lease_ms=1_000)
    fixture.pass_time(seconds=1)
    await fixture.reap()
    return job


class LimitConformance(LimitedConformance):
    """No more than allowed run at once, of a key and of all."""

    async def test_a_claim_through_a_gate_carries_what_was_asked(
        self, fixture: LimitFixture
    ) -> None:
        asked = fixture.at("a", input='{"to": "ana"}', priority=3, key="k", max_attempts=7)
        await fixture.start_all([asked])
        created, claimed_at = fixture.now, fixture.pass_time(ms=5)
        (job,) = await fixture.take(allowed=1)
        assert (job.id, job.type, job.priority, job.attempt) == (asked.id, MAIL, 3, 1)
        assert (job.available_at, job.created_at, job.claimed_at) == (created, created, claimed_at)
        assert (job.input, job.key, job.max_attempts) == ('{"to": "ana"}', "k", 7)
        assert job.gate == "mail#a"
        assert (await fixture.read(job.id)).state == "running"

    async def test_a_job_in_line_is_pending_and_no_plain_claim_sees_it(
        self, fixture: LimitFixture
    ) -> None:
        (job,) = await fixture.put("a")
        record = await fixture.read(job.id)
        assert (record.state, record.available_at) == ("pending", fixture.now)
        fixture.pass_time(seconds=5)
        assert await fixture.claim(priorities=[None]) == []

    async def test_a_start_in_line_repeated_after_an_unknown_commit_is_harmless(
        self, fixture: LimitFixture
    ) -> None:
        first = fixture.at("a")
        await fixture.start_all([first])
        (job,) = await fixture.take(allowed=1)
        await fixture.finish_as(job, "complete")
        before = await fixture.harness.contents()
        insert = fixture.store.jobs.insert
        assert await fixture.run(insert([first], now=fixture.now)) == set()
        assert await fixture.harness.contents() == before
        second = fixture.at("a")
        assert await fixture.run(insert([first, second], now=fixture.now)) == {second.id}
        assert [each.id for each in await fixture.take(allowed=5)] == [second.id]

    async def test_no_more_of_a_key_run_than_allowed(self, fixture: LimitFixture) -> None:
        await fixture.put("a", 5)
        await fixture.put("b", 1)
        assert by_key(await fixture.take(allowed=3)) == {"a": 3, "b": 1}
        assert await fixture.take(allowed=3) == []

    async def test_who_leaves_lets_the_next_in(self, fixture: LimitFixture) -> None:
        jobs = await fixture.put("a", 3)
        for expected in jobs:
            (job,) = await fixture.take(allowed=1)
            assert job.id == expected.id
            assert await fixture.take(allowed=1) == []
            assert await fixture.finish_as(job, "complete")
        assert await fixture.take(allowed=1) == []
        await fixture.run(counters_equal_rows(fixture))

    @pytest.mark.parametrize("kind", ["retry", "snooze", "release", "fail", "cancel"])
    async def test_every_end_of_an_attempt_frees_its_place(
        self, fixture: LimitFixture, kind: Any
    ) -> None:
        first, second = await fixture.put("a", 2)
        (job,) = await fixture.take(allowed=1)
        assert await fixture.finish_as(job, kind, delay_ms=10_000)
        (next_job,) = await fixture.take(allowed=1)
        assert next_job.id == (first.id if kind == "release" else second.id)

    async def test_a_retry_does_not_hold_up_its_key_and_comes_when_it_is_due(
        self, fixture: LimitFixture
    ) -> None:
        first, second = await fixture.put("a", 2)
        (job,) = await fixture.take(allowed=1)
        await fixture.finish_as(job, "retry", delay_ms=10_000)
        (other,) = await fixture.take(allowed=1)
        assert other.id == second.id
        await fixture.finish_as(other, "complete")
        answer = await fixture.look(allowed=1)
        assert (answer.jobs, answer.next_us) == ([], 10 * SECOND)
        fixture.pass_time(seconds=10)
        (again,) = await fixture.take(allowed=1)
        assert (again.id, again.attempt) == (first.id, 2)

    @pytest.mark.parametrize("kind", ["retry", "snooze", "release", "reap"])
    async def test_a_job_that_comes_back_is_in_its_line_and_no_plain_claim_sees_it(
        self, fixture: LimitFixture, kind: Any
    ) -> None:
        (job,) = await fixture.put("a")
        (taken,) = await fixture.take(allowed=1)
        if kind != "reap":
            assert await fixture.finish_as(taken, kind, delay_ms=1_000)
        fixture.pass_time(seconds=3_600)
        await fixture.reap()
        assert await fixture.claim(priorities=[None]) == []
        assert [each.id for each in await fixture.take(allowed=1)] == [job.id]

    async def test_a_job_in_line_whose_worker_died_twice_waits_there_for_its_backoff(
        self, fixture: LimitFixture
    ) -> None:
        job = await _crash(fixture)
        await fixture.take(lease_ms=1_000)
        fixture.pass_time(seconds=1)
        await fixture.reap()
        answer = await fixture.look(allowed=1)
        assert (answer.jobs, answer.next_us) == ([], BACKOFF_MS * 1_000)
        fixture.pass_time(ms=BACKOFF_MS)
        assert [each.id for each in await fixture.take(allowed=1)] == [job.id]

    @pytest.mark.parametrize("kind", ["fail", "reap"])
    async def test_a_redriven_job_is_due_now_at_its_priority(
        self, fixture: LimitFixture, kind: Any
    ) -> None:
        (job,) = await fixture.put("a", priority=3, max_attempts=1)
        (taken,) = await fixture.take(allowed=1)
        if kind == "fail":
            assert await fixture.finish_as(taken, kind)
        fixture.pass_time(seconds=3_600)
        await fixture.reap()
        await fixture.run(fixture.store.jobs.redrive([job.id], now=fixture.now))
        (again,) = await fixture.take(allowed=1)
        assert (again.id, again.priority, again.available_at) == (job.id, 3, fixture.now)

    async def test_a_job_in_line_by_a_clock_that_ran_ahead_is_due_now(
        self, fixture: LimitFixture
    ) -> None:
        right = fixture.now
        fixture.pass_time(seconds=3_600)
        (job,) = await fixture.put("a")
        fixture.now = right
        await fixture.run(fixture.store.leases.heal_queue(FIRST_ID, right))
        assert await fixture.claim(priorities=[None]) == []
        (taken,) = await fixture.take(allowed=1)
        assert (taken.id, taken.available_at) == (job.id, right)

    async def test_an_ordered_job_keeps_its_place_when_a_clock_ran_ahead(
        self, fixture: LimitFixture
    ) -> None:
        right = fixture.pass_time(seconds=10)
        (first,) = await fixture.put("a", ordered=True)
        fixture.pass_time(seconds=1)
        await fixture.put("a", ordered=True)
        fixture.pass_time(seconds=3_600)
        (taken,) = await fixture.take(ordered="skip")
        assert taken.id == first.id
        assert await fixture.finish_as(taken, "retry", delay_ms=5_000)
        fixture.now = right + 10 * SECOND
        await fixture.run(fixture.store.leases.heal_queue(FIRST_ID, fixture.now))
        assert await fixture.take(ordered="skip") == []
        fixture.pass_time(seconds=5)
        assert [each.id for each in await fixture.take(ordered="skip")] == [first.id]

    async def test_a_pause_by_a_clock_that_ran_ahead_begins_now(
        self, fixture: LimitFixture
    ) -> None:
        limits, right = fixture.store.limits, fixture.now
        await fixture.run(limits.rest("mail#b", 60_000, now=right + 60 * SECOND))
        ahead = fixture.pass_time(seconds=3_600)
        await fixture.run(limits.rest("mail#a", 60_000, now=ahead))
        await fixture.run(limits.set("mail#c", allowed=3, now=ahead))
        await fixture.run(fixture.store.leases.heal(right))
        found = {each.id: each for each in await fixture.run(limits.settings(MAIL))}
        assert (found["mail#a"].paused_until, found["mail#a"].changed_at) == (
            right + 60 * SECOND,
            right,
        )
        # One that began a minute ahead may be another server's, and one that is no pause does not wait.
        assert found["mail#b"].paused_until == right + 120 * SECOND
        assert found["mail#c"].changed_at == ahead

    async def test_a_reaped_job_frees_its_place_and_its_late_end_changes_nothing(
        self, fixture: LimitFixture
    ) -> None:
        await fixture.put("a", 2)
        (job,) = await fixture.take(allowed=1, lease_ms=1_000)
        fixture.pass_time(seconds=1)
        await fixture.reap()
        (again,) = await fixture.take(allowed=1)
        assert again.id == job.id
        assert not await fixture.finish_as(job, "complete")
        fixture.pass_time(seconds=60)
        assert await fixture.take(allowed=1) == []

    async def test_a_job_that_fails_with_its_worker_frees_its_place(
        self, fixture: LimitFixture
    ) -> None:
        _, second = await fixture.put("a", 2, max_attempts=1)
        await fixture.take(allowed=1, lease_ms=1_000)
        assert await fixture.take(allowed=1) == []
        fixture.pass_time(seconds=1)
        assert [each.state for each in (await fixture.reap()).reaped] == ["failed"]
        assert [each.id for each in await fixture.take(allowed=1)] == [second.id]

    async def test_a_released_claim_gives_its_places_back(self, fixture: LimitFixture) -> None:
        jobs = await fixture.put("a", 3)
        taken = await fixture.take(allowed=2)
        released = await fixture.run(
            fixture.store.leases.release([taken[0].token], now=fixture.now)
        )
        assert {each.id for each in released} == {each.id for each in taken}
        again = await fixture.take(allowed=2)
        assert [each.id for each in again] == [each.id for each in jobs[:2]]
        assert {each.attempt for each in again} == {1}

    @pytest.mark.parametrize("state", ["cancelled", "completed", "failed"])
    async def test_an_end_from_outside_frees_the_place(
        self, fixture: LimitFixture, state: Any
    ) -> None:
        _, second = await fixture.put("a", 2)
        (job,) = await fixture.take(allowed=1)
        await fixture.run(fixture.store.jobs.end([Ending(job.id, state)], fixture.now))
        (next_job,) = await fixture.take(allowed=1)
        assert next_job.id == second.id
        assert not await fixture.finish_as(job, "complete")

    async def test_a_deleted_chain_frees_the_place(self, fixture: LimitFixture) -> None:
        _, second = await fixture.put("a", 2)
        (job,) = await fixture.take(allowed=1)
        await fixture.run(fixture.store.chains.delete([job.chain_id], fixture.now))
        (next_job,) = await fixture.take(allowed=1)
        assert next_job.id == second.id

    async def test_a_redriven_job_waits_at_its_gate_again(self, fixture: LimitFixture) -> None:
        (first,) = await fixture.put("a")
        (job,) = await fixture.take(allowed=1)
        await fixture.finish_as(job, "fail", error="no")
        await fixture.run(fixture.store.jobs.redrive([first.id], now=fixture.now))
        assert await fixture.claim(priorities=[None]) == []
        await fixture.put("a")
        (again,) = await fixture.take(allowed=1)
        assert (again.id, again.gate) == (first.id, "mail#a")
        assert await fixture.take(allowed=1) == []

    async def test_a_planned_job_comes_when_it_is_due_or_triggered(
        self, fixture: LimitFixture
    ) -> None:
        first, second = (
            fixture.at("a", at=fixture.now + 60 * SECOND),
            fixture.at("b", at=fixture.now + 30 * SECOND),
        )
        await fixture.start_all([first, second])
        assert (await fixture.look()).next_us == 30 * SECOND
        triggered = await fixture.run(fixture.store.jobs.trigger([first.id], fixture.now))
        assert [each.id for each in triggered] == [first.id]
        (job,) = await fixture.take()
        assert job.id == first.id
        fixture.pass_time(seconds=30)
        (job,) = await fixture.take()
        assert job.id == second.id

    async def test_a_blocked_job_lines_up_when_it_is_opened(self, fixture: LimitFixture) -> None:
        blocking = await fixture.start("other")
        job = await fixture.start_blocked(blocking.id, gate=partition_id(MAIL, "a"))
        assert (await fixture.read(job.id)).state == "blocked"
        assert await fixture.take(allowed=1) == []
        closed = await fixture.run(fixture.store.blockers.close([(blocking.id, "completed")]))
        assert [each.job_id for each in closed] == [job.id]
        opened = await fixture.run(fixture.store.blockers.open_jobs([job.id], fixture.now))
        assert [each.id for each in opened] == [job.id]
        assert [each.id for each in await fixture.take(allowed=1)] == [job.id]

    async def test_a_blocked_job_that_is_opened_waits_in_line_for_its_planned_time(
        self, fixture: LimitFixture
    ) -> None:
        blocking = await fixture.start("other")
        planned_at = fixture.now + 10 * SECOND
        job = await fixture.start_blocked(blocking.id, at=planned_at, gate=partition_id(MAIL, "a"))
        await fixture.run(fixture.store.blockers.close([(blocking.id, "completed")]))
        await fixture.run(fixture.store.blockers.open_jobs([job.id], fixture.now))
        answer = await fixture.look(allowed=1)
        assert (answer.jobs, answer.next_us) == ([], 10 * SECOND)
        fixture.pass_time(seconds=10)
        assert [each.id for each in await fixture.take(allowed=1)] == [job.id]

    async def test_a_successor_waits_at_its_own_gate(self, fixture: LimitFixture) -> None:
        await fixture.put("a")
        (job,) = await fixture.take(allowed=1)
        follower = fixture.next_job(job, MAIL, gate=partition_id(MAIL, "b"))
        await fixture.finish_as(job, "continue", next=follower)
        (next_job,) = await fixture.take(allowed=1)
        assert (next_job.id, next_job.gate) == (follower.id, "mail#b")

    async def test_a_job_of_a_late_transaction_is_not_passed_over(
        self, fixture: LimitFixture
    ) -> None:
        late = fixture.at("a")
        fixture.pass_time(seconds=1)
        await fixture.put("a")
        (job,) = await fixture.take(allowed=5)
        assert await fixture.run(fixture.store.jobs.insert([late], now=fixture.now - SECOND))
        assert [each.id for each in await fixture.take(allowed=5)] == [late.id]
        assert job.id != late.id

    async def test_urgent_jobs_of_a_key_come_first(self, fixture: LimitFixture) -> None:
        (usual,) = await fixture.put("a", priority=5)
        (urgent,) = await fixture.put("a", priority=1)
        (job,) = await fixture.take(allowed=1)
        assert job.id == urgent.id
        await fixture.finish_as(job, "complete")
        assert [each.id for each in await fixture.take(allowed=1)] == [usual.id]

    async def test_jobs_without_a_key_are_bound_by_no_limit_of_keys(
        self, fixture: LimitFixture
    ) -> None:
        await fixture.put("", 5)
        assert len(await fixture.take(allowed=1)) == 5

    async def test_a_limit_of_all_keys_holds_beside_that_of_each(
        self, fixture: LimitFixture
    ) -> None:
        for key in "abcd":
            await fixture.put(key, 3)
        shared = (PartitionRule(MAIL, 5),)
        first = await fixture.take(allowed=2, shared=shared)
        assert len(first) == 5
        assert max(by_key(first).values()) == 2
        answer = await fixture.look(allowed=2, shared=shared)
        assert (answer.jobs, answer.held_back) == ([], True)
        await fixture.finish_as(first[0], "complete")
        assert len(await fixture.take(allowed=2, shared=shared)) == 1

    async def test_several_limits_of_all_keys_hold_together(self, fixture: LimitFixture) -> None:
        await fixture.put("", 10)
        shared = (PartitionRule("@db", 4), PartitionRule(MAIL, 7))
        assert len(await fixture.take(shared=shared)) == 4
        assert await fixture.take(shared=(PartitionRule("@db", 4),)) == []
        assert len(await fixture.take(shared=(PartitionRule(MAIL, 7),))) == 3

    async def test_claimers_at_once_never_let_in_more_than_allowed(
        self, fixture: LimitFixture
    ) -> None:
        for key in "abc":
            await fixture.put(key, 10)
        held: list[ClaimedJob] = []
        for _ in range(6):
            answers = await asyncio.gather(
                *(fixture.take(5, allowed=2, worker=f"w{n}") for n in range(CLAIMERS))
            )
            held += [job for jobs in answers for job in jobs]
            assert max(by_key(held).values()) <= 2
        assert by_key(held) == {"a": 2, "b": 2, "c": 2}

    async def test_a_crashed_job_is_left_to_a_worker_that_may_take_it(
        self, fixture: LimitFixture
    ) -> None:
        first = await _crash(fixture)
        fixture.pass_time(seconds=10)
        assert await fixture.take(allow_crashed=False) == []
        fixture.pass_time(seconds=1)
        (again,) = await fixture.take()
        assert (again.id, again.crashes) == (first.id, 1)

    async def test_healthy_jobs_in_line_do_not_wait_behind_crashed_ones(
        self, fixture: LimitFixture
    ) -> None:
        await fixture.put("a", 2)
        crashed = [each.id for each in await fixture.take(lease_ms=1_000)]
        fixture.pass_time(seconds=1)
        await fixture.reap()
        fixture.pass_time(seconds=10)
        healthy = {each.id for key in "ab" for each in await fixture.put(key)}
        taken = await fixture.take(allow_crashed=False)
        assert {each.id for each in taken} == healthy
        fixture.pass_time(seconds=1)
        assert [each.id for each in await fixture.take()] == crashed[:1]

    async def test_a_crashed_job_that_is_due_later_is_not_forgotten_by_who_may_not_take_it(
        self, fixture: LimitFixture
    ) -> None:
        first = await _crash(fixture)
        assert (await fixture.look(allow_crashed=False)).next_us is not None
        fixture.pass_time(seconds=60)
        assert [each.id for each in await fixture.take()] == [first.id]

    async def test_a_gate_nobody_needs_is_removed_and_made_again(
        self, fixture: LimitFixture
    ) -> None:
        await fixture.put("a")
        (job,) = await fixture.take(allowed=1)
        fixture.pass_time(seconds=120)
        assert await self._sweep_partitions(fixture) == 0
        await fixture.finish_as(job, "complete")
        assert await self._sweep_partitions(fixture) == 1
        await fixture.put("a", 2)
        assert len(await fixture.take(allowed=1)) == 1

    async def test_a_shared_gate_stays_while_somebody_is_let_in(
        self, fixture: LimitFixture
    ) -> None:
        shared = (PartitionRule("@db", 1),)
        await fixture.put("", 2)
        (job,) = await fixture.take(shared=shared)
        fixture.pass_time(seconds=120)
        assert await self._sweep_partitions(fixture) == 0
        assert await fixture.take(shared=shared) == []
        await fixture.finish_as(job, "complete")
        assert len(await fixture.take(shared=shared)) == 1

    async def test_a_gate_stays_while_its_starts_count(self, fixture: LimitFixture) -> None:
        rule = {"rate": 1, "period_ms": 600_000}
        await fixture.put("a")
        (job,) = await fixture.take(**rule)
        await fixture.finish_as(job, "complete")
        fixture.pass_time(seconds=599)
        assert await self._sweep_partitions(fixture) == 0
        (second,) = await fixture.put("a")
        assert await fixture.take(**rule) == []
        fixture.pass_time(seconds=1)
        assert [each.id for each in await fixture.take(**rule)] == [second.id]

    async def test_a_gate_stays_while_a_dead_letter_holds_its_line(
        self, fixture: LimitFixture
    ) -> None:
        await fixture.put("a", ordered=True)
        (job,) = await fixture.take(ordered="hold")
        await fixture.finish_as(job, "fail", error="no")
        fixture.pass_time(seconds=120)
        assert await self._sweep_partitions(fixture) == 0
        await fixture.put("a", ordered=True)
        assert await fixture.take(ordered="hold") == []

    async def _sweep_partitions(self, fixture: LimitFixture) -> int:
        _, _, removed = await fixture.run(fixture.store.limits.sweep("", fixture.now))
        return removed


class RateConformance(LimitedConformance):
    """No more start in any period than allowed."""

    async def test_no_more_start_in_any_period_than_allowed(self, fixture: LimitFixture) -> None:
        await fixture.put("a", 40)
        started: list[int] = []
        for step in range(90):
            fixture.pass_time(ms=100 + 37 * (step % 3))
            jobs = await fixture.take(1 + step % 3, rate=5, period_ms=1_000)
            started += [fixture.now] * len(jobs)
        for first in started:
            assert sum(first <= each < first + SECOND for each in started) <= 5
        assert len(started) == 40

    async def test_the_next_look_is_when_the_next_may_start(self, fixture: LimitFixture) -> None:
        await fixture.put("a", 3)
        assert len(await fixture.take(rate=2, period_ms=10_000)) == 2
        fixture.pass_time(seconds=4)
        answer = await fixture.look(rate=2, period_ms=10_000)
        assert (answer.jobs, answer.next_us) == ([], 6 * SECOND)
        fixture.pass_time(seconds=6)
        assert len(await fixture.take(rate=2, period_ms=10_000)) == 1

    async def test_many_starts_are_counted_in_steps_and_never_too_few(
        self, fixture: LimitFixture
    ) -> None:
        await fixture.put("a", 600)
        started: list[int] = []
        for _ in range(100):
            fixture.pass_time(ms=97)
            started += [fixture.now] * len(await fixture.take(7, rate=200, period_ms=4_000))
        for first in started:
            assert sum(first <= each < first + 4 * SECOND for each in started) <= 200
        assert len(started) > 400

    async def test_a_rate_of_all_keys_says_when_it_opens(self, fixture: LimitFixture) -> None:
        for key in "abc":
            await fixture.put(key, 2)
        shared = (PartitionRule("@api", None, 4, 60_000),)
        assert len(await fixture.take(shared=shared)) == 4
        fixture.pass_time(seconds=20)
        answer = await fixture.look(shared=shared)
        assert (answer.jobs, answer.held_back, answer.next_us) == ([], True, 40 * SECOND)
        fixture.pass_time(seconds=40)
        assert len(await fixture.take(shared=shared)) == 2

    async def test_the_time_of_the_next_permit_is_when_one_starts(
        self, fixture: LimitFixture
    ) -> None:
        shared = (PartitionRule("@api", None, 5, 10_000),)
        await fixture.put("a", 9)
        assert len(await fixture.take(2, rate=5, period_ms=10_000, shared=shared)) == 2
        fixture.pass_time(seconds=3)
        assert len(await fixture.take(3, rate=5, period_ms=10_000, shared=shared)) == 3
        states = await fixture.run(fixture.store.limits.states(["mail#a", "@api"], 10))
        # Both rates were lowered since: to one that the first two starts keep full, and to one that all of them do.
        for rate, seconds in ((5, 7), (4, 7), (3, 10), (1, 10)):
            rule = PartitionRule("any", None, rate, 10_000)
            times = {each.next_start_at(rule, fixture.now) for each in states}
            assert times == {fixture.now + seconds * SECOND}
        lowered = (PartitionRule("@api", None, 3, 10_000),)
        fixture.pass_time(ms=9_999)
        assert await fixture.take(rate=5, period_ms=10_000, shared=lowered) == []
        fixture.pass_time(ms=1)
        assert len(await fixture.take(rate=5, period_ms=10_000, shared=lowered)) == 3
        assert states[0].next_start_at(rule, fixture.now) is None

    async def test_a_key_rests_when_its_handler_says_so(self, fixture: LimitFixture) -> None:
        await fixture.put("a", 2)
        await fixture.put("b", 2)
        (job,) = await fixture.take(1, allowed=5)
        await fixture.finish_as(job, "snooze", delay_ms=30_000, rest=True, error="429")
        other = "b" if job.gate == "mail#a" else "a"
        assert by_key(await fixture.take(allowed=5)) == {other: 2}
        (place,) = await fixture.run(fixture.store.limits.place([job.id]))
        (state,) = await fixture.run(fixture.store.limits.states([place.gate], 10))
        assert (state.paused_until, state.reason) == (fixture.now + 30 * SECOND, "429")
        fixture.pass_time(seconds=30)
        assert len(await fixture.take(allowed=5)) == 2

    async def test_a_key_rests_until_the_last_rest_that_was_asked_for(
        self, fixture: LimitFixture
    ) -> None:
        async def paused_until() -> int | None:
            (state,) = await fixture.run(fixture.store.limits.states(["mail#a"], 10))
            return state.paused_until

        def rest(job: ClaimedJob, seconds: int) -> Finish:
            return fixture.finish_of(job, "snooze", delay_ms=seconds * 1_000, rest=True)

        await fixture.put("a", 4)
        first, second, third, fourth = await fixture.take(allowed=4)
        longest = fixture.now + 30 * SECOND
        await fixture.finish(rest(first, 10), rest(second, 30), rest(third, 20))
        assert await paused_until() == longest
        await fixture.finish(rest(fourth, 5))
        assert await paused_until() == longest


class LimitSettingConformance(LimitedConformance):
    """What operators set wins over the code, and backlogs line up."""

    async def test_a_limit_of_one_key_is_raised_and_taken_back(self, fixture: LimitFixture) -> None:
        await fixture.put("a", 9)
        await fixture.put("b", 9)
        assert by_key(await fixture.take(allowed=1)) == {"a": 1, "b": 1}
        await fixture.run(fixture.store.limits.set("mail#a", allowed=4, by="ana", now=fixture.now))
        assert by_key(await fixture.take(allowed=1)) == {"a": 3}
        (setting,) = await fixture.run(fixture.store.limits.settings(MAIL))
        assert (setting.id, setting.allowed, setting.changed_by) == ("mail#a", 4, "ana")
        assert await fixture.run(fixture.store.limits.clear("mail#a", fixture.now))
        assert not await fixture.run(fixture.store.limits.clear("mail#a", fixture.now))
        assert await fixture.take(allowed=1) == []

    async def test_a_limit_of_every_key_is_set_at_once(self, fixture: LimitFixture) -> None:
        await fixture.put("a", 9)
        await fixture.put("b", 9)
        await fixture.take(allowed=1)
        await fixture.run(fixture.store.limits.set(every_key(MAIL), allowed=3, now=fixture.now))
        assert by_key(await fixture.take(allowed=1)) == {"a": 2, "b": 2}

    async def test_a_rate_is_set_at_run_time(self, fixture: LimitFixture) -> None:
        await fixture.put("a", 9)
        await fixture.run(
            fixture.store.limits.set("mail#a", rate=2, period_ms=1_000, now=fixture.now)
        )
        assert len(await fixture.take()) == 2
        assert (await fixture.look()).next_us == SECOND

    async def test_an_operator_lets_a_key_rest_and_go_on(self, fixture: LimitFixture) -> None:
        await fixture.put("a", 2)
        await fixture.run(
            fixture.store.limits.rest("mail#a", 60_000, "maintenance", "ana", fixture.now)
        )
        assert (await fixture.look()).next_us == 60 * SECOND
        await fixture.run(fixture.store.limits.rest("mail#a", 0, now=fixture.now))
        assert len(await fixture.take()) == 2

    async def test_a_rest_that_is_over_is_forgotten(self, fixture: LimitFixture) -> None:
        limits = fixture.store.limits
        for id in ("mail#a", "mail#b"):
            await fixture.run(limits.rest(id, 10_000, "429", now=fixture.now))
        await fixture.run(limits.set("mail#b", allowed=3, now=fixture.now))
        await fixture.run(limits.rest("mail#c", 12_000, now=fixture.now))
        await fixture.run(limits.rest("mail#d", 1_000, now=fixture.now))
        await fixture.run(limits.set("mail#d", rate=3, period_ms=1_000, now=fixture.now))
        fixture.pass_time(seconds=1)
        resting = await fixture.run(limits.paused(10, fixture.now))
        assert [(each.id, each.reason) for each in resting] == [
            ("mail#c", None),
            ("mail#a", "429"),
            ("mail#b", "429"),
        ]
        fixture.pass_time(seconds=10)
        resting = await fixture.run(limits.paused(10, fixture.now))
        assert [each.id for each in resting] == ["mail#c"]
        await fixture.run(limits.sweep("", fixture.now))
        left = [each.id for each in await fixture.run(limits.settings())]
        assert left == ["mail#b", "mail#c", "mail#d"]

    async def test_a_backlog_lines_up_when_a_limit_is_added(self, fixture: LimitFixture) -> None:
        jobs = [fixture.job(), fixture.job(priority=2), fixture.job("other")]
        await fixture.start_all(jobs)
        found = await fixture.run(fixture.store.limits.unqueued(MAIL, 10))
        assert {each.id for each in found} == {jobs[0].id, jobs[1].id}
        assert await fixture.run(fixture.store.limits.queued_types([MAIL, "other"])) == set()
        moves = [QueuedJob(each.id, partition_id(MAIL, "a"), each.available_at) for each in found]
        assert await fixture.run(fixture.store.limits.enqueue(moves, False, fixture.now)) == 2
        assert await fixture.run(fixture.store.limits.enqueue(moves, False, fixture.now)) == 0
        assert await fixture.run(
            fixture.store.limits.queued_types([MAIL, "other"], fixture.now)
        ) == {MAIL}
        assert await fixture.run(fixture.store.limits.unqueued(MAIL, 10)) == []
        (first,) = await fixture.take(allowed=1)
        assert first.id == jobs[1].id

    async def test_lines_are_left_to_live_workers_that_limit_them(
        self, fixture: LimitFixture
    ) -> None:
        await fixture.put("a")
        limiting = WorkerSign(
            "w-1",
            "w",
            "h",
            1,
            "1",
            1,
            f'["{MAIL}"]',
            "{}",
            None,
            20_000,
            limits=f'{{"{MAIL}":{{}}}}',
        )
        plain = msgspec.structs.replace(limiting, id="w-2", limits="{}")
        workers, types = fixture.store.workers, [MAIL, "other"]
        for sign in (limiting, plain):
            answer = await fixture.run(workers.sign(sign, fixture.now))
            assert (answer.is_draining, answer.has_partitions) == (False, True)
        assert await fixture.run(fixture.store.limits.queued_types(types, fixture.now)) == set()
        await fixture.run(workers.drain("w-1", fixture.now))
        assert await fixture.run(fixture.store.limits.queued_types(types, fixture.now)) == {MAIL}
        await fixture.run(workers.sign(msgspec.structs.replace(limiting, id="w-3"), fixture.now))
        assert await fixture.run(fixture.store.limits.queued_types(types, fixture.now)) == set()
        fixture.pass_time(seconds=20)
        assert await fixture.run(fixture.store.limits.queued_types(types, fixture.now)) == {MAIL}

    async def test_what_people_see_of_a_type(self, fixture: LimitFixture) -> None:
        first, *_, last = await fixture.put("a", 4)
        await fixture.put("b", 1)
        oldest = fixture.now
        taken = await fixture.take(allowed=2, rate=10, period_ms=60_000)
        fixture.pass_time(seconds=1)
        page = await fixture.run(
            fixture.store.limits.page(MAIL, 10, period_ms=60_000, now=fixture.now)
        )
        seen = {
            each.id: (each.running, each.started, each.waiting, each.oldest_at) for each in page
        }
        assert seen == {"mail#a": (2, 2, 2, oldest), "mail#b": (1, 1, 0, None)}
        (place,) = await fixture.run(fixture.store.limits.place([last.id]))
        assert (place.gate, place.ahead) == ("mail#a", 1)
        holders = sorted(each.id for each in taken if each.gate == "mail#a")
        assert first.id in holders
        line, unused = await fixture.run(fixture.store.limits.states(["mail#a", "mail#z"], 10))
        assert (line.id, line.running, line.holders) == ("mail#a", 2, holders)
        assert line.starts == [[oldest, 2]]
        assert unused == PartitionState("mail#z")
        (few,) = await fixture.run(fixture.store.limits.states(["mail#a"], 1))
        assert (few.running, few.holders) == (2, holders[:1])
        totals, types = await fixture.run(fixture.store.workers.totals(100, fixture.now))
        assert (totals.running, totals.due) == (3, 2)
        assert [(each.type, each.oldest_due_at) for each in types] == [(MAIL, oldest)]
        await fixture.run(fixture.store.limits.rest("mail#y", 1_000, now=fixture.now))
        assert await fixture.run(fixture.store.limits.states(["mail#z"], 10)) == [unused]
        await fixture.finish_as(taken[0], "complete")
        (place,) = await fixture.run(fixture.store.limits.place([last.id]))
        assert place.held_by is None

"""Debounced starts: the last input runs, once, after a time of quiet, and none is lost between claim and end."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.commands.attempts import finish_attempts
from holdfast.commands.debounce import DebouncedChain, DebouncedStart, start_debounced
from holdfast.commands.jobs import cancel_jobs, redrive_jobs, run_jobs_now
from holdfast.commands.retention import FIRST_ID
from holdfast.core.records import (
    ClaimedJob,
    Debounce,
    FinishKind,
    Held,
    NewKey,
    NewRevision,
    Settled,
)
from holdfast.storage.operation import Op, at
from tests.conformance.harness import (
    MAIL,
    MILLISECOND,
    SECOND,
    Conformance,
    OpenTransaction,
    StoreFixture,
)

QUIET_S, LATEST_S = 30, 120
KEY = "doc:7"


def _ask_again(
    fixture: StoreFixture, *inputs: str, key: str = KEY, latest_s: int | None = LATEST_S
) -> Op[list[DebouncedChain]]:
    debounce = Debounce(QUIET_S * 1000, None if latest_s is None else latest_s * 1000)
    starts = []
    for input in inputs:
        job = fixture.job(input=input, key=key, at=fixture.now + QUIET_S * SECOND)
        starts.append(DebouncedStart(job, NewKey(MAIL, key, job.id), debounce))
    found = yield from start_debounced(fixture.store, starts, now=fixture.now)
    return [found[each.job.id] for each in starts]


async def _ask(fixture: StoreFixture, *inputs: str, **options: int | None) -> DebouncedChain:
    """Start with each of these inputs in one call; return the last one's chain."""
    chains = await fixture.run(_ask_again(fixture, *inputs, **options))  # type: ignore[arg-type]
    return chains[-1]


async def _settle(fixture: StoreFixture, job: ClaimedJob) -> Settled:
    pairs = [Held(job.id, job.token)]
    (settled,) = await fixture.run(fixture.store.debounce.settle(pairs, fixture.now))
    return settled


async def _take(fixture: StoreFixture) -> ClaimedJob | None:
    """Do what a worker does that looks for a job: return one that may start, with the input it starts with."""
    for job in await fixture.claim():
        settled = await _settle(fixture, job)
        if settled.is_put_off:
            assert await fixture.finish_as(job, "release")
            continue
        job.input = settled.input or job.input
        return job
    return None


async def _take_one(fixture: StoreFixture) -> ClaimedJob:
    job = await _take(fixture)
    assert job is not None
    return job


async def _start_run(fixture: StoreFixture, *inputs: str) -> ClaimedJob:
    """Ask, wait for quiet, and take the job."""
    await _ask(fixture, *inputs)
    fixture.pass_time(seconds=QUIET_S)
    return await _take_one(fixture)


async def _end(fixture: StoreFixture, job: ClaimedJob, kind: FinishKind = "complete") -> None:
    finish = fixture.finish_of(job, kind)
    report = await fixture.run(finish_attempts(fixture.store, [finish], now=fixture.now))
    assert [each.id for each in report.accepted] == [job.id]


async def _heal(fixture: StoreFixture) -> None:
    leases = fixture.store.leases
    await fixture.run(leases.heal(fixture.now))
    await fixture.run(leases.heal_queue(FIRST_ID, fixture.now))


class DebounceConformance(Conformance):
    """Inputs of one key, one after the other."""

    async def test_the_last_input_runs_once_after_a_time_of_quiet(
        self, fixture: StoreFixture
    ) -> None:
        first = await _ask(fixture, "1")
        assert (first.is_new, first.state) == (True, "pending")
        for input in ("2", "3"):
            fixture.pass_time(seconds=20)
            again = await _ask(fixture, input)
            assert (again.id, again.is_new, again.state) == (first.id, False, "pending")
            assert await _take(fixture) is None
        fixture.pass_time(seconds=QUIET_S - 1)
        assert await _take(fixture) is None
        fixture.pass_time(seconds=1)
        job = await _take_one(fixture)
        assert (job.id, job.input, job.attempt, job.debounced) == (first.id, "3", 1, True)
        await _end(fixture, job)
        fixture.pass_time(seconds=10 * LATEST_S)
        assert await _take(fixture) is None

    async def test_what_was_asked_for_by_a_clock_that_ran_ahead_was_asked_for_now(
        self, fixture: StoreFixture
    ) -> None:
        right = fixture.now
        await _ask(fixture, "1", latest_s=None)
        fixture.pass_time(seconds=3_600)
        await _ask(fixture, "2", latest_s=None)
        fixture.now = right
        await _heal(fixture)
        fixture.pass_time(seconds=QUIET_S)
        assert (await _take_one(fixture)).input == "2"

    async def test_the_quiet_of_a_right_clock_goes_on(self, fixture: StoreFixture) -> None:
        await _ask(fixture, "1")
        fixture.pass_time(seconds=20)
        await _ask(fixture, "2")
        fixture.pass_time(seconds=20)
        await _heal(fixture)
        fixture.pass_time(seconds=10)
        assert (await _take_one(fixture)).input == "2"

    async def test_clocks_may_differ_by_a_minute(self, fixture: StoreFixture) -> None:
        right = fixture.now
        fixture.pass_time(seconds=60)
        await _ask(fixture, "1")
        await _ask(fixture, "2")
        fixture.now = right
        before = await fixture.rows("revision"), await fixture.rows("queue")
        await _heal(fixture)
        assert (await fixture.rows("revision"), await fixture.rows("queue")) == before

    async def test_one_that_is_retried_by_a_clock_that_ran_ahead_waits_as_long_from_now(
        self, fixture: StoreFixture
    ) -> None:
        right = fixture.now
        fixture.pass_time(seconds=3_600)
        job = await _start_run(fixture, "1")
        assert await fixture.finish_as(job, "retry", delay_ms=5_000)
        fixture.now = right
        await _heal(fixture)
        assert (await fixture.read(job.id)).available_at == right + 5 * SECOND

    async def test_a_job_that_is_asked_for_without_end_starts_at_its_latest_time(
        self, fixture: StoreFixture
    ) -> None:
        await _ask(fixture, "0")
        for second in range(10, LATEST_S, 10):
            fixture.pass_time(seconds=10)
            assert await _take(fixture) is None
            await _ask(fixture, str(second))
        fixture.pass_time(seconds=10)
        assert (await _take_one(fixture)).input == str(LATEST_S - 10)

    async def test_without_a_latest_time_it_waits_for_quiet_however_long_that_takes(
        self, fixture: StoreFixture
    ) -> None:
        first = await _ask(fixture, "0", latest_s=None)
        for number in range(100):
            fixture.pass_time(seconds=QUIET_S - 1)
            assert await _take(fixture) is None
            assert (await _ask(fixture, str(number), latest_s=None)).id == first.id
        fixture.pass_time(seconds=QUIET_S)
        assert (await _take_one(fixture)).input == "99"

    async def test_the_last_input_brings_its_version(self, fixture: StoreFixture) -> None:
        await _ask(fixture, "1")
        debounce = Debounce(QUIET_S * 1000)
        newer = fixture.job(input="2", key=KEY, version=2)
        start = DebouncedStart(newer, NewKey(MAIL, KEY, newer.id), debounce)
        await fixture.run(start_debounced(fixture.store, [start], now=fixture.now))
        fixture.pass_time(seconds=QUIET_S)
        (job,) = await fixture.claim()
        assert job.version is None
        assert (await _settle(fixture, job)).version == 2
        assert (await fixture.read(job.id)).version == 2

    async def test_its_blockers_are_those_whose_outputs_it_reads(
        self, fixture: StoreFixture
    ) -> None:
        ran = await _start_run(fixture, "1")
        behind = await _ask(fixture, "2")
        await _end(fixture, ran)
        fixture.pass_time(seconds=QUIET_S)
        followed = await _take_one(fixture)
        assert (followed.id, followed.debounced) == (behind.id, True)
        assert (ran.blockers, followed.blockers) == (0, 0)

    async def test_what_ran_shows_the_input_it_ran_with(self, fixture: StoreFixture) -> None:
        ran = await _start_run(fixture, "1", "2")
        await _end(fixture, ran)
        assert (await fixture.read(ran.id)).input == "2"
        assert await fixture.rows("revision") == []

    async def test_a_job_that_is_asked_for_while_it_runs_runs_once_more_afterwards(
        self, fixture: StoreFixture
    ) -> None:
        running = await _start_run(fixture, "1")
        follower = await _ask(fixture, "2")
        assert (follower.is_new, follower.state) == (True, "blocked")
        for input in ("3", "4"):
            fixture.pass_time(seconds=LATEST_S)
            again = await _ask(fixture, input)
            assert (again.id, again.is_new, again.state) == (follower.id, False, "blocked")
        assert await _take(fixture) is None
        await _end(fixture, running)
        # Its latest time has passed, so it does not wait for quiet as well.
        job = await _take_one(fixture)
        assert (job.id, job.input) == (follower.id, "4")
        await _end(fixture, job)
        fixture.pass_time(seconds=10 * LATEST_S)
        assert await _take(fixture) is None

    async def test_what_follows_a_short_run_waits_for_quiet_too(
        self, fixture: StoreFixture
    ) -> None:
        running = await _start_run(fixture, "1")
        await _ask(fixture, "2")
        await _end(fixture, running)
        assert await _take(fixture) is None
        fixture.pass_time(seconds=QUIET_S)
        assert (await _take_one(fixture)).input == "2"

    @pytest.mark.parametrize("kind", ["fail", "cancel"])
    async def test_what_follows_runs_however_the_run_before_it_ended(
        self, fixture: StoreFixture, kind: FinishKind
    ) -> None:
        running = await _start_run(fixture, "1")
        await _ask(fixture, "2")
        await _end(fixture, running, kind)
        fixture.pass_time(seconds=QUIET_S)
        assert (await _take_one(fixture)).input == "2"

    async def test_a_retry_takes_the_last_input(self, fixture: StoreFixture) -> None:
        job = await _start_run(fixture, "1")
        await _end(fixture, job, "retry")
        again = await _ask(fixture, "2")
        assert (again.id, again.is_new) == (job.id, False)
        assert await _take(fixture) is None
        fixture.pass_time(seconds=QUIET_S)
        retried = await _take_one(fixture)
        assert (retried.id, retried.input, retried.attempt) == (job.id, "2", 2)

    async def test_a_retry_without_another_start_keeps_its_input(
        self, fixture: StoreFixture
    ) -> None:
        await _end(fixture, await _start_run(fixture, "1", "2"), "retry")
        retried = await _take_one(fixture)
        assert (retried.input, retried.attempt) == ("2", 2)

    async def test_a_failed_job_counts_as_open_and_is_redriven_with_the_last_input(
        self, fixture: StoreFixture
    ) -> None:
        job = await _start_run(fixture, "1")
        await _end(fixture, job, "fail")
        fixture.pass_time(seconds=10 * LATEST_S)
        again = await _ask(fixture, "2")
        assert (again.id, again.is_new, again.state) == (job.id, False, "failed")
        assert await _take(fixture) is None
        await fixture.run(at(redrive_jobs(fixture.store, [job.id]), fixture.now))
        redriven = await _take_one(fixture)
        assert (redriven.id, redriven.input) == (job.id, "2")

    @pytest.mark.parametrize("kind", ["complete", "cancel"])
    async def test_after_its_end_the_next_start_begins_anew(
        self, fixture: StoreFixture, kind: FinishKind
    ) -> None:
        first = await _start_run(fixture, "1")
        await _end(fixture, first, kind)
        second = await _ask(fixture, "2")
        assert (second.is_new, second.state, second.id == first.id) == (True, "pending", False)

    async def test_a_cancelled_one_does_not_run(self, fixture: StoreFixture) -> None:
        chain = await _ask(fixture, "1", "2")
        await fixture.run(at(cancel_jobs(fixture.store, [chain.id]), fixture.now))
        fixture.pass_time(seconds=QUIET_S)
        assert await _take(fixture) is None

    async def test_one_that_is_made_due_by_hand_waits_for_no_quiet(
        self, fixture: StoreFixture
    ) -> None:
        chain = await _ask(fixture, "1", "2")
        (other,) = await fixture.run(_ask_again(fixture, "3", key="another"))
        quiet_at = fixture.now + QUIET_S * SECOND
        fixture.pass_time(seconds=1)
        await fixture.run(at(run_jobs_now(fixture.store, [chain.id]), fixture.now))
        assert (await _take_one(fixture)).input == "2"
        waiting = await fixture.run(fixture.store.debounce.of_job(other.id))
        assert waiting is not None
        assert waiting.due_at == quiet_at

    async def test_a_job_that_was_started_without_debounce_is_followed_by_one_that_is(
        self, fixture: StoreFixture
    ) -> None:
        plain = fixture.job(input="1", key=KEY)
        await fixture.run(
            fixture.store.chains.claim_keys([NewKey(MAIL, KEY, plain.id)], fixture.now)
        )
        await fixture.start_all([plain])
        follower = await _ask(fixture, "2")
        assert (follower.is_new, follower.state) == (True, "blocked")
        (job,) = await fixture.claim()
        assert (job.id, job.input, job.blockers) == (plain.id, "1", 0)
        await _end(fixture, job)
        fixture.pass_time(seconds=QUIET_S)
        assert (await _take_one(fixture)).input == "2"

    async def test_each_key_of_one_call_is_a_job_of_its_own(self, fixture: StoreFixture) -> None:
        def both() -> Op[list[str]]:
            a = yield from _ask_again(fixture, "a1", "a2", key="a")
            b = yield from _ask_again(fixture, "b1", key="b")
            return [each.id for each in (*a, *b)]

        ids = await fixture.run(both())
        assert (len(ids), len(set(ids))) == (3, 2)
        fixture.pass_time(seconds=QUIET_S)
        jobs = await fixture.claim()
        inputs = [(await _settle(fixture, job)).input for job in jobs]
        assert sorted(map(str, inputs)) == ["a2", "b1"]

    async def test_jobs_that_are_taken_together_are_settled_each_by_itself(
        self, fixture: StoreFixture
    ) -> None:
        keys, ids = "abcd", {}
        for key in keys:
            (chain,) = await fixture.run(_ask_again(fixture, f"{key}1", key=key))
            ids[key] = chain.id
        due_at = {}
        for key in "cd":
            fixture.pass_time(seconds=5)
            await fixture.run(_ask_again(fixture, f"{key}2", key=key))
            due_at[key] = fixture.now + QUIET_S * SECOND
        fixture.pass_time(seconds=QUIET_S - 10)
        jobs = await fixture.claim()
        pairs = [Held(job.id, job.token) for job in jobs]
        settled = await fixture.run(fixture.store.debounce.settle(pairs, fixture.now))
        assert {each.job_id: (each.input, each.is_put_off) for each in settled} == {
            ids["a"]: ("a1", False),
            ids["b"]: ("b1", False),
            ids["c"]: (None, True),
            ids["d"]: (None, True),
        }
        records = {key: await fixture.read(ids[key]) for key in keys}
        assert [records[key].input for key in "ab"] == ["a1", "b1"]
        for key in "cd":
            waiting = await fixture.run(fixture.store.debounce.of_job(ids[key]))
            assert waiting is not None
            assert (waiting.number, waiting.due_at) == (2, due_at[key])
            job = next(each for each in jobs if each.id == ids[key])
            assert await fixture.finish_as(job, "release")
            assert (await fixture.read(ids[key])).available_at == due_at[key]

    async def test_past_its_latest_time_a_job_takes_no_more(self, fixture: StoreFixture) -> None:
        first = await _ask(fixture, "1")
        fixture.pass_time(seconds=LATEST_S - 1)
        assert (await _ask(fixture, "2")).id == first.id
        fixture.pass_time(seconds=1)
        follower = await _ask(fixture, "3")
        assert (follower.is_new, follower.state) == (True, "blocked")
        job = await _take_one(fixture)
        assert (job.id, job.input) == (first.id, "2")

    async def test_a_worker_that_lost_its_job_may_not_start_it(self, fixture: StoreFixture) -> None:
        await _ask(fixture, "1")
        fixture.pass_time(seconds=QUIET_S)
        (job,) = await fixture.claim()
        pairs = [Held(job.id, fixture.new_id())]
        assert await fixture.run(fixture.store.debounce.settle(pairs, fixture.now)) == []
        assert (await _settle(fixture, job)).input == "1"

    async def test_a_job_that_is_put_off_keeps_its_attempts_and_crashes(
        self, fixture: StoreFixture
    ) -> None:
        chain = await _ask(fixture, "1")
        fixture.pass_time(seconds=QUIET_S - 1)
        await _ask(fixture, "2")
        fixture.pass_time(seconds=1)
        assert await _take(fixture) is None
        record = await fixture.read(chain.id)
        assert (record.state, record.attempt, record.crashes) == ("pending", 0, 0)
        assert record.available_at == fixture.now + (QUIET_S - 1) * SECOND

    async def test_a_rolled_back_start_changes_nothing(self, fixture: StoreFixture) -> None:
        await _ask(fixture, "1")
        before = await fixture.harness.contents()
        transaction = await fixture.harness.begin()
        await transaction.run(_ask_again(fixture, "2"))
        await transaction.rollback()
        assert await fixture.harness.contents() == before

    async def test_it_says_when_it_starts_and_at_the_latest(self, fixture: StoreFixture) -> None:
        chain = await _ask(fixture, "1")
        fixture.pass_time(seconds=10)
        await _ask(fixture, "2", "3")
        record = await fixture.run(fixture.store.debounce.of_job(chain.id))
        assert record is not None
        assert record.due_at == fixture.now + QUIET_S * SECOND
        assert record.latest_at == fixture.now + (LATEST_S - 10) * SECOND
        assert record.number == 3
        assert await fixture.run(fixture.store.debounce.of_job(fixture.new_id())) is None

    async def test_a_deleted_chain_leaves_no_inputs_behind(self, fixture: StoreFixture) -> None:
        chain = await _ask(fixture, "1", "2")
        (other,) = await fixture.run(_ask_again(fixture, "3", key="another"))
        assert len(await fixture.rows("revision")) == 3
        await fixture.run(fixture.store.chains.delete([chain.id], fixture.now))
        (left,) = await fixture.rows("revision")
        assert other.id in left


# Long enough for an operation that nothing holds up, on a busy machine.
UNHINDERED_S = 20


async def _open(fixture: StoreFixture, input: str) -> tuple[OpenTransaction, DebouncedChain]:
    """Start in a transaction that stays open."""
    transaction = await fixture.harness.begin()
    async with asyncio.timeout(UNHINDERED_S):
        chains = await transaction.run(_ask_again(fixture, input))
    return transaction, chains[-1]


class DebounceLocksConformance(Conformance):
    """Producers and workers at once, for stores that lock rows."""

    async def test_producers_of_one_key_do_not_wait_for_one_another(
        self, fixture: StoreFixture
    ) -> None:
        first = await _ask(fixture, "1")
        opened = [await _open(fixture, str(number)) for number in range(2, 6)]
        assert {chain.id for _, chain in opened} == {first.id}
        for transaction, _ in reversed(opened):
            await transaction.commit()
        fixture.pass_time(seconds=QUIET_S)
        assert (await _take_one(fixture)).input == "5"

    async def test_a_worker_does_not_wait_for_an_end_from_outside(
        self, fixture: StoreFixture
    ) -> None:
        chain = await _ask(fixture, "1")
        fixture.pass_time(seconds=QUIET_S)
        (job,) = await fixture.claim()
        transaction = await fixture.harness.begin()
        await transaction.run(fixture.store.jobs.lock([chain.id]))
        async with asyncio.timeout(UNHINDERED_S):
            pairs = [Held(job.id, job.token)]
            assert await fixture.run(fixture.store.debounce.settle(pairs, fixture.now)) == []
        await transaction.rollback()
        assert (await _settle(fixture, job)).input == "1"

    async def test_a_job_is_not_claimed_while_a_producer_has_yet_to_commit(
        self, fixture: StoreFixture
    ) -> None:
        await _ask(fixture, "1")
        fixture.pass_time(seconds=QUIET_S)
        transaction, _ = await _open(fixture, "2")
        assert await fixture.claim() == []
        await transaction.commit()
        assert await _take(fixture) is None
        fixture.pass_time(seconds=QUIET_S)
        assert (await _take_one(fixture)).input == "2"

    async def test_producers_past_the_latest_time_do_not_keep_a_job_from_starting(
        self, fixture: StoreFixture
    ) -> None:
        first = await _ask(fixture, "1")
        fixture.pass_time(ms=LATEST_S * 1000)
        transaction, follower = await _open(fixture, "2")
        assert (follower.is_new, follower.id == first.id) == (True, False)
        await transaction.commit()
        job = await _take_one(fixture)
        assert (job.id, job.input) == (first.id, "1")
        await _end(fixture, job)
        fixture.pass_time(ms=LATEST_S * 1000)
        assert (await _take_one(fixture)).input == "2"

    async def test_a_run_ends_while_producers_ask_for_the_next_one(
        self, fixture: StoreFixture
    ) -> None:
        running = await _start_run(fixture, "1")
        follower = await _ask(fixture, "2")
        transaction, chain = await _open(fixture, "3")
        assert chain.id == follower.id
        async with asyncio.timeout(UNHINDERED_S):
            await _end(fixture, running)
        assert await fixture.claim() == []
        await transaction.commit()
        fixture.pass_time(ms=QUIET_S * 1000 + MILLISECOND)
        assert (await _take_one(fixture)).input == "3"

    async def test_a_producer_that_came_too_late_keeps_no_other_from_asking_for_the_next_run(
        self, fixture: StoreFixture
    ) -> None:
        first = await _ask(fixture, "1")
        fixture.pass_time(seconds=QUIET_S)
        claiming = await fixture.harness.begin()
        (running,) = await claiming.run(fixture.claim_op())
        late = await fixture.harness.begin()
        revision = NewRevision(first.id, "2", QUIET_S * 1000, None)
        appending = asyncio.create_task(
            late.run(fixture.store.debounce.append([revision], fixture.now))
        )
        await asyncio.wait([appending], timeout=0.2)
        await claiming.commit()
        assert await appending == set()
        async with asyncio.timeout(UNHINDERED_S):
            follower = await _ask(fixture, "3")
        assert (follower.is_new, follower.state) == (True, "blocked")
        (again,) = await late.run(_ask_again(fixture, "2"))
        assert again.id == follower.id
        await late.commit()
        await _end(fixture, running)
        fixture.pass_time(ms=QUIET_S * 1000 + MILLISECOND)
        assert (await _take_one(fixture)).input == "2"

    async def test_a_start_beside_the_end_of_the_run_begins_anew_or_follows_it(
        self, fixture: StoreFixture
    ) -> None:
        running = await _start_run(fixture, "1")
        ending = await fixture.harness.begin()
        finish = fixture.finish_of(running, "complete")
        await ending.run(finish_attempts(fixture.store, [finish], now=fixture.now))
        asking = asyncio.create_task(_ask(fixture, "2"))
        await asyncio.wait([asking], timeout=0.2)
        await ending.commit()
        follower = await asking
        assert follower.is_new
        fixture.pass_time(seconds=QUIET_S)
        assert (await _take_one(fixture)).input == "2"

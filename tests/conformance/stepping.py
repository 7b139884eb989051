"""Durable functions: records under the token, waits and their signals, parking and what wakes a parked function."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from holdfast.core.partitions import partition_id
from holdfast.core.records import ClaimedJob, Ending, JobRef, NewBlocker, NewJob, NewRevision
from holdfast.core.steps import (
    ClosedStep,
    NewSignal,
    NewStep,
    SignalRecord,
    StepRecord,
    StepState,
    WaitRecord,
    WrittenStep,
)
from holdfast.storage.store.pagination import JobQuery
from tests.conformance.harness import LEASE_MS, MAIL, MILLISECOND, SECOND, Conformance, Harness
from tests.conformance.limiting import LimitFixture

HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS


class StepFixture(LimitFixture):
    """A store with functions in it."""

    def step(self, job: ClaimedJob, name: str = "charge", **fields: Any) -> NewStep:
        """Return a record of a step that is done."""
        given: dict[str, Any] = {"key": "", "nth": 1, "position": 1, "kind": "step"}
        given |= {"state": "done", "output": "7"}
        return NewStep(job_id=job.id, token=job.token, name=name, **given | fields)

    def wait(
        self, job: ClaimedJob, signal: str = "approved", key: str = "7", **fields: Any
    ) -> NewStep:
        """Return a record of an open wait."""
        given: dict[str, Any] = {
            "kind": "wait",
            "state": "open",
            "output": None,
            "started_at": self.now,
        }
        given |= {"signal": signal, "signal_key": key, "marks": True}
        return self.step(job, f"wait {signal}", **given | fields)

    def ended(self, step: NewStep, state: StepState = "done", **fields: Any) -> ClosedStep:
        """Return the end of an open record."""
        proof = (step.job_id, step.token, step.name, step.key, step.nth)
        return ClosedStep(*proof, state, **fields)

    def signal(self, name: str = "approved", key: str = "7", **fields: Any) -> NewSignal:
        """Return a signal."""
        given: dict[str, Any] = {"data": '"yes"', "keep_ms": WEEK_MS}
        return NewSignal(id=self.new_id(), name=name, key=key, **given | fields)

    async def record(self, *steps: NewStep) -> list[WrittenStep]:
        """Append records."""
        return await self.run(self.store.steps.record(steps, self.now))

    async def close(self, *steps: ClosedStep) -> list[WrittenStep]:
        """End open records."""
        return await self.run(self.store.steps.close(steps, self.now))

    async def steps(self, *ids: str) -> list[StepRecord]:
        """Read the records of jobs."""
        return await self.run(self.store.steps.of_jobs(ids, self.now))

    async def send(self, *signals: NewSignal) -> set[str]:
        """Append signals and route them, as far as that is needed."""
        new = await self.run(self.store.signals.append(signals, now=self.now))
        await self.route()
        return new

    async def route(self) -> list[JobRef]:
        """Route what is fresh."""
        return await self.run(self.store.signals.route(100, self.now))

    async def park(self, job: ClaimedJob, until: int | None = None) -> None:
        """Park a function."""
        assert await self.finish_as(job, "park", until=until)

    async def parked(self, **fields: Any) -> tuple[ClaimedJob, NewStep]:
        """Return a function that is parked until it gets a signal, and its wait."""
        job = await self.start_running()
        wait = self.wait(job, **fields)
        (written,) = await self.record(wait)
        await self.park(job, written.until)
        return job, wait

    async def due(self) -> list[str]:
        """Return the ids of the functions that are due, and release them."""
        jobs = await self.claim()
        for each in jobs:
            await self.finish_as(each, "release")
        return [each.id for each in jobs]


class FunctionConformance(Conformance):
    """The base of the classes here."""

    @pytest.fixture
    def fixture(self, harness: Harness) -> StepFixture:
        """A store with nothing in it, at the start of time."""
        return StepFixture(harness)


class SteppingConformance(FunctionConformance):
    """What a step leaves behind."""

    @pytest.mark.parametrize("others", [0, 1])
    @pytest.mark.parametrize("marks", [False, True])
    async def test_a_record_is_read_as_it_was_written(
        self, fixture: StepFixture, marks: bool, others: int
    ) -> None:
        job = await fixture.start_running()
        began = fixture.now
        fixture.pass_time(ms=20)
        step = fixture.step(
            job,
            key="a",
            nth=0,
            position=3,
            arguments=-(2**63),
            undo=True,
            started_at=began,
            marks=marks,
        )
        more = [fixture.step(job, "other", position=9) for _ in range(others)]
        written = await fixture.record(step, *more)
        assert written[0] == WrittenStep(job.id, "charge", "a", 0, None)
        first, *_ = await fixture.steps(job.id)
        assert first == StepRecord(
            job.id, "charge", "a", 0, 3, "step", "done", "7", None, -(2**63), True, job.fence,
            began, fixture.now, None, None, None,
        )  # fmt: skip

    async def test_a_record_is_written_once(self, fixture: StepFixture) -> None:
        job = await fixture.start_running()
        assert await fixture.record(fixture.step(job, marks=True))
        assert not await fixture.record(fixture.step(job, output="8"))
        assert not await fixture.record(fixture.step(job, output="9", marks=True))
        both = await fixture.record(
            fixture.step(job, "ship"), fixture.step(job, "ship", output="9")
        )
        assert len(both) == 1
        assert [each.output for each in await fixture.steps(job.id)] == ["7", "7"]

    async def test_records_of_many_functions_go_together(self, fixture: StepFixture) -> None:
        await fixture.start_all([fixture.job() for _ in range(3)])
        jobs = await fixture.claim()
        steps = [
            fixture.step(job, "item", key=str(number), nth=0, position=number, marks=number == 0)
            for job in jobs
            for number in range(5)
        ]
        assert len(await fixture.record(*steps)) == 15
        found = await fixture.steps(*(job.id for job in jobs))
        assert [(each.job_id, each.position) for each in found] == [
            (job.id, number) for job in jobs for number in range(5)
        ]
        done = await fixture.finish(*(fixture.finish_of(job, "complete") for job in jobs))
        assert len(done) == 3

    @pytest.mark.parametrize("marks", [False, True])
    async def test_a_record_under_a_lost_token_is_refused(
        self, fixture: StepFixture, marks: bool
    ) -> None:
        job = await fixture.start_running()
        await fixture.lose_all()
        (again,) = await fixture.claim()
        late, right = fixture.step(job, marks=marks), fixture.step(again, "ship", marks=marks)
        assert not await fixture.record(late)
        assert [each.name for each in await fixture.record(late, right)] == ["ship"]
        assert not await fixture.close(fixture.ended(late))
        assert [each.fence for each in await fixture.steps(job.id)] == [again.fence]

    @pytest.mark.parametrize("state", ["cancelled", "completed"])
    async def test_nothing_is_recorded_after_an_end_from_outside(
        self, fixture: StepFixture, state: Any
    ) -> None:
        job = await fixture.start_running()
        await fixture.run(fixture.store.jobs.end([Ending(job.id, state)], fixture.now))
        assert not await fixture.record(fixture.step(job))
        assert not await fixture.record(fixture.step(job, marks=True), fixture.step(job, "b"))
        assert await fixture.steps(job.id) == []

    async def test_the_first_record_of_an_attempt_counts_it_as_the_first(
        self, fixture: StepFixture
    ) -> None:
        await fixture.start()
        for _ in range(3):
            (job,) = await fixture.claim()
            assert job.steps is None
            await fixture.finish_as(job, "retry")
        (job,) = await fixture.claim()
        assert job.attempt == 4
        await fixture.record(fixture.step(job, marks=True))
        assert (await fixture.read(job.id)).attempt == 1
        await fixture.finish_as(job, "retry")
        (job,) = await fixture.claim()
        assert (job.attempt, bool(job.steps)) == (2, True)
        await fixture.record(fixture.step(job, "ship"))
        assert (await fixture.read(job.id)).attempt == 2

    async def test_jobs_of_one_claim_have_records_of_their_own(self, fixture: StepFixture) -> None:
        await fixture.start_all([fixture.job(), fixture.job()])
        one, other = await fixture.claim()
        assert one.token == other.token
        wait = fixture.wait(one)
        assert len(await fixture.record(wait)) == 1
        assert await fixture.steps(other.id) == []
        assert len(await fixture.close(fixture.ended(wait))) == 1
        assert await fixture.record(fixture.wait(other))
        assert await fixture.close(fixture.ended(wait)) == []
        assert [each.state for each in await fixture.steps(other.id)] == ["open"]

    async def test_a_record_counts_no_other_attempt(self, fixture: StepFixture) -> None:
        other = await fixture.start_running("other")
        for _ in range(2):
            await fixture.finish_as(other, "retry")
            (other,) = await fixture.claim("other")
        job = await fixture.start_running()
        await fixture.record(fixture.step(job, marks=True))
        await fixture.finish_as(other, "retry")
        (again,) = await fixture.claim("other")
        assert (again.attempt, bool(again.steps)) == (4, False)

    async def test_progress_does_not_reset_the_count_of_killed_workers(
        self, fixture: StepFixture
    ) -> None:
        await fixture.start_running()
        await fixture.lose_all()
        (job,) = await fixture.claim()
        await fixture.record(fixture.step(job, marks=True))
        await fixture.park(job, fixture.now)
        record = await fixture.read(job.id)
        assert (record.attempt, record.crashes) == (0, 1)

    async def test_a_sleep_ends_by_the_clock_at_which_it_was_recorded(
        self, fixture: StepFixture
    ) -> None:
        job = await fixture.start_running()
        sleep = fixture.step(job, kind="sleep", state="open", lasts_ms=1_500, output=None)
        until = fixture.now + 1_500 * MILLISECOND
        assert [each.until for each in await fixture.record(sleep)] == [until]
        (record,) = await fixture.steps(job.id)
        assert (record.state, record.until, record.finished_at) == ("open", until, None)
        fixture.pass_time(seconds=2)
        assert await fixture.close(fixture.ended(sleep))
        assert not await fixture.close(fixture.ended(sleep, "failed"))
        (record,) = await fixture.steps(job.id)
        assert (record.state, record.finished_at) == ("done", fixture.now)

    async def test_what_a_clock_that_ran_ahead_began_to_wait_for_ends_as_long_from_now(
        self, fixture: StepFixture
    ) -> None:
        right = fixture.now
        hour = 3_600 * SECOND
        job = await fixture.start_running()
        await fixture.record(fixture.wait(job, "early", lasts_ms=HOUR_MS))
        fixture.pass_time(seconds=3_600)
        planned = fixture.step(
            job, kind="sleep", state="open", output=None, position=4, lasts_ms=HOUR_MS
        )
        planned = msgspec.structs.replace(
            planned, started_at=fixture.now, arguments=right + 2 * hour
        )
        await fixture.record(
            fixture.wait(job, "late", position=2, lasts_ms=HOUR_MS),
            fixture.wait(job, "ever", position=3),
            planned,
        )
        fixture.now = right
        await fixture.run(fixture.store.leases.heal(right))
        assert [each.until for each in await fixture.steps(job.id)] == [
            right + hour,
            right + hour,
            None,
            right + 2 * hour,
        ]

    async def test_records_go_with_their_chain(self, fixture: StepFixture) -> None:
        job, _ = await fixture.parked()
        await fixture.run(fixture.store.chains.delete([job.chain_id], fixture.now))
        assert await fixture.steps(job.id) == []
        assert await fixture.rows("step") == []

    async def test_a_redrive_does_again_what_failed_and_what_was_undone(
        self, fixture: StepFixture
    ) -> None:
        job = await fixture.start_running()
        run: dict[str, Any] = {
            "kind": "run",
            "state": "failed",
            "position": 4,
            "output": None,
            "error": "no",
        }
        await fixture.record(
            fixture.step(job, "reserve", marks=True),
            fixture.step(job, "charge", position=2, undo=True),
            fixture.step(job, "ship", position=3, state="failed", output=None, error="no"),
            fixture.step(job, "render", **run),
            fixture.step(job, "scale", kind="run", position=5),
            fixture.step(job, "failure", kind="failure", state="failed", position=6),
            fixture.step(job, "undo:charge", kind="undo", position=7),
            # Not undone, not to be undone, undone in vain, of another key, and no work of its own.
            fixture.step(job, "book", position=8, undo=True),
            fixture.step(job, "count", position=9),
            fixture.step(job, "undo:count", kind="undo", position=10),
            fixture.step(job, "send", position=11, undo=True),
            fixture.step(job, "undo:send", kind="undo", state="failed", position=12),
            fixture.step(job, "charge", key="k", position=13, undo=True),
            fixture.step(job, "charge", nth=2, position=14, undo=True),
            fixture.step(job, "sleep", kind="sleep", state="failed", position=15),
        )
        other = await fixture.start_running("other")
        others = [
            fixture.step(other, "ship", state="failed", error="no"),
            fixture.step(other, "failure", kind="failure", state="failed", position=2),
            fixture.step(other, "undo:book", kind="undo", position=3),
        ]
        await fixture.record(*others)
        edges = [NewBlocker(job.id, step, fixture.new_id(), "run", step) for step in (4, 5)]
        await fixture.run(fixture.store.blockers.insert(edges))
        await fixture.finish_as(job, "fail", error="no")
        await fixture.run(fixture.store.jobs.redrive([job.id], now=fixture.now))
        assert [each.name for each in await fixture.steps(job.id)] == [
            *("reserve", "scale", "book", "count", "send", "charge", "charge", "sleep")
        ]
        assert len(await fixture.steps(other.id)) == 3
        left = await fixture.run(fixture.store.blockers.of_jobs([job.id]))
        assert [each.step for each in left] == [5]
        (again,) = await fixture.claim()
        assert again.steps

    @pytest.mark.parametrize("until_s", [None, 60])
    async def test_a_debounced_function_that_is_parked_keeps_its_input(
        self, fixture: StepFixture, until_s: int | None
    ) -> None:
        await fixture.start(debounced=True)
        (job,) = await fixture.claim()
        asked = [NewRevision(job.id, '"later"', 1_000, None)]
        await fixture.record(fixture.step(job, marks=True))
        await fixture.park(job, None if until_s is None else fixture.now + until_s * SECOND)
        assert await fixture.run(fixture.store.debounce.append(asked, fixture.now)) == set()

    async def test_jobs_are_found_by_their_steps_and_their_waits(
        self, fixture: StepFixture
    ) -> None:
        job, _ = await fixture.parked()
        other = await fixture.start_running()
        await fixture.record(fixture.step(other))
        await fixture.start()
        found = {
            term: [each.id for each in await fixture.read_all(**{term: value})]
            for term, value in (("step", "charge"), ("waiting", "approved"))
        }
        assert found == {"step": [other.id], "waiting": [job.id]}
        for term, value in (("step", "charge"), ("waiting", "approved")):
            query = JobQuery(**cast(Any, {term: value}))
            page = await fixture.run(fixture.store.chains.page(query, fixture.now))
            assert [each.id for each in page] == found[term]
        assert await fixture.read_all(waiting="another") == []
        await fixture.run(fixture.store.jobs.end([Ending(job.id, "cancelled")], fixture.now))
        assert await fixture.read_all(waiting="approved") == []


class SignalConformance(FunctionConformance):
    """Waits, signals and parking."""

    async def test_a_signal_wakes_the_function_that_waits_for_it_and_ends_its_wait(
        self, fixture: StepFixture
    ) -> None:
        job, _ = await fixture.parked()
        record = await fixture.read(job.id)
        assert (record.state, record.attempt, record.available_at) == ("blocked", 0, None)
        assert await fixture.attempts(job.id) == []
        await fixture.send(fixture.signal(key="8"), fixture.signal("refused"))
        assert await fixture.claim() == []
        fixture.pass_time(seconds=1)
        signal = fixture.signal(data='{"by": "ana"}')
        assert await fixture.send(signal) == {signal.id}
        (again,) = await fixture.claim()
        assert (again.id, again.available_at, bool(again.steps)) == (job.id, fixture.now, True)
        (open_wait,) = await fixture.steps(job.id)
        assert (open_wait.signal_id, open_wait.signal_data) == (signal.id, signal.data)
        taken = fixture.ended(fixture.wait(again), output=signal.data, signal_id=signal.id)
        assert await fixture.close(taken)
        assert not await fixture.close(taken)
        (closed,) = await fixture.steps(job.id)
        assert (closed.state, closed.output, closed.signal_id) == ("done", signal.data, signal.id)
        newest = (await fixture.run(fixture.store.signals.list(10)))[0]
        assert (newest.id, newest.taken_by) == (signal.id, job.id)

    @pytest.mark.parametrize("when", ["before", "during"])
    async def test_a_function_that_was_signalled_is_due_as_soon_as_it_parks(
        self, fixture: StepFixture, when: str
    ) -> None:
        job = await fixture.start_running()
        if when == "before":
            await fixture.send(fixture.signal())
        await fixture.record(fixture.wait(job))
        if when == "during":
            await fixture.send(fixture.signal())
        assert await fixture.claim() == []
        await fixture.park(job)
        assert await fixture.due() == [job.id]

    async def test_a_signal_without_a_router_is_found_by_the_function_that_parks(
        self, fixture: StepFixture
    ) -> None:
        await fixture.run(fixture.store.signals.append([fixture.signal()], now=fixture.now))
        job, _ = await fixture.parked()
        assert await fixture.due() == [job.id]

    @pytest.mark.parametrize("others", [False, True])
    async def test_a_signal_for_a_wait_that_a_function_ignores_does_not_keep_it_awake(
        self, fixture: StepFixture, others: bool
    ) -> None:
        await fixture.run(fixture.store.signals.append([fixture.signal()], now=fixture.now))
        job = await fixture.start_running()
        wait = fixture.wait(job)
        await fixture.record(wait)
        if others:
            await fixture.record(fixture.wait(job, nth=2, position=wait.position + 1))
        assert await fixture.finish_as(job, "park", ignores=[wait.position])
        assert await fixture.due() == ([job.id] if others else [])

    async def test_a_function_that_was_woken_and_took_nothing_parks_again(
        self, fixture: StepFixture
    ) -> None:
        first, _ = await fixture.parked()
        second, _ = await fixture.parked()
        signal = fixture.signal()
        await fixture.send(signal)
        jobs = await fixture.claim()
        assert [each.id for each in jobs] == [first.id, second.id]
        ends = [fixture.ended(fixture.wait(each), signal_id=signal.id) for each in jobs]
        assert [each.job_id for each in await fixture.close(*ends)] in ([first.id], [second.id])
        for each in jobs:
            await fixture.park(each)
        assert await fixture.due() == []

    async def test_a_broadcast_goes_to_all_and_once_to_each(self, fixture: StepFixture) -> None:
        jobs = [(await fixture.parked())[0] for _ in range(3)]
        signal = fixture.signal(broadcast=True)
        await fixture.send(signal)
        again = await fixture.claim()
        assert [each.id for each in again] == [each.id for each in jobs]
        ends = [fixture.ended(fixture.wait(each), signal_id=signal.id) for each in again]
        assert len(await fixture.close(*ends)) == 3
        for each in again:
            await fixture.record(fixture.wait(each, nth=2, position=2))
            await fixture.park(each)
        assert await fixture.due() == []
        later = await fixture.start_running("later")
        await fixture.record(fixture.wait(later))
        (wait,) = await fixture.steps(later.id)
        assert wait.signal_id == signal.id

    async def test_the_oldest_signal_is_taken_first(self, fixture: StepFixture) -> None:
        signals = [fixture.signal() for _ in range(3)]
        await fixture.send(*reversed(signals))
        job = await fixture.start_running()
        for nth, signal in enumerate(signals, 1):
            wait = fixture.wait(job, nth=nth, position=nth)
            await fixture.record(wait)
            record = (await fixture.steps(job.id))[-1]
            assert (record.signal_id, record.signal_data) == (signal.id, '"yes"')
            assert await fixture.close(fixture.ended(wait, signal_id=signal.id))
            record = (await fixture.steps(job.id))[-1]
            assert (record.signal_id, record.signal_data) == (signal.id, None)

    async def test_a_signal_goes_to_one_of_two_waits_that_end_together(
        self, fixture: StepFixture
    ) -> None:
        job = await fixture.start_running()
        waits = [fixture.wait(job, nth=nth, position=nth) for nth in (1, 2)]
        await fixture.record(*waits)
        signal = fixture.signal()
        await fixture.send(signal)
        closed = await fixture.close(*(fixture.ended(each, signal_id=signal.id) for each in waits))
        assert len(closed) == 1

    async def test_of_signals_with_one_id_the_first_counts(self, fixture: StepFixture) -> None:
        first, again = fixture.signal(given_id="a"), fixture.signal(given_id="a")
        other = fixture.signal(key="8", given_id="a")
        assert await fixture.send(first) == {first.id}
        assert await fixture.send(again, other) == {other.id}
        assert await fixture.send(first) == set()
        listed = await fixture.run(fixture.store.signals.list(10))
        assert [each.id for each in listed] == [other.id, first.id]

    async def test_a_signal_that_was_rolled_back_never_existed(self, fixture: StepFixture) -> None:
        await fixture.parked()
        before = await fixture.harness.contents()
        transaction = await fixture.harness.begin()
        await transaction.run(fixture.store.signals.append([fixture.signal()], now=fixture.now))
        await transaction.rollback()
        assert await fixture.route() == []
        assert await fixture.harness.contents() == before
        assert await fixture.due() == []

    async def test_a_wait_times_out_once_its_time_is_over(self, fixture: StepFixture) -> None:
        job, _ = await fixture.parked(lasts_ms=1_500)
        until = fixture.now + 1_500 * MILLISECOND
        record = await fixture.read(job.id)
        assert (record.state, record.available_at) == ("pending", until)
        fixture.pass_time(ms=1_499)
        assert await fixture.claim() == []
        fixture.pass_time(ms=1)
        (again,) = await fixture.claim()
        over = fixture.ended(fixture.wait(again), "timed_out")
        assert not await fixture.run(fixture.store.steps.close([over], fixture.now - 1))
        assert await fixture.close(over)
        late = fixture.signal()
        await fixture.send(late)
        assert not await fixture.close(fixture.ended(fixture.wait(again), signal_id=late.id))
        assert [each.state for each in await fixture.steps(job.id)] == ["timed_out"]

    async def test_a_signal_is_not_taken_for_a_wait_that_is_over(
        self, fixture: StepFixture
    ) -> None:
        job = await fixture.start_running()
        wait = fixture.wait(job, lasts_ms=0)
        await fixture.record(wait)
        assert await fixture.close(fixture.ended(wait, "timed_out"))
        signal = fixture.signal()
        await fixture.send(signal)
        assert not await fixture.close(fixture.ended(wait, signal_id=signal.id))
        (kept,) = await fixture.run(fixture.store.signals.list(10))
        assert kept.taken_by is None

    async def test_signals_go_when_their_time_is_over(self, fixture: StepFixture) -> None:
        short, long = fixture.signal(keep_ms=1_000), fixture.signal(keep_ms=60_000)
        await fixture.send(short, long)
        assert await fixture.run(fixture.store.retention.drop_signals(10, fixture.now)) == 0
        fixture.pass_time(seconds=2)
        job = await fixture.start_running()
        await fixture.record(fixture.wait(job))
        assert [each.signal_id for each in await fixture.steps(job.id)] == [long.id]
        assert await fixture.run(fixture.store.retention.drop_signals(10, fixture.now)) == 1
        (left,) = await fixture.run(fixture.store.signals.list(10))
        assert left == SignalRecord(
            long.id, "approved", "7", '"yes"', None, False, fixture.now - 2 * SECOND,
            fixture.now + 58 * SECOND, None,
        )  # fmt: skip

    async def test_an_end_under_a_lost_token_is_refused(self, fixture: StepFixture) -> None:
        job = await fixture.start_running()
        wait = fixture.wait(job)
        await fixture.record(wait)
        await fixture.lose_all()
        (again,) = await fixture.claim()
        other = await fixture.start_running("other")
        assert await fixture.close(fixture.ended(wait)) == []
        foreign = msgspec.structs.replace(wait, token=other.token)
        assert await fixture.close(fixture.ended(foreign)) == []
        assert [each.state for each in await fixture.steps(job.id)] == ["open"]
        assert len(await fixture.close(fixture.ended(fixture.wait(again)))) == 1

    async def test_only_the_record_that_is_named_ends(self, fixture: StepFixture) -> None:
        job, other = await fixture.start_running(), await fixture.start_running("other")
        named = fixture.wait(job, key="a", lasts_ms=5_000)
        named = msgspec.structs.replace(named, key="k", nth=2)
        others = [
            msgspec.structs.replace(named, name="another", position=2),
            msgspec.structs.replace(named, key="l", position=3),
            msgspec.structs.replace(named, nth=3, position=4),
            msgspec.structs.replace(named, job_id=other.id, token=other.token),
        ]
        assert len(await fixture.record(named, *others)) == 5
        fixture.pass_time(seconds=1)
        ended = await fixture.close(fixture.ended(named, "failed", error="no", output="1"))
        assert ended == [WrittenStep(job.id, named.name, "k", 2, fixture.now + 4 * SECOND)]
        found, *left = await fixture.steps(job.id, other.id)
        assert (found.state, found.error, found.output) == ("failed", "no", "1")
        assert found.finished_at == fixture.now
        assert {each.state for each in left} == {"open"}
        assert {each.finished_at for each in left} == {None}
        assert await fixture.close(fixture.ended(named, output="2")) == []
        assert (await fixture.steps(job.id))[0] == found

    async def test_a_signal_that_was_taken_or_swept_ends_no_other_wait(
        self, fixture: StepFixture
    ) -> None:
        first, second = await fixture.start_running(), await fixture.start_running("second")
        signal = fixture.signal()
        await fixture.send(signal)
        waits = [fixture.wait(first), fixture.wait(second)]
        await fixture.record(*waits)
        assert await fixture.close(fixture.ended(waits[0], signal_id=signal.id))
        assert await fixture.close(fixture.ended(waits[1], signal_id=signal.id)) == []
        assert await fixture.close(fixture.ended(waits[1], signal_id=fixture.new_id())) == []
        assert [each.state for each in await fixture.steps(second.id)] == ["open"]

    async def test_people_see_the_last_records_and_the_open_ones(
        self, fixture: StepFixture
    ) -> None:
        job, other = await fixture.start_running(), await fixture.start_running("other")
        steps = [
            fixture.step(job, "a", undo=True, arguments=7, started_at=fixture.now, marks=True),
            fixture.step(job, "b", state="failed", output=None, error="no", position=2),
            fixture.wait(job, position=3, lasts_ms=HOUR_MS),
            fixture.step(job, "cursor", kind="cursor", state="open", position=4),
            fixture.wait(job, "other", position=5),
        ]
        await fixture.record(*steps, fixture.wait(other))
        whole = await fixture.steps(job.id)
        assert [each.error for each in whole] == [None, "no", None, None, None]
        read = fixture.store.steps
        assert await fixture.run(read.latest(job.id, 10)) == whole
        assert await fixture.run(read.latest(job.id, 2)) == whole[3:]
        assert await fixture.run(read.waits_of(job.id, 10)) == []
        assert await fixture.run(read.waiting()) == {}
        await fixture.park(job)
        assert await fixture.run(read.waits_of(job.id, 10)) == [whole[2], whole[4]]
        assert await fixture.run(read.waits_of(job.id, 1)) == [whole[2]]
        assert await fixture.run(read.waiting()) == {"wait": 2}

    async def test_records_are_copied_as_they_are(self, fixture: StepFixture) -> None:
        job = await fixture.start_running()
        steps = [
            fixture.step(job, "a", key="k", undo=True, arguments=7, started_at=fixture.now),
            fixture.step(job, "b", nth=2, state="failed", output=None, error="no", position=2),
            fixture.wait(job, position=3, lasts_ms=HOUR_MS),
        ]
        await fixture.record(*steps)
        records = await fixture.steps(job.id)
        new, untouched = await fixture.start("new"), await fixture.start("untouched")
        await fixture.run(fixture.store.steps.copy(new.id, records))
        assert await fixture.steps(new.id) == [
            msgspec.structs.replace(each, job_id=new.id, fence=0) for each in records
        ]
        (taken,) = await fixture.claim("new")
        (plain,) = await fixture.claim("untouched")
        assert (bool(taken.steps), plain.id, bool(plain.steps)) == (True, untouched.id, False)

    async def test_a_signal_wakes_nobody_who_does_not_wait_for_it(
        self, fixture: StepFixture
    ) -> None:
        waiting, _ = await fixture.parked(signal="other")
        ignorant, _ = await fixture.parked(key="8")
        done = await fixture.start_running()
        wait = fixture.wait(done)
        sleep = fixture.step(
            done, "sleep", kind="sleep", state="open", output=None, signal="approved",
            signal_key="7", position=2, lasts_ms=HOUR_MS,
        )  # fmt: skip
        await fixture.record(wait, sleep)
        assert await fixture.close(fixture.ended(wait))
        await fixture.park(done, fixture.now + HOUR_MS * MILLISECOND)
        await fixture.send(fixture.signal())
        assert await fixture.due() == []
        await fixture.send(fixture.signal("other"))
        assert await fixture.due() == [waiting.id]
        await fixture.send(fixture.signal(key="8"))
        assert ignorant.id in await fixture.due()

    async def test_what_happened_for_others_does_not_keep_a_function_awake(
        self, fixture: StepFixture
    ) -> None:
        other = await fixture.start_running("other")
        await fixture.record(fixture.wait(other))
        await fixture.send(fixture.signal())
        await fixture.parked(key="8")
        assert await fixture.due() == []

    async def test_a_signal_whose_time_is_over_wakes_nobody_later(
        self, fixture: StepFixture
    ) -> None:
        await fixture.send(fixture.signal(keep_ms=1_000))
        fixture.pass_time(seconds=1)
        job, _ = await fixture.parked()
        await fixture.send(fixture.signal("other"))
        assert await fixture.due() == []
        assert [each.signal_id for each in await fixture.steps(job.id)] == [None]

    async def test_people_see_signals_the_newest_first(self, fixture: StepFixture) -> None:
        first, second, third = (
            fixture.signal(),
            fixture.signal("other", "8", given_id="order 7", broadcast=True, data="1"),
            fixture.signal(),
        )
        await fixture.send(first, second, third)
        found = await fixture.run(fixture.store.signals.list(2))
        assert [each.id for each in found] == [third.id, second.id]
        week = fixture.now + WEEK_MS * MILLISECOND
        assert found[1] == SignalRecord(
            second.id, "other", "8", "1", "order 7", True, fixture.now, week, None
        )

    async def test_people_see_what_functions_wait_for(self, fixture: StepFixture) -> None:
        since = fixture.now
        job, _ = await fixture.parked(nth=2, lasts_ms=5_000)
        gone, _ = await fixture.parked()
        await fixture.run(fixture.store.jobs.end([Ending(gone.id, "cancelled")], fixture.now))
        sleeper = await fixture.start_running()
        sleep: dict[str, Any] = {"kind": "sleep", "state": "open", "lasts_ms": 5_000}
        await fixture.record(fixture.step(sleeper, "sleep", **sleep))
        later = await fixture.start_running("later")
        fixture.pass_time(seconds=1)
        waits = [
            fixture.wait(later, position=3, started_at=None),
            msgspec.structs.replace(fixture.wait(later, position=2), key="k"),
        ]
        await fixture.record(*waits)
        found = await fixture.run(fixture.store.signals.waits(10))
        assert [(each.job_id, each.step, each.since) for each in found[1:]] == [
            (later.id, "wait approved[k]", fixture.now),
            (later.id, "wait approved", later.created_at),
        ]
        assert (
            await fixture.run(fixture.store.signals.waits(1))
            == found[:1]
            == [
                WaitRecord(
                    job.id,
                    job.chain_id,
                    MAIL,
                    "wait approved#2",
                    "approved",
                    "7",
                    since,
                    since + 5 * SECOND,
                )
            ]
        )

    async def test_signals_are_unwanted_that_nobody_waits_for(self, fixture: StepFixture) -> None:
        await fixture.parked()
        wanted, unwanted, unnamed = (fixture.signal(), fixture.signal(key="8"), fixture.signal("x"))
        await fixture.send(wanted, unwanted, unnamed, fixture.signal(key="8", broadcast=True))
        fixture.pass_time(seconds=5)
        ask = fixture.store.signals.find_unwanted
        assert await fixture.run(ask(6_000, 10, fixture.now)) == []
        found = await fixture.run(ask(5_000, 10, fixture.now))
        assert [each.id for each in found] == [unwanted.id, unnamed.id]
        assert found[:1] == [
            SignalRecord(
                unwanted.id, "approved", "8", '"yes"', None, False, fixture.now - 5 * SECOND,
                fixture.now + (WEEK_MS - 5_000) * MILLISECOND, None,
            )
        ]  # fmt: skip

    async def test_unwanted_are_those_that_could_still_be_taken_the_oldest_first(
        self, fixture: StepFixture
    ) -> None:
        job = await fixture.start_running()
        taken, over, first, second = (
            fixture.signal(),
            fixture.signal(keep_ms=5_000),
            fixture.signal(key="8", given_id="g"),
            fixture.signal("other"),
        )
        await fixture.send(taken, over, first, second)
        wait = fixture.wait(job)
        await fixture.record(wait)
        assert await fixture.close(fixture.ended(wait, signal_id=taken.id))
        # Nobody waits any longer; one that sleeps does not wait for a signal.
        sleep: dict[str, Any] = {"kind": "sleep", "state": "open", "position": 2}
        sleep |= {"signal": "other", "signal_key": "7"}
        await fixture.record(fixture.step(job, "sleep", **sleep))
        gone = await fixture.start_running("gone")
        await fixture.record(fixture.wait(gone, "other"))
        await fixture.run(fixture.store.jobs.end([Ending(gone.id, "cancelled")], fixture.now))
        fixture.pass_time(seconds=5)
        ask = fixture.store.signals.find_unwanted
        found = await fixture.run(ask(5_000, 10, fixture.now))
        assert [each.id for each in found] == [first.id, second.id]
        assert found[0].given_id == "g"
        assert await fixture.run(ask(5_000, 1, fixture.now)) == found[:1]

    async def test_a_function_that_nothing_will_wake_is_stranded(
        self, fixture: StepFixture
    ) -> None:
        await fixture.parked()
        stranded = []
        for _ in range(2):
            job = await fixture.start_running()
            wait = fixture.wait(job)
            sleep = fixture.step(job, "sleep", kind="sleep", state="open", position=2)
            await fixture.record(wait, sleep)
            assert await fixture.close(fixture.ended(wait))
            await fixture.park(job)
            stranded.append(JobRef(job.id, MAIL))
        edged, child = await fixture.start_running(), await fixture.start("child")
        await fixture.record(fixture.step(edged, "run", kind="run", state="open", marks=True))
        edge = NewBlocker(edged.id, 0, child.id, "run", 1)
        await fixture.run(fixture.store.blockers.insert([edge]))
        await fixture.park(edged)
        await fixture.start_blocked(child.id)
        later = await fixture.start_running()
        await fixture.record(fixture.step(later, marks=True))
        await fixture.park(later, fixture.now + SECOND)
        assert await fixture.run(fixture.store.steps.find_stranded(10)) == stranded

    async def test_parks_and_other_ends_go_together(self, fixture: StepFixture) -> None:
        await fixture.start_all([fixture.job() for _ in range(4)])
        jobs = await fixture.claim()
        ends = [
            fixture.finish_of(jobs[0], "park"),
            fixture.finish_of(jobs[1], "complete"),
            fixture.finish_of(jobs[2], "retry", error="no"),
            fixture.finish_of(jobs[3], "park", until=fixture.now),
        ]
        done = await fixture.finish(*ends)
        assert {each.id for each in done} == {each.id for each in jobs}
        states = [(await fixture.read(each.id)).state for each in jobs]
        assert states == ["blocked", "completed", "pending", "pending"]

    async def test_a_retry_is_not_hurried_by_a_signal(self, fixture: StepFixture) -> None:
        job = await fixture.start_running()
        await fixture.record(fixture.wait(job))
        await fixture.finish_as(job, "retry", delay_ms=5_000)
        await fixture.send(fixture.signal())
        assert await fixture.due() == []
        fixture.pass_time(seconds=5)
        assert await fixture.due() == [job.id]

    async def test_a_retry_of_a_function_that_was_parked_is_not_hurried_by_a_signal(
        self, fixture: StepFixture
    ) -> None:
        job, _ = await fixture.parked(lasts_ms=1_000)
        fixture.pass_time(seconds=1)
        (again,) = await fixture.claim()
        assert again.id == job.id
        await fixture.finish_as(again, "retry", delay_ms=5_000)
        await fixture.send(fixture.signal())
        assert await fixture.due() == []
        fixture.pass_time(seconds=5)
        assert await fixture.due() == [job.id]

    async def test_the_backoff_of_a_function_that_was_parked_and_reaped_twice_is_not_hurried_by_a_signal(
        self, fixture: StepFixture
    ) -> None:
        job, _ = await fixture.parked(lasts_ms=1_000)
        fixture.pass_time(seconds=1)
        await fixture.claim()
        await fixture.lose_all()
        await fixture.claim()
        fixture.pass_time(ms=LEASE_MS)
        await fixture.reap(poison=100)
        later = (await fixture.read(job.id)).available_at
        await fixture.send(fixture.signal())
        assert (await fixture.read(job.id)).available_at == later

    async def test_a_function_whose_worker_dies_before_it_parks_finds_its_signal(
        self, fixture: StepFixture
    ) -> None:
        job = await fixture.start_running()
        await fixture.record(fixture.wait(job))
        signal = fixture.signal()
        await fixture.send(signal)
        await fixture.lose_all()
        (again,) = await fixture.claim()
        assert [each.signal_id for each in await fixture.steps(again.id)] == [signal.id]

    async def test_a_park_under_a_lost_token_is_refused(self, fixture: StepFixture) -> None:
        job = await fixture.start_running()
        await fixture.lose_all()
        assert not await fixture.finish_as(job, "park")


class ChildrenConformance(FunctionConformance):
    """Functions that wait for other chains."""

    async def parent(self, fixture: StepFixture, *groups: int) -> tuple[ClaimedJob, list[NewJob]]:
        """A running function that waits for groups of chains, and the chains."""
        parent = await fixture.start_running()
        children = [fixture.job("child") for _ in range(sum(groups))]
        await fixture.start_all(children)
        left = iter(enumerate(children))
        for step, number in enumerate(groups, 1):
            run: dict[str, Any] = {
                "kind": "run",
                "state": "open",
                "output": None,
                "position": step,
                "nth": step,
            }
            await fixture.record(fixture.step(parent, "run", **run, marks=step == 1))
            edges = [
                NewBlocker(parent.id, place, child.id, "run", step)
                for place, child in (next(left) for _ in range(number))
            ]
            await fixture.run(fixture.store.blockers.insert(edges))
        return parent, children

    async def end(self, fixture: StepFixture, child: NewJob) -> list[JobRef]:
        """End a chain and release what waits for it."""
        store = fixture.store
        await fixture.run(store.blockers.lock_dependents([child.id]))
        closed = await fixture.run(store.blockers.close([(child.id, "failed")]))
        assert all(each.step for each in closed)
        ids = [each.job_id for each in closed]
        return await fixture.run(store.steps.wake_parents(ids, fixture.now))

    async def test_a_parked_function_goes_on_when_all_chains_of_one_run_have_ended(
        self, fixture: StepFixture
    ) -> None:
        parent, children = await self.parent(fixture, 2, 2)
        await fixture.park(parent)
        assert (await fixture.read(parent.id)).state == "blocked"
        assert await self.end(fixture, children[0]) == []
        assert await self.end(fixture, children[2]) == []
        fixture.pass_time(seconds=1)
        assert await self.end(fixture, children[3]) == [JobRef(parent.id, MAIL)]
        (again,) = await fixture.claim()
        assert again.available_at == fixture.now
        done = ClosedStep(again.id, again.token, "run", "", 2, "done")
        assert await fixture.close(done)
        await fixture.park(again)
        assert await fixture.due() == []
        assert await self.end(fixture, children[1]) == [JobRef(parent.id, MAIL)]

    async def test_a_run_waits_for_no_chain_of_another_function(self, fixture: StepFixture) -> None:
        first, (child,) = await self.parent(fixture, 1)
        await fixture.park(first)
        await self.parent(fixture, 1)
        assert await self.end(fixture, child) == [JobRef(first.id, MAIL)]

    async def test_a_function_whose_chains_end_while_it_runs_is_due_when_it_parks(
        self, fixture: StepFixture
    ) -> None:
        parent, children = await self.parent(fixture, 1)
        assert await self.end(fixture, children[0]) == []
        assert await fixture.claim() == []
        await fixture.park(parent, fixture.now + SECOND)
        assert await fixture.due() == [parent.id]

    async def test_a_function_with_a_timeout_goes_on_early(self, fixture: StepFixture) -> None:
        parent, children = await self.parent(fixture, 1)
        await fixture.park(parent, fixture.now + 3600 * SECOND)
        assert await fixture.due() == []
        assert await self.end(fixture, children[0]) == [JobRef(parent.id, MAIL)]
        assert await fixture.due() == [parent.id]

    async def test_edges_tell_which_run_they_belong_to(self, fixture: StepFixture) -> None:
        parent, children = await self.parent(fixture, 1, 1)
        edges = await fixture.run(fixture.store.blockers.of_jobs([parent.id]))
        assert [(each.chain_id, each.step) for each in edges] == [
            (children[0].id, 1), (children[1].id, 2)
        ]  # fmt: skip


class ParkedInPartitionConformance(FunctionConformance):
    """Functions of limited types leave their place when they park, and come back through their partition."""

    @pytest.mark.parametrize("lasts_ms", [None, HOUR_MS])
    async def test_a_parked_function_leaves_its_place_to_the_next_and_comes_back(
        self, fixture: StepFixture, lasts_ms: int | None
    ) -> None:
        first, second = await fixture.put("a", 2)
        (job,) = (await fixture.look(allowed=1)).jobs
        assert (job.id, job.steps) == (first.id, None)
        (written,) = await fixture.record(fixture.wait(job, lasts_ms=lasts_ms))
        await fixture.park(job, written.until)
        assert (await fixture.read(job.id)).state == ("pending" if lasts_ms else "blocked")
        (other,) = (await fixture.look(allowed=1)).jobs
        assert other.id == second.id
        await fixture.send(fixture.signal())
        assert (await fixture.look(allowed=1)).jobs == []
        await fixture.finish_as(other, "complete")
        (again,) = (await fixture.look(allowed=1)).jobs
        assert (again.id, again.gate, bool(again.steps)) == (
            first.id,
            partition_id(MAIL, "a"),
            True,
        )

    @pytest.mark.parametrize("lasts_ms", [None, HOUR_MS])
    async def test_a_parked_function_of_an_ordered_type_keeps_its_place(
        self, fixture: StepFixture, lasts_ms: int | None
    ) -> None:
        first, second = await fixture.put("a", 2, ordered=True)
        (job,) = (await fixture.look(ordered="skip")).jobs
        (written,) = await fixture.record(fixture.wait(job, lasts_ms=lasts_ms))
        await fixture.park(job, written.until)
        for _ in range(2):
            assert (await fixture.look(ordered="skip")).jobs == []
            fixture.pass_time(seconds=1)
        await fixture.send(fixture.signal())
        (again,) = (await fixture.look(ordered="skip")).jobs
        assert again.id == first.id
        await fixture.finish_as(again, "complete")
        (last,) = (await fixture.look(ordered="skip")).jobs
        assert last.id == second.id

    async def test_a_function_comes_back_when_its_time_is_over(self, fixture: StepFixture) -> None:
        await fixture.put("a")
        (job,) = (await fixture.look(allowed=1)).jobs
        await fixture.park(job, fixture.now + 5 * SECOND)
        assert (await fixture.look(allowed=1)).jobs == []
        fixture.pass_time(seconds=5)
        assert [each.id for each in (await fixture.look(allowed=1)).jobs] == [job.id]

    async def test_a_function_whose_chains_end_comes_back(self, fixture: StepFixture) -> None:
        await fixture.put("a")
        (job,) = (await fixture.look(allowed=1)).jobs
        child = await fixture.start("child")
        run = fixture.step(job, kind="run", state="open", output=None, marks=True)
        await fixture.record(run)
        edge = NewBlocker(job.id, 0, child.id, "run", 1)
        await fixture.run(fixture.store.blockers.insert([edge]))
        await fixture.park(job)
        assert (await fixture.look(allowed=1)).jobs == []
        await fixture.run(fixture.store.blockers.close([(child.id, "completed")]))
        await fixture.run(fixture.store.steps.wake_parents([job.id], fixture.now))
        assert [each.id for each in (await fixture.look(allowed=1)).jobs] == [job.id]

"""Blockers: edges between jobs and the chains they wait for, and the fan-in that opens a job exactly once."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.commands.attempts import FinishReport, finish_attempts
from holdfast.commands.blockers import attach_blockers
from holdfast.commands.explain import look_around, why
from holdfast.commands.jobs import redrive_jobs
from holdfast.core.errors import CircularWait
from holdfast.core.records import (
    BlockerRecord,
    ClaimedJob,
    ClosedEdge,
    Finish,
    FinishKind,
    JobRef,
    NewBlocker,
    NewJob,
    OnBlockerFailure,
    State,
)
from tests.conformance.harness import MAIL, SECOND, Conformance, StoreFixture
from tests.conformance.workers import counters_equal_rows

BLOCKERS = 8


class EdgeConformance(Conformance):
    """The primitives of which fan-in is made."""

    async def test_waiting_marks_live_tails_and_tells_which_were(
        self, fixture: StoreFixture
    ) -> None:
        live, running = await fixture.start("a"), await fixture.start_running("b")
        done = await fixture.finish_new("complete", "c")
        ids = [done.id, running.id, live.id]
        assert await fixture.run(fixture.store.blockers.wait_on(ids)) == {live.id, running.id}
        assert await fixture.run(fixture.store.blockers.wait_on([live.id])) == {live.id}

    async def test_holding_ended_tails_tells_which_have_ended(self, fixture: StoreFixture) -> None:
        live = await fixture.start("a")
        done = await fixture.finish_new("fail", "b")
        ids = [done.id, live.id, fixture.new_id()]
        assert await fixture.run(fixture.store.blockers.hold_ended(ids)) == {done.id}

    async def test_dependents_are_those_with_an_open_edge(self, fixture: StoreFixture) -> None:
        blocker, other = await fixture.start("a"), await fixture.start("b")
        waiting = await fixture.start_blocked(blocker.id, type="dependent")
        await fixture.start_blocked(other.id, type="dependent")
        lock = fixture.store.blockers.lock_dependents
        assert await fixture.run(lock([blocker.id])) == {waiting.id}
        await fixture.run(fixture.store.blockers.close([(blocker.id, "completed")]))
        assert await fixture.run(lock([blocker.id])) == set()

    @pytest.mark.parametrize(
        ("state", "policy", "closes", "fails"),
        [
            ("completed", "fail", True, False),
            ("completed", "wait", True, False),
            ("completed", "run", True, False),
            ("failed", "fail", True, True),
            ("failed", "wait", False, False),
            ("failed", "run", True, False),
            ("cancelled", "fail", True, True),
            ("cancelled", "wait", False, False),
            ("cancelled", "run", True, False),
        ],
    )
    async def test_an_edge_closes_as_its_policy_says(
        self,
        fixture: StoreFixture,
        state: State,
        policy: OnBlockerFailure,
        closes: bool,
        fails: bool,
    ) -> None:
        blocker = await fixture.start()
        job = await fixture.start_blocked(blocker.id, policy=policy, type="dependent")
        closed = await fixture.run(fixture.store.blockers.close([(blocker.id, state)]))
        assert closed == ([ClosedEdge(job.id, blocker.id, fails)] if closes else [])
        (edge,) = await fixture.run(fixture.store.blockers.of_jobs([job.id]))
        assert edge.open is not closes
        again = await fixture.run(fixture.store.blockers.close([(blocker.id, state)]))
        assert again == []

    async def test_a_job_opens_with_its_last_edge(self, fixture: StoreFixture) -> None:
        first, second = await fixture.start("a"), await fixture.start("b")
        job = await fixture.start_blocked(first.id, second.id, type="dependent")
        assert await self._close_and_open(fixture, first, job) == []
        assert (await fixture.read(job.id)).state == "blocked"
        assert await self._close_and_open(fixture, second, job) == [JobRef(job.id, "dependent")]
        record = await fixture.read(job.id)
        assert (record.state, record.available_at) == ("pending", fixture.now)
        assert await self._close_and_open(fixture, second, job) == []

    async def test_only_the_jobs_that_are_named_are_opened(self, fixture: StoreFixture) -> None:
        blocker = await fixture.start("a")
        named = await fixture.start_blocked(blocker.id, type="dependent")
        other = await fixture.start_blocked(blocker.id, type="dependent")
        assert await self._close_and_open(fixture, blocker, named) == [
            JobRef(named.id, "dependent")
        ]
        assert (await fixture.read(other.id)).state == "blocked"

    async def test_an_opened_job_still_waits_for_its_planned_time(
        self, fixture: StoreFixture
    ) -> None:
        blocker = await fixture.start("a")
        planned = fixture.now + 10 * SECOND
        job = await fixture.start_blocked(blocker.id, type="dependent", at=planned)
        await self._close_and_open(fixture, blocker, job)
        assert (await fixture.read(job.id)).available_at == planned

    async def test_only_blocked_jobs_are_opened(self, fixture: StoreFixture) -> None:
        pending = await fixture.start("a", at=fixture.now + SECOND)
        running = await fixture.start_running("b")
        before = await fixture.harness.contents()
        ids = [pending.id, running.id, fixture.new_id()]
        assert await fixture.run(fixture.store.blockers.open_jobs(ids, fixture.now)) == []
        assert await fixture.harness.contents() == before

    async def _close_and_open(
        self, fixture: StoreFixture, blocker: NewJob, job: NewJob
    ) -> list[JobRef]:
        fixture.pass_time(seconds=1)
        await fixture.run(fixture.store.blockers.close([(blocker.id, "completed")]))
        return await fixture.run(fixture.store.blockers.open_jobs([job.id], fixture.now))


class ReadingEdgesConformance(Conformance):
    """What people and handlers see of blockers."""

    async def test_a_job_sees_its_blockers_results_in_declared_order(
        self, fixture: StoreFixture
    ) -> None:
        done, live = await fixture.start_running("a"), await fixture.start("b")
        await fixture.finish_as(done, "complete", output='"ready"')
        job = await fixture.start_blocked(live.id, done.id, type="dependent")
        assert await fixture.run(fixture.store.blockers.of_jobs([job.id])) == [
            BlockerRecord(job.id, 0, live.id, True, "fail", "pending", None),
            BlockerRecord(job.id, 1, done.id, True, "fail", "completed", '"ready"'),
        ]

    async def test_a_job_sees_why_a_blocker_failed(self, fixture: StoreFixture) -> None:
        failed = await fixture.finish_new("fail", "a", error="Boom: no")
        job = await fixture.start_blocked(failed.id, type="dependent")
        assert await fixture.run(fixture.store.blockers.of_jobs([job.id])) == [
            BlockerRecord(job.id, 0, failed.id, True, "fail", "failed", None, "Boom: no")
        ]

    async def test_the_result_of_a_chain_is_its_last_jobs(self, fixture: StoreFixture) -> None:
        first = await fixture.finish_new("continue", output='"half"')
        job = await fixture.start_blocked(first.chain_id, type="dependent")
        (edge,) = await fixture.run(fixture.store.blockers.of_jobs([job.id]))
        assert (edge.state, edge.output) == ("pending", None)
        await fixture.finish_next("complete", "next", output='"whole"')
        (edge,) = await fixture.run(fixture.store.blockers.of_jobs([job.id]))
        assert (edge.state, edge.output) == ("completed", '"whole"')

    async def test_a_chain_lists_who_waits_for_it(self, fixture: StoreFixture) -> None:
        blocker = await fixture.start("a")
        jobs = [await fixture.start_blocked(blocker.id, type="dependent") for _ in range(3)]
        await fixture.start_blocked((await fixture.start("b")).id, type="dependent")
        waiting = await fixture.run(fixture.store.blockers.waiting(blocker.id, 10))
        assert [(each.job_id, each.open) for each in waiting] == [(job.id, True) for job in jobs]
        assert len(await fixture.run(fixture.store.blockers.waiting(blocker.id, 2))) == 2

    async def test_the_chains_that_wait_for_one_are_found_along_open_edges(
        self, fixture: StoreFixture
    ) -> None:
        first, other = await fixture.start("a"), await fixture.start("b")
        near = await fixture.start_blocked(first.id, policy="wait", type="near")
        far = await fixture.start_blocked(near.id, policy="wait", type="far")
        for blocker in (first, near):
            await fixture.start_blocked(blocker.id, policy="run", type="closed")
            await fixture.run(fixture.store.blockers.close([(blocker.id, "failed")]))
        await fixture.start_blocked(other.id, type="aside")
        dependents = fixture.store.blockers.dependents
        found = await fixture.run(dependents(first.id, 10))
        assert sorted(found) == [(near.id, first.id), (far.id, near.id)]
        assert len(await fixture.run(dependents(first.id, 1))) == 1


class FanInConformance(Conformance):
    """Any number of blockers ending at the same moment open a job exactly once."""

    async def _running_blockers(self, fixture: StoreFixture) -> list[ClaimedJob]:
        await fixture.start_all([fixture.job() for _ in range(BLOCKERS)])
        return await fixture.claim(MAIL)

    async def _finish(
        self, fixture: StoreFixture, job: ClaimedJob, kind: FinishKind
    ) -> FinishReport:
        """End a blocker as a worker does: again while a transaction has its row."""
        finish = fixture.finish_of(job, kind)
        while True:
            report = await fixture.run(finish_attempts(fixture.store, [finish], now=fixture.now))
            if report.accepted:
                return report

    @pytest.mark.parametrize(("kind", "state"), [("complete", "pending"), ("fail", "failed")])
    async def test_blockers_that_end_together_open_a_job_once_or_fail_it_once(
        self, fixture: StoreFixture, kind: FinishKind, state: State
    ) -> None:
        blockers = await self._running_blockers(fixture)
        job = await _start_waiting(fixture, *(each.id for each in blockers))
        reports = await asyncio.gather(*(self._finish(fixture, each, kind) for each in blockers))
        opened = [each.id for report in reports for each in report.fan_in.opened]
        failed = [each.id for report in reports for each in report.fan_in.failed]
        assert (opened, failed) == (([job.id], []) if kind == "complete" else ([], [job.id]))
        assert (await fixture.read(job.id)).state == state
        await fixture.run(counters_equal_rows(fixture))

    async def test_a_blocker_attached_while_it_ends_is_not_missed(
        self, fixture: StoreFixture
    ) -> None:
        for blocker in await self._running_blockers(fixture):
            job = await fixture.start("dependent", blockers=1)
            edge = NewBlocker(job.id, 0, blocker.id)
            await asyncio.gather(
                fixture.run(attach_blockers(fixture.store, [edge], fixture.now)),
                self._finish(fixture, blocker, "complete"),
            )
            assert (await fixture.read(job.id)).state == "pending"

    async def test_a_job_that_failed_with_one_blocker_waits_for_the_others_when_it_is_redriven(
        self, fixture: StoreFixture
    ) -> None:
        failing, *others = await self._running_blockers(fixture)
        job = await _start_waiting(fixture, failing.id, *(each.id for each in others))
        await self._finish(fixture, failing, "fail")
        assert (await fixture.read(job.id)).state == "failed"
        await fixture.run(redrive_jobs(fixture.store, [job.id]))
        assert (await fixture.read(job.id)).state == "blocked"
        for blocker in others:
            await self._finish(fixture, blocker, "complete")
        assert (await fixture.read(job.id)).state == "pending"

    async def test_a_job_that_is_redriven_while_its_last_blocker_ends_is_not_left_blocked(
        self, fixture: StoreFixture
    ) -> None:
        blockers = await self._running_blockers(fixture)
        for failing, last in zip(blockers[::2], blockers[1::2], strict=True):
            job = await _start_waiting(fixture, failing.id, last.id)
            await self._finish(fixture, failing, "fail")
            await asyncio.gather(
                fixture.run(redrive_jobs(fixture.store, [job.id])),
                self._finish(fixture, last, "complete"),
            )
            assert (await fixture.read(job.id)).state == "pending"


class CircleConformance(Conformance):
    """Waiting in a circle, which only a continuation can bring about."""

    async def _continue(
        self,
        fixture: StoreFixture,
        job: ClaimedJob,
        *chains: str,
        others: list[Finish] | None = None,
    ) -> FinishReport:
        finishes = [_continue_with(fixture, job, *chains), *(others or [])]
        return await fixture.run(finish_attempts(fixture.store, finishes, now=fixture.now))

    @pytest.mark.parametrize("length", [1, 2, 5])
    async def test_a_continuation_that_closes_a_circle_is_refused(
        self, fixture: StoreFixture, length: int
    ) -> None:
        first = await fixture.start_running("first")
        last = first.chain_id
        for _ in range(length):
            last = (await _start_waiting(fixture, last)).id
        before = await fixture.harness.contents()
        with pytest.raises(CircularWait) as caught:
            await self._continue(fixture, first, last)
        (circle,) = caught.value.details
        assert circle.count("waits for") == length + 1
        assert circle.startswith(f"chain {first.chain_id} waits for chain {last} waits for")
        assert circle.endswith(f"waits for chain {first.chain_id}")
        assert await fixture.harness.contents() == before

    async def test_one_blocker_among_many_closes_the_circle(self, fixture: StoreFixture) -> None:
        first, other = await fixture.start_running("first"), await fixture.start("other")
        waiting = await _start_waiting(fixture, first.chain_id)
        with pytest.raises(CircularWait):
            await self._continue(fixture, first, other.id, waiting.id)

    async def test_a_chain_that_others_wait_for_may_wait_for_a_third(
        self, fixture: StoreFixture
    ) -> None:
        first, third = await fixture.start_running("first"), await fixture.start("third")
        waiting = await _start_waiting(fixture, first.chain_id)
        await _start_waiting(fixture, third.id, waiting.id)
        report = await self._continue(fixture, first, third.id)
        assert len(report.accepted) == 1

    async def test_an_edge_that_was_closed_closes_no_circle(self, fixture: StoreFixture) -> None:
        first, other = await fixture.start_running("first"), await fixture.start_running("other")
        waiting = await _start_waiting(fixture, other.chain_id)
        finish = fixture.finish_of(other, "complete")
        await fixture.run(finish_attempts(fixture.store, [finish], now=fixture.now))
        assert (await fixture.read(waiting.id)).state == "pending"
        assert (await self._continue(fixture, first, waiting.id)).accepted

    async def test_why_names_a_circle_that_was_made_before_they_were_refused(
        self, fixture: StoreFixture
    ) -> None:
        one, other = await fixture.start("one", blockers=1), await fixture.start("other")
        waiting = await _start_waiting(fixture, one.id)
        edges = [NewBlocker(one.id, 0, waiting.id)]
        await fixture.run(attach_blockers(fixture.store, edges, fixture.now))
        record = await fixture.read(waiting.id)
        sentence = why(record, await fixture.run(look_around(fixture.store, record)))
        assert sentence.startswith(f"Deadlock: chain {waiting.id} ")
        assert sentence.count(" waits for ") == 2
        aside = await fixture.read((await _start_waiting(fixture, other.id)).id)
        assert why(aside, await fixture.run(look_around(fixture.store, aside))).startswith(
            "Waiting for 1"
        )

    async def test_two_that_close_a_circle_in_one_transaction_are_refused(
        self, fixture: StoreFixture
    ) -> None:
        one, two = await fixture.start_running("one"), await fixture.start_running("two")
        other = _continue_with(fixture, two, one.chain_id)
        with pytest.raises(CircularWait):
            await self._continue(fixture, one, two.chain_id, others=[other])
        assert (await self._continue(fixture, one, two.chain_id)).accepted
        with pytest.raises(CircularWait):
            await self._continue(fixture, two, one.chain_id)


async def _start_waiting(fixture: StoreFixture, *chains: str) -> NewJob:
    """Start a chain that waits for others, as a caller's start does."""
    job = await fixture.start("waits", blockers=len(chains))
    edges = [NewBlocker(job.id, position, each) for position, each in enumerate(chains)]
    assert await fixture.run(attach_blockers(fixture.store, edges, fixture.now)) == {}
    return job


def _continue_with(fixture: StoreFixture, job: ClaimedJob, *chains: str) -> Finish:
    following = fixture.next_job(job, blockers=len(chains))
    edges = [NewBlocker(following.id, position, each) for position, each in enumerate(chains)]
    return fixture.finish_of(job, "continue", next=following, next_blockers=edges)

"""Blockers: edges between jobs and the chains they wait for, and the fan-in that opens a job exactly once."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.commands.blockers import attach_blockers
from holdfast.commands.explain import look_around, why
from holdfast.commands.finish import FinishReport, finish_attempts
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
from holdfast.testing.conformance.counters import counters_equal_rows
from holdfast.testing.conformance.stage import MAIL, SECOND, Conformance, Stage

BLOCKERS = 8


async def _blocked_by(
    stage: Stage, chain_id: str, policy: OnBlockerFailure = "fail", position: int = 0
) -> NewJob:
    job = await stage.start("dependent", blockers=1)
    edge = NewBlocker(job.id, position, chain_id, policy)
    await stage.run(stage.store.blockers.insert([edge]))
    return job


class EdgeConformance(Conformance):
    """The primitives of which fan-in is made."""

    async def test_waiting_marks_live_tails_and_tells_which_were(self, stage: Stage) -> None:
        live, running = await stage.start("a"), await stage.start_running("b")
        done = await stage.start_running("c")
        await stage.finish_as(done, "complete")
        ids = [done.id, running.id, live.id]
        assert await stage.run(stage.store.blockers.wait_on(ids)) == {live.id, running.id}
        assert await stage.run(stage.store.blockers.wait_on([live.id])) == {live.id}

    async def test_holding_ended_tails_tells_which_have_ended(self, stage: Stage) -> None:
        live = await stage.start("a")
        done = await stage.start_running("b")
        await stage.finish_as(done, "fail")
        ids = [done.id, live.id, stage.new_id()]
        assert await stage.run(stage.store.blockers.hold_ended(ids)) == {done.id}

    async def test_dependents_are_those_with_an_open_edge(self, stage: Stage) -> None:
        blocker, other = await stage.start("a"), await stage.start("b")
        waiting = await _blocked_by(stage, blocker.id)
        await _blocked_by(stage, other.id)
        lock = stage.store.blockers.lock_dependents
        assert await stage.run(lock([blocker.id])) == {waiting.id}
        await stage.run(stage.store.blockers.close([(blocker.id, "completed")]))
        assert await stage.run(lock([blocker.id])) == set()

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
        self, stage: Stage, state: State, policy: OnBlockerFailure, closes: bool, fails: bool
    ) -> None:
        blocker = await stage.start()
        job = await _blocked_by(stage, blocker.id, policy)
        closed = await stage.run(stage.store.blockers.close([(blocker.id, state)]))
        assert closed == ([ClosedEdge(job.id, blocker.id, fails)] if closes else [])
        (edge,) = await stage.run(stage.store.blockers.of_jobs([job.id]))
        assert edge.open is not closes
        again = await stage.run(stage.store.blockers.close([(blocker.id, state)]))
        assert again == []

    async def test_a_job_opens_with_its_last_edge(self, stage: Stage) -> None:
        first, second = await stage.start("a"), await stage.start("b")
        job = await stage.start_blocked(first.id, second.id, type="dependent")
        assert await self._close_and_open(stage, first, job) == []
        assert (await stage.read(job.id)).state == "blocked"
        assert await self._close_and_open(stage, second, job) == [JobRef(job.id, "dependent")]
        record = await stage.read(job.id)
        assert (record.state, record.available_at) == ("pending", stage.now)
        assert await self._close_and_open(stage, second, job) == []

    async def test_an_opened_job_still_waits_for_its_planned_time(self, stage: Stage) -> None:
        blocker = await stage.start("a")
        planned = stage.now + 10 * SECOND
        job = await stage.start_blocked(blocker.id, type="dependent", at=planned)
        await self._close_and_open(stage, blocker, job)
        assert (await stage.read(job.id)).available_at == planned

    async def test_only_blocked_jobs_are_opened(self, stage: Stage) -> None:
        pending = await stage.start("a", at=stage.now + SECOND)
        running = await stage.start_running("b")
        before = await stage.harness.contents()
        ids = [pending.id, running.id, stage.new_id()]
        assert await stage.run(stage.store.blockers.open_jobs(ids, stage.now)) == []
        assert await stage.harness.contents() == before

    async def _close_and_open(self, stage: Stage, blocker: NewJob, job: NewJob) -> list[JobRef]:
        stage.pass_time(seconds=1)
        await stage.run(stage.store.blockers.close([(blocker.id, "completed")]))
        return await stage.run(stage.store.blockers.open_jobs([job.id], stage.now))


class ReadingEdgesConformance(Conformance):
    """What people and handlers see of blockers."""

    async def test_a_job_sees_its_blockers_results_in_declared_order(self, stage: Stage) -> None:
        done, live = await stage.start_running("a"), await stage.start("b")
        await stage.finish_as(done, "complete", output='"ready"')
        job = await stage.start_blocked(live.id, done.id, type="dependent")
        assert await stage.run(stage.store.blockers.of_jobs([job.id])) == [
            BlockerRecord(job.id, 0, live.id, True, "fail", "pending", None),
            BlockerRecord(job.id, 1, done.id, True, "fail", "completed", '"ready"'),
        ]

    async def test_the_result_of_a_chain_is_its_last_jobs(self, stage: Stage) -> None:
        first = await stage.start_running()
        await stage.finish_as(first, "continue", output='"half"', next=stage.next_job(first))
        job = await stage.start_blocked(first.chain_id, type="dependent")
        (edge,) = await stage.run(stage.store.blockers.of_jobs([job.id]))
        assert (edge.state, edge.output) == ("pending", None)
        (second,) = await stage.claim("next")
        await stage.finish_as(second, "complete", output='"whole"')
        (edge,) = await stage.run(stage.store.blockers.of_jobs([job.id]))
        assert (edge.state, edge.output) == ("completed", '"whole"')

    async def test_a_chain_lists_who_waits_for_it(self, stage: Stage) -> None:
        blocker = await stage.start("a")
        jobs = [await _blocked_by(stage, blocker.id) for _ in range(3)]
        waiting = await stage.run(stage.store.blockers.waiting(blocker.id, 10))
        assert [(each.job_id, each.open) for each in waiting] == [(job.id, True) for job in jobs]
        assert len(await stage.run(stage.store.blockers.waiting(blocker.id, 2))) == 2


class FanInConformance(Conformance):
    """Any number of blockers ending at the same moment open a job exactly once."""

    async def _running_blockers(self, stage: Stage) -> list[ClaimedJob]:
        await stage.start_all([stage.job() for _ in range(BLOCKERS)])
        return await stage.claim(MAIL)

    async def _dependent(self, stage: Stage, blockers: list[ClaimedJob]) -> NewJob:
        job = await stage.start("dependent", blockers=len(blockers))
        edges = [NewBlocker(job.id, place, each.id) for place, each in enumerate(blockers)]
        assert await stage.run(attach_blockers(stage.store, edges, stage.now)) == {}
        return job

    async def _finish(self, stage: Stage, job: ClaimedJob, kind: FinishKind) -> FinishReport:
        """End a blocker as a worker does: again while somebody's transaction has its row."""
        finish = stage.ending(job, kind)
        while True:
            report = await stage.run(finish_attempts(stage.store, [finish], now=stage.now))
            if report.accepted:
                return report

    async def test_blockers_that_end_together_open_a_job_once(self, stage: Stage) -> None:
        blockers = await self._running_blockers(stage)
        job = await self._dependent(stage, blockers)
        reports = await asyncio.gather(
            *(self._finish(stage, blocker, "complete") for blocker in blockers)
        )
        opened = [ref.id for report in reports for ref in report.fan_in.opened]
        assert opened == [job.id]
        assert (await stage.read(job.id)).state == "pending"
        await stage.run(counters_equal_rows(stage))

    async def test_blockers_that_fail_together_fail_a_job_once(self, stage: Stage) -> None:
        blockers = await self._running_blockers(stage)
        job = await self._dependent(stage, blockers)
        reports = await asyncio.gather(
            *(self._finish(stage, blocker, "fail") for blocker in blockers)
        )
        failed = [ended.id for report in reports for ended in report.fan_in.failed]
        assert failed == [job.id]
        assert (await stage.read(job.id)).state == "failed"
        await stage.run(counters_equal_rows(stage))

    async def test_a_blocker_attached_while_it_ends_is_not_missed(self, stage: Stage) -> None:
        for blocker in await self._running_blockers(stage):
            job = await stage.start("dependent", blockers=1)
            edge = NewBlocker(job.id, 0, blocker.id)
            await asyncio.gather(
                stage.run(attach_blockers(stage.store, [edge], stage.now)),
                self._finish(stage, blocker, "complete"),
            )
            assert (await stage.read(job.id)).state == "pending"


class CircleConformance(Conformance):
    """Waiting in a circle, which only a continuation can bring about."""

    async def _continue(
        self, stage: Stage, job: ClaimedJob, *chains: str, others: list[Finish] | None = None
    ) -> FinishReport:
        finishes = [_continuing(stage, job, *chains), *(others or [])]
        return await stage.run(finish_attempts(stage.store, finishes, now=stage.now))

    @pytest.mark.parametrize("length", [1, 2, 5])
    async def test_a_continuation_that_closes_a_circle_is_refused(
        self, stage: Stage, length: int
    ) -> None:
        first = await stage.start_running("first")
        last = first.chain_id
        for _ in range(length):
            last = (await _attached(stage, last)).id
        before = await stage.harness.contents()
        with pytest.raises(CircularWait) as caught:
            await self._continue(stage, first, last)
        (circle,) = caught.value.details
        assert circle.count("waits for") == length + 1
        assert circle.startswith(f"chain {first.chain_id} waits for chain {last} waits for")
        assert circle.endswith(f"waits for chain {first.chain_id}")
        assert await stage.harness.contents() == before

    async def test_one_blocker_among_many_closes_the_circle(self, stage: Stage) -> None:
        first, other = await stage.start_running("first"), await stage.start("other")
        waiting = await _attached(stage, first.chain_id)
        with pytest.raises(CircularWait):
            await self._continue(stage, first, other.id, waiting.id)

    async def test_a_chain_that_others_wait_for_may_wait_for_a_third(self, stage: Stage) -> None:
        first, third = await stage.start_running("first"), await stage.start("third")
        waiting = await _attached(stage, first.chain_id)
        await _attached(stage, third.id, waiting.id)
        report = await self._continue(stage, first, third.id)
        assert len(report.accepted) == 1

    async def test_an_edge_that_was_closed_closes_no_circle(self, stage: Stage) -> None:
        first, other = await stage.start_running("first"), await stage.start_running("other")
        waiting = await _attached(stage, other.chain_id)
        finish = stage.ending(other, "complete")
        await stage.run(finish_attempts(stage.store, [finish], now=stage.now))
        assert (await stage.read(waiting.id)).state == "pending"
        assert (await self._continue(stage, first, waiting.id)).accepted

    async def test_why_names_a_circle_that_was_made_before_they_were_refused(
        self, stage: Stage
    ) -> None:
        one, other = await stage.start("one", blockers=1), await stage.start("other")
        waiting = await _attached(stage, one.id)
        edges = [NewBlocker(one.id, 0, waiting.id)]
        await stage.run(attach_blockers(stage.store, edges, stage.now))
        record = await stage.read(waiting.id)
        sentence = why(record, await stage.run(look_around(stage.store, record)))
        assert sentence.startswith(f"Deadlock: chain {waiting.id} ")
        assert sentence.count(" waits for ") == 2
        aside = await stage.read((await _attached(stage, other.id)).id)
        assert why(aside, await stage.run(look_around(stage.store, aside))).startswith(
            "Waiting for 1"
        )

    async def test_two_that_close_a_circle_in_one_transaction_are_refused(
        self, stage: Stage
    ) -> None:
        one, two = await stage.start_running("one"), await stage.start_running("two")
        other = _continuing(stage, two, one.chain_id)
        with pytest.raises(CircularWait):
            await self._continue(stage, one, two.chain_id, others=[other])
        assert (await self._continue(stage, one, two.chain_id)).accepted
        with pytest.raises(CircularWait):
            await self._continue(stage, two, one.chain_id)


async def _attached(stage: Stage, *chains: str) -> NewJob:
    """Start a chain that waits for others, as a caller's start does."""
    job = await stage.start("waits", blockers=len(chains))
    edges = [NewBlocker(job.id, position, each) for position, each in enumerate(chains)]
    await stage.run(attach_blockers(stage.store, edges, stage.now))
    return job


def _continuing(stage: Stage, job: ClaimedJob, *chains: str) -> Finish:
    following = stage.next_job(job, blockers=len(chains))
    edges = [NewBlocker(following.id, position, each) for position, each in enumerate(chains)]
    return stage.ending(job, "continue", next=following, next_blockers=edges)

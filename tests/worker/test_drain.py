"""A worker that stops takes nothing new, gives unstarted work back, and leaves no row leased."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from holdfast.core.errors import DatabaseUnreachable
from holdfast.worker.held_leases import HeldLeases
from holdfast.worker.job import Job
from holdfast.worker.suspect_runs import SuspectRuns
from holdfast.worker.worker import ABORT_GRACE_S
from tests.support.manual_clock import ManualClock
from tests.support.until import PATIENCE_S, until
from tests.worker.faults import Faults
from tests.worker.workshop import RunningWorker, Workshop

T = TypeVar("T")


class Waiting:
    """A handler that waits for a word and remembers why it was stopped."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.reasons: list[Any] = []

    async def __call__(self, job: Job[Any]) -> str:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.reasons.append(job.abort_reason)
            raise
        return "done"


async def stopping(worker: RunningWorker, workshop: Workshop) -> None:
    worker.worker.stop("asked")
    await workshop.events.seen("worker_stopping", worker=worker.id)


async def test_unstarted_jobs_go_back_at_once_and_cost_no_attempt(workshop: Workshop) -> None:
    waiting = Waiting()
    workshop.handle("wait", waiting)
    workshop.handle_quick()
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, slots=2)
    ids = await workshop.prefetched("wait", 6)
    await workshop.events.seen("job_started", job_id=ids[1])
    planned = [(await workshop.job(each)).created_at for each in ids]
    await stopping(worker, workshop)
    await workshop.events.seen("job_released", count=4)
    for job_id, at in zip(ids[2:], planned[2:], strict=True):
        record = await workshop.job(job_id)
        assert (record.state, record.attempt) == ("pending", 0)
        assert record.available_at == at
    assert await workshop.states(ids[:2]) == ["running"] * 2
    waiting.go.set()
    report = await worker.ended()
    assert (report.reason, report.released, report.abandoned) == ("asked", 4, 0)
    assert report.exit_code == 0
    assert await workshop.states(ids[:2]) == ["completed"] * 2
    assert workshop.ledger.leases() == []


async def test_no_statement_is_broken_off(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_off: list[str] = []
    monkeypatch.setattr(HeldLeases, "put_back", lambda _, tokens: broken_off.extend(tokens))
    waiting = Waiting()
    workshop.handle("wait", waiting)
    job_id = await workshop.start_one("wait")
    worker = workshop.begin(ManualClock())
    await workshop.events.seen("job_started", job_id=job_id)
    await stopping(worker, workshop)
    waiting.go.set()
    await worker.ended()
    assert broken_off == []
    assert workshop.ledger.leases() == []


async def test_no_handler_begins_once_the_worker_was_asked_to_stop(workshop: Workshop) -> None:
    go = asyncio.Event()

    async def ask_to_stop(job: Job[Any]) -> None:
        await go.wait()
        holder.worker.stop()
        # The request is seen now; the worker ends a few turns of the loop later.
        await asyncio.sleep(0)

    workshop.handle("stop", ask_to_stop)
    workshop.handle_quick()
    holder = workshop.begin(ManualClock(), notifier=workshop.notifier, slots=1)
    ids = await workshop.prefetched("stop", 4)
    go.set()
    await holder.ended()
    assert await workshop.states(ids) == ["completed", "pending", "pending", "pending"]


async def test_nothing_new_is_claimed(workshop: Workshop) -> None:
    waiting = Waiting()
    workshop.handle("wait", waiting)
    first = await workshop.start_one("wait")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", job_id=first)
    await stopping(worker, workshop)
    second = await workshop.start_one("wait")
    workshop.have_due()
    waiting.go.set()
    await worker.ended()
    assert await workshop.states([first, second]) == ["completed", "pending"]


async def test_leases_are_renewed_until_the_last_handler_has_ended(workshop: Workshop) -> None:
    waiting = Waiting()
    workshop.handle("wait", waiting)
    job_id = await workshop.start_one("wait")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", job_id=job_id)
    await workshop.events.seen("reaper_ran")
    await stopping(worker, workshop)
    workshop.ledger.expire()
    await workshop.beat(worker)
    (lease,) = await workshop.run(workshop.store.leases.page(10))
    assert lease.expires_at > await workshop.run(workshop.store.schema.clock())
    waiting.go.set()
    assert (await worker.ended()).abandoned == 0
    assert (await workshop.job(job_id)).state == "completed"


@pytest.mark.parametrize("how", ["timeout", "second signal"])
async def test_a_handler_that_takes_too_long_is_interrupted_and_its_job_goes_back(
    workshop: Workshop, how: str
) -> None:
    waiting = Waiting()
    workshop.handle("wait", waiting)
    job_id = await workshop.start_one("wait")
    worker = workshop.begin(ManualClock(), shutdown_ms=20_000)
    await workshop.events.seen("job_started", job_id=job_id)
    await stopping(worker, workshop)
    await worker.asleep(20 - ABORT_GRACE_S)
    if how == "timeout":
        worker.advance(18)
        assert (await workshop.job(job_id)).state == "running"
        worker.advance(1)
    else:
        worker.worker.stop()
    report = await worker.ended()
    assert waiting.reasons == ["shutdown"]
    assert report.abandoned == 0
    record = await workshop.job(job_id)
    assert (record.state, record.attempt) == ("pending", 0)
    assert workshop.ledger.leases() == []


async def test_a_thread_that_obeys_at_the_last_moment_may_still_complete(
    workshop: Workshop,
) -> None:
    def work(job: Job[Any]) -> str:
        job.wait_for_abort(30)
        return "just in time"

    workshop.handle("work", work)
    job_id = await workshop.start_one("work")
    worker = workshop.begin(ManualClock())
    await workshop.events.seen("job_started", job_id=job_id)
    report = await worker.stop(times=2)
    assert report.abandoned == 0
    assert (await workshop.job(job_id)).output == '"just in time"'


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_what_outlives_the_shutdown_writes_nothing(workshop: Workshop, colour: str) -> None:
    release = threading.Event()
    over = threading.Event()

    def deaf(job: Job[Any]) -> str:
        release.wait(PATIENCE_S)
        over.set()
        return "too late"

    async def deaf_on_the_loop(job: Job[Any]) -> str:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await until(release.is_set)
        over.set()
        return "too late"

    workshop.handle("deaf", deaf if colour == "thread" else deaf_on_the_loop)
    job_id = await workshop.start_one("deaf")
    worker = workshop.begin()
    await workshop.events.seen("job_started", job_id=job_id)
    report = await worker.stop(times=2)
    assert (report.abandoned, report.exit_code) == (1, 1)
    before = await workshop.job(job_id)
    assert (before.state, before.worker) == ("running", worker.id)
    release.set()
    assert await asyncio.to_thread(over.wait, 30)
    await asyncio.sleep(0)
    assert await workshop.job(job_id) == before


async def test_a_claim_that_was_under_way_is_given_back(workshop: Workshop) -> None:
    faults = Faults()
    workshop.handle_quick()
    # Only the claimer waits for so long.
    worker = workshop.begin(
        ManualClock(), notifier=workshop.notifier, faults=faults, poll_ms=61_000
    )
    await worker.idle(61)
    faults.set("lost", "claim")
    job_id = await workshop.start_one("quick")
    workshop.have_due()
    await until(lambda: workshop.ledger.state(job_id) == "running")
    await stopping(worker, workshop)
    await worker.asleep(10)
    worker.advance(10)
    report = await worker.ended()
    assert report.abandoned == 0
    record = await workshop.job(job_id)
    assert (record.state, record.attempt) == ("pending", 0)


async def test_a_lost_claim_is_given_back_without_waiting_for_its_next_try(
    workshop: Workshop,
) -> None:
    faults = Faults()
    workshop.handle_quick()
    # Only the claimer waits for so long.
    worker = workshop.begin(
        ManualClock(), notifier=workshop.notifier, faults=faults, poll_ms=61_000
    )
    await workshop.events.seen("reaper_ran")
    await worker.idle(61)
    faults.set("before", "reaper")
    faults.set("after", "claim")
    job_id = await workshop.start_one("quick")
    workshop.have_due()
    await workshop.events.seen("database_unreachable", purpose="reaper")
    await until(lambda: workshop.ledger.state(job_id) == "running")
    faults.clear()
    report = await worker.stop()
    assert report.abandoned == 0
    record = await workshop.job(job_id)
    assert (record.state, record.attempt) == ("pending", 0)


async def test_outcomes_that_cannot_be_written_any_more_are_counted(workshop: Workshop) -> None:
    waiting, faults = Waiting(), Faults()
    workshop.handle("wait", waiting)
    job_id = await workshop.start_one("wait")
    worker = workshop.begin(ManualClock(), faults=faults)
    await workshop.events.seen("job_started", job_id=job_id)
    faults.set("before")
    waiting.go.set()
    await workshop.events.seen("database_unreachable", purpose="complete")
    await stopping(worker, workshop)
    await worker.give_up()
    assert (await worker.ended()).exit_code == 1


async def test_a_drain_that_is_cancelled_leaves_nobody_who_renews(workshop: Workshop) -> None:
    waiting = Waiting()
    workshop.handle("wait", waiting)
    job_id = await workshop.start_one("wait")
    running = asyncio.create_task(workshop.worker(ManualClock()).run())
    await workshop.events.seen("job_started", job_id=job_id)
    running.cancel()
    await workshop.events.seen("worker_stopping")
    assert waiting.reasons == []
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(waiting.reasons) == 1
    assert "holdfast-heartbeat" not in {each.name for each in threading.enumerate()}
    assert workshop.ledger.leases() != []


async def test_an_operator_may_have_a_worker_drain(workshop: Workshop) -> None:
    waiting = Waiting()
    workshop.handle("wait", waiting)
    job_id = await workshop.start_one("wait")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", job_id=job_id)
    await workshop.beat(worker)
    assert await workshop.run(workshop.store.workers.drain(worker.id))
    for _ in range(3):
        await workshop.beat(worker)
    # However often it is reminded, that is no second signal.
    assert waiting.reasons == []
    waiting.go.set()
    assert (await worker.ended()).reason == "drained"


async def test_a_word_that_comes_before_the_start_counts(workshop: Workshop) -> None:
    workshop.handle_quick()
    job_id = await workshop.start_one("quick")
    worker = workshop.worker()
    worker.stop("never mind")
    report = await worker.run()
    assert (report.reason, report.abandoned) == ("never mind", 0)
    assert (await workshop.job(job_id)).state == "pending"


async def test_the_end_is_emitted_and_recorded_in_the_presence(workshop: Workshop) -> None:
    workshop.handle_quick()
    async with workshop.working() as worker:
        await workshop.events.seen("worker_started", worker=worker.id)
    names = [each.name for each in workshop.events.events if each.name.startswith("worker_")]
    assert names == ["worker_started", "worker_stopping", "worker_stopped"]
    (record,) = await workshop.run(workshop.store.workers.page(10))
    assert record.stopped_at is not None
    assert record.types == ["quick"]


@pytest.mark.parametrize("atomic", [False, True])
async def test_no_lease_is_left_behind_not_even_an_empty_one(
    workshop: Workshop, atomic: bool
) -> None:
    async def work(job: Job[Any]) -> None: ...

    workshop.handle("work", work, atomic=atomic)
    job_id = await workshop.start_one("work")
    async with workshop.working():
        await workshop.events.seen("job_completed", job_id=job_id)
    assert workshop.ledger.rows("lease") == 0


class FailingFlush(Faults):
    """The first flush waits for the test, and the one behind it fails."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = asyncio.Event()
        self.flushes: int | None = None

    async def around(self, purpose: str, call: Callable[[], Awaitable[T]]) -> T:
        if purpose == "complete" and self.flushes is not None:
            self.flushes += 1
            if self.flushes == 1:
                await self.may_write.wait()
            elif self.flushes == 2:
                raise DatabaseUnreachable("the line was cut")
        return await super().around(purpose, call)


async def test_an_empty_lease_is_not_forgotten_by_a_flush_that_fails(workshop: Workshop) -> None:
    faults = FailingFlush()
    may_end = {"first": asyncio.Event(), "second": asyncio.Event()}

    async def work(job: Job[str]) -> None:
        await may_end[job.input].wait()

    workshop.handle("work", work)
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, faults=faults)
    ids = []
    for name in may_end:
        ids.append(await workshop.start_one("work", name))
        workshop.have_due()
        await workshop.events.seen("job_started", job_id=ids[-1])
    faults.flushes = 0
    may_end["first"].set()
    await until(lambda: faults.flushes == 1)
    may_end["second"].set()
    await until(lambda: worker.worker.running == 0)
    # The lease of the first, empty now, goes with the flush of the second.
    faults.may_write.set()
    await workshop.events.seen("database_unreachable", purpose="complete")
    await workshop.seen_in_time(worker, "job_completed", job_id=ids[1])
    await worker.stop()
    assert workshop.ledger.rows("lease") == 0


async def test_a_defect_of_its_own_is_the_reason(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: SuspectRuns) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(SuspectRuns, "run", fail)
    worker = workshop.begin(ManualClock())
    with pytest.raises(RuntimeError, match="a defect"):
        await worker.ended()
    await workshop.events.seen("worker_stopped", worker=worker.id, reason="defect")

"""The database goes away: handlers stop before their leases end, nothing is lost, work resumes by itself."""

import asyncio
from typing import Any

import pytest

from holdfast.core.outcome import Continue
from holdfast.core.retry import Retry
from holdfast.worker.job import Job
from tests.support.manual_clock import ManualClock
from tests.support.until import breath, until
from tests.worker.faults import Faults
from tests.worker.workshop import RunningWorker, Workshop


class Waiting:
    """A handler that waits, and remembers why it was stopped; its second attempt just completes."""

    def __init__(self) -> None:
        self.reasons: list[Any] = []
        self.go = asyncio.Event()

    async def __call__(self, job: Job[Any]) -> None:
        if self.reasons:
            return
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.reasons.append(job.abort_reason)
            raise


LOOPS = (("claim", "complete"), ("heartbeat",))
"""While outcomes cannot be written nothing is claimed, so of two loops only one may try."""


async def outlast(worker: RunningWorker, faults: Faults, seconds: int) -> None:
    """Let an outage of at least so long pass, in which the loops try again and again."""
    passed = 0
    async with asyncio.timeout(60):
        while passed < seconds:
            tries = _tries(faults)
            while any(now == was for now, was in zip(_tries(faults), tries, strict=True)):
                worker.advance(1)
                passed += 1
                await breath()


def _tries(faults: Faults) -> list[int]:
    return [sum(faults.runs(purpose) for purpose in loops) for loops in LOOPS]


@pytest.mark.parametrize("fault", ["before", "hang"])
async def test_handlers_are_stopped_before_their_lease_can_end(
    workshop: Workshop, fault: Any
) -> None:
    waiting, faults = Waiting(), Faults()
    workshop.handle("wait", waiting, lease="60s")
    job_id = await workshop.start_one("wait")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, faults=faults)
    await workshop.events.seen("job_started", job_id=job_id)
    await workshop.beat(worker)
    faults.set(fault, "heartbeat")
    beats = faults.runs("heartbeat")
    worker.advance(15)
    # From here on the heartbeat has failed, or hangs in a statement that nobody answers.
    await faults.ran("heartbeat", beats + 1)
    worker.advance(38)
    assert (await workshop.job(job_id)).state == "running"
    assert waiting.reasons == []
    worker.advance(1)
    await workshop.events.seen("lease_lost", job_id=job_id, reason="error")
    # The job goes back without losing an attempt: it was not its fault.
    await workshop.events.seen("job_released", job_id=job_id)
    assert waiting.reasons == ["error"]
    await workshop.events.seen("job_completed", job_id=job_id)
    record = await workshop.job(job_id)
    assert (record.attempt, record.crashes) == (1, 0)


async def test_ten_minutes_without_a_database_end_no_process(workshop: Workshop) -> None:
    waiting, faults = Waiting(), Faults()
    workshop.handle("wait", waiting)
    job_id = await workshop.start_one("wait")
    worker = workshop.begin(ManualClock(), faults=faults)
    await workshop.events.seen("job_started", job_id=job_id)
    faults.set("before")
    await outlast(worker, faults, 600)
    for purpose in ("claim", "complete", "heartbeat", "reaper"):
        await workshop.seen_in_time(worker, "database_unreachable", purpose=purpose)
    assert waiting.reasons == ["error"]
    assert workshop.events.of("job_completed") == []
    told = {each.fields["purpose"] for each in workshop.events.of("database_unreachable")}
    faults.clear()
    new_id = await workshop.start_one("wait")
    for each in (job_id, new_id):
        await workshop.seen_in_time(worker, "job_completed", job_id=each)
    for purpose in told:
        await workshop.seen_in_time(worker, "database_back", purpose=purpose)
    report = await worker.stop()
    assert report.abandoned == 0
    assert (await workshop.job(job_id)).attempt == 1


async def test_a_worker_that_starts_without_a_database_waits_for_it(workshop: Workshop) -> None:
    faults = Faults()
    waiting = Waiting()
    waiting.go.set()
    workshop.handle("wait", waiting)
    job_id = await workshop.start_one("wait")
    faults.set("before")
    worker = workshop.begin(ManualClock(), faults=faults)
    async with asyncio.timeout(60):
        while faults.runs("complete") < 20:
            worker.advance(1)
            await breath()
    assert workshop.events.of("worker_started") == []
    faults.clear()
    await workshop.seen_in_time(worker, "job_completed", job_id=job_id)
    await worker.stop()


async def test_jobs_that_wait_for_a_slot_go_back_unstarted(workshop: Workshop) -> None:
    waiting, faults = Waiting(), Faults()
    workshop.handle("wait", waiting)
    workshop.handle_quick()
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, faults=faults, slots=1)
    first, second = await workshop.prefetched("wait", 2)
    await workshop.beat(worker)
    faults.set("before")
    await outlast(worker, faults, 60)
    await workshop.events.seen("lease_lost", job_id=first)
    faults.clear()
    await workshop.seen_in_time(worker, "job_released", job_id=second)
    for job_id in (first, second):
        await workshop.seen_in_time(worker, "job_completed", job_id=job_id)
    assert [(await workshop.job(each)).attempt for each in (first, second)] == [1, 1]
    await worker.stop()


async def test_what_an_outage_has_cost_is_asked_for_as_soon_as_it_is_over(
    workshop: Workshop,
) -> None:
    waiting, faults = Waiting(), Faults()
    workshop.handle("wait", waiting, lease="60s")
    job_id = await workshop.start_one("wait")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, faults=faults)
    await workshop.events.seen("job_started", job_id=job_id)
    await workshop.beat(worker)
    faults.set("before", "claim")
    workshop.have_due()
    await workshop.events.seen("database_unreachable", purpose="claim")
    assert await workshop.reap_as_if_later(postponed=True) == [job_id]
    faults.clear()
    # Long before the next beat of a lease of a minute.
    worker.advance(1)
    await workshop.events.seen("lease_lost", job_id=job_id)
    await until(lambda: waiting.reasons == ["taken_by_another_worker"])
    await worker.stop()


async def test_what_was_finished_during_the_outage_is_written_after_it(workshop: Workshop) -> None:
    waiting, faults = Waiting(), Faults()
    workshop.handle("wait", waiting)
    ids = await workshop.start("wait", count=3)
    worker = workshop.begin(ManualClock(), faults=faults)
    await workshop.events.seen("job_started", count=3)
    faults.set("before")
    waiting.go.set()
    await outlast(worker, faults, 60)
    assert workshop.events.of("job_completed") == []
    faults.clear()
    for job_id in ids:
        await workshop.seen_in_time(worker, "job_completed", job_id=job_id)
    await worker.stop()
    assert [(await workshop.job(each)).attempt for each in ids] == [1, 1, 1]
    assert workshop.events.of("lease_lost") == []


async def test_the_reaper_waits_after_an_outage_until_others_could_renew(
    workshop: Workshop,
) -> None:
    waiting, faults = Waiting(), Faults()
    workshop.handle("wait", waiting)
    job_id = await workshop.start_one("wait")
    holder = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", job_id=job_id)
    worker = workshop.begin(ManualClock(), faults=faults, types={})
    ran = await workshop.events.seen("reaper_ran", worker=worker.id)
    await worker.asleep(9)
    faults.set("before")
    runs = faults.runs("reaper")
    worker.advance(9)
    await faults.ran("reaper", runs + 1)
    await workshop.events.seen("database_unreachable", purpose="reaper")
    workshop.ledger.expire(holder.id)
    faults.clear()
    # The database is back, but the holder has not renewed yet: the first run only looks whether it is there.
    await worker.asleep(9)
    worker.advance(9)
    await workshop.events.seen("database_back", purpose="reaper")
    assert workshop.events.of("reaper_ran", worker=worker.id) == ran
    await workshop.beat(holder)
    await worker.asleep(9)
    worker.advance(9)
    await workshop.events.seen("reaper_ran", count=2, worker=worker.id)
    assert workshop.events.of("job_reaped") == []
    assert (await workshop.job(job_id)).worker == holder.id
    waiting.go.set()


async def test_a_claim_whose_answer_was_lost_is_given_back_with_its_attempt(
    workshop: Workshop,
) -> None:
    waiting, faults = Waiting(), Faults()
    waiting.go.set()
    workshop.handle("wait", waiting)
    # Only the claimer waits for so long.
    worker = workshop.begin(
        ManualClock(), notifier=workshop.notifier, faults=faults, poll_ms=61_000
    )
    await worker.idle(61)  # the first pauses may begin before hints are proven to arrive
    faults.set("after", "claim")
    job_id = await workshop.start_one("wait", max_attempts=1)
    workshop.have_due()
    await workshop.events.seen("job_released", job_id=job_id)
    record = await workshop.job(job_id)
    assert (record.state, record.attempt) == ("pending", 0)
    faults.clear()
    await workshop.seen_in_time(worker, "job_completed", job_id=job_id, attempt=1)
    await worker.stop()
    assert workshop.ledger.leases() == []


@pytest.mark.parametrize("fails", [False, True])
async def test_an_outcome_written_with_an_unknown_answer_counts_once(
    workshop: Workshop, fails: bool
) -> None:
    waiting, faults = Waiting(), Faults()

    async def work(job: Job[Any]) -> None:
        await waiting.go.wait()
        if fails:
            raise OSError

    workshop.handle("work", work)
    job_id = await workshop.start_one("work")
    worker = workshop.begin(ManualClock(), faults=faults)
    await workshop.events.seen("job_started", job_id=job_id)
    faults.set("after", "complete")
    waiting.go.set()
    await faults.ran("complete")
    await workshop.events.seen("database_unreachable", purpose="complete")
    faults.clear()
    told = "job_retried" if fails else "job_completed"
    await workshop.seen_in_time(worker, told, job_id=job_id)
    report = await worker.stop()
    assert (report.counters["processed"], report.counters["retried"]) == (1 - fails, int(fails))
    assert report.counters["refused"] == 0
    assert (await workshop.job(job_id)).attempt == 1


async def test_one_outcome_that_cannot_be_written_fails_alone(postgres_workshop: Workshop) -> None:
    workshop, go = postgres_workshop, asyncio.Event()

    async def work(job: Job[int]) -> Any:
        await go.wait()
        return Continue("next", priority=100_000) if job.input == 3 else None

    workshop.handle("work", work)
    ids = [await workshop.start_one("work", number) for number in range(7)]
    worker = workshop.begin(ManualClock())
    await workshop.events.seen("job_started", count=7)
    go.set()
    await workshop.events.seen("job_completed", count=6)
    await workshop.events.seen("job_failed", job_id=ids[3])
    await worker.stop()
    assert await workshop.states(ids) == [
        "failed" if each == 3 else "completed" for each in range(7)
    ]


async def test_a_successor_that_waits_for_an_unknown_chain_fails_its_job(
    workshop: Workshop,
) -> None:
    async def work(job: Job[Any]) -> Continue:
        return Continue("next", blockers=["00000000-0000-7000-8000-000000000000"])

    workshop.handle("work", work)
    job_id = await workshop.start_one("work")
    await workshop.until_idle()
    record = await workshop.job(job_id)
    assert record.state == "failed"
    assert "ChainNotFound" in str(record.error)


class Paying:
    """A handler that completes its job in its own transaction, and loses the database as that ends."""

    def __init__(self, workshop: Workshop, faults: Faults, fault: Any, commits: bool) -> None:
        self._workshop = workshop
        self._faults = faults
        self._fault = fault
        self._commits = commits
        self.attempts = 0
        self.go = asyncio.Event()

    async def __call__(self, job: Job[Any]) -> None:
        self.attempts += 1
        if self.attempts > 1:
            return
        await self.go.wait()
        async with self._workshop.database.transaction_async() as tx:
            await job.complete(tx=tx, output="paid")
            self._faults.set(self._fault, "read", "heartbeat")
            if not self._commits:
                raise ConnectionError("the connection was lost")
        raise ConnectionError("the connection was lost, and the answer to the commit with it")


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
@pytest.mark.parametrize("fault", ["before", "hang"])
async def test_a_worker_outlives_an_outage_in_which_it_cannot_know_what_a_handler_committed(
    workshop: Workshop, fault: Any, commits: bool
) -> None:
    faults = Faults()
    paying = Paying(workshop, faults, fault, commits)
    workshop.handle("pay", paying, lease="60s", retry=Retry(base="100ms"))
    job_id = await workshop.start_one("pay")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, faults=faults)
    await workshop.events.seen("job_started", job_id=job_id)
    await workshop.beat(worker)
    beats = faults.runs("heartbeat")
    paying.go.set()
    await faults.ran("read")
    if fault == "hang":
        # Nobody answers until shortly before the lease would end.
        worker.advance(15)
        await faults.ran("heartbeat", beats + 1)
        worker.advance(39)
        await workshop.events.seen("lease_lost", job_id=job_id, reason="error")
    faults.clear()
    await workshop.seen_in_time(worker, "job_completed", job_id=job_id)
    await until(lambda: worker.worker.running == 0)
    record = await workshop.job(job_id)
    assert (record.state, record.output) == ("completed", '"paid"' if commits else "null")
    assert (record.attempt, paying.attempts) == (1, 1 if commits else 2)
    other = await workshop.start_one("pay")
    workshop.have_due()
    await workshop.events.seen("job_completed", job_id=other)

"""Leases: renewed while the loop is blocked, lost with a reason, and never completed by their old holder."""

import asyncio
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from holdfast.commands.attempts import reap_leases
from holdfast.commands.chains import cancel_chain, delete_chains, end_chain
from holdfast.core.lease import Lease
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.worker.job import Job
from holdfast.worker.options import WorkerOptions
from tests.support.manual_clock import ManualClock
from tests.support.until import until
from tests.worker.workshop import RunningWorker, Workshop

SHORT_LEASE_S = 0.6


async def test_a_handler_that_blocks_the_loop_for_two_leases_runs_once(workshop: Workshop) -> None:
    runs = 0

    async def block(job: Job[Any]) -> None:
        nonlocal runs
        runs += 1
        threading.Event().wait(2 * SHORT_LEASE_S)

    workshop.handle("block", block, lease="600ms", timeout="1m")
    job_id = await workshop.start_one("block")
    async with workshop.working():
        await workshop.events.seen("job_completed", job_id=job_id)
    record = await workshop.job(job_id)
    assert (runs, record.attempt, record.crashes) == (1, 1, 0)
    # The reaper was at work all the while, beside the blocked loop.
    assert len(workshop.events.of("reaper_ran")) >= 3
    assert workshop.events.of("lease_lost") == []


async def test_jobs_that_wait_for_a_slot_are_renewed_too(workshop: Workshop) -> None:
    go = asyncio.Event()

    async def wait(job: Job[Any]) -> None:
        await go.wait()

    workshop.handle("wait", wait)
    workshop.handle_quick()
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, slots=1)
    await workshop.prefetched("wait", 5)
    assert worker.worker.running == 1
    workshop.ledger.expire()
    await workshop.beat(worker)
    report = await workshop.run(reap_leases(workshop.store))
    assert report.page.reaped == []
    go.set()
    await worker.stop()


class Gate:
    """A handler of which each attempt waits for its own signal."""

    def __init__(self, workshop: Workshop, atomic: bool) -> None:
        self._workshop = workshop
        self._atomic = atomic
        self._open: dict[int, asyncio.Event] = {}

    async def __call__(self, job: Job[Any]) -> str:
        if self._atomic:
            await job.tx.execute(self._workshop.ledger.write_effect, [f"attempt {job.attempt}"])
        await self.of(job.attempt).wait()
        return f"attempt {job.attempt}"

    def of(self, attempt: int) -> asyncio.Event:
        """The signal of one attempt."""
        return self._open.setdefault(attempt, asyncio.Event())


async def taken_away(workshop: Workshop, holder: RunningWorker, job_id: str) -> None:
    """Let a worker's lease end and have the job made due again, behind its back."""
    # A heartbeat of its start would tell it.
    await workshop.beat(holder)
    assert await workshop.reap_as_if_later() == [job_id]
    await workshop.run(workshop.store.jobs.trigger([job_id]))
    workshop.have_due()


# In SQLite an atomic handler that waits holds the file's only write lock, and nobody could take its job away.
@pytest.mark.parametrize(
    ("workshop", "atomic"),
    [("postgres", False), ("postgres", True), ("sqlite", False)],
    indirect=["workshop"],
)
@pytest.mark.parametrize("other", ["the same process", "another worker"])
async def test_an_attempt_that_lost_its_job_is_refused(
    workshop: Workshop, atomic: bool, other: str
) -> None:
    gate = Gate(workshop, atomic)
    workshop.handle("work", gate, atomic=atomic)
    job_id = await workshop.start_one("work")
    # Its clock stands still, so no heartbeat tells the first attempt what happened.
    slots = 1 if other == "another worker" else 2
    first = workshop.begin(ManualClock(), notifier=workshop.notifier, slots=slots)
    await workshop.events.seen("job_started", job_id=job_id)
    second = first
    if other == "another worker":
        second = workshop.begin(ManualClock(), notifier=workshop.notifier)
        await workshop.events.seen("reaper_ran", worker=second.id)
    await taken_away(workshop, first, job_id)
    await workshop.events.seen("job_started", job_id=job_id, attempt=2, worker=second.id)
    gate.of(1).set()
    await workshop.events.seen(
        "write_refused", job_id=job_id, attempt=1, reason="taken_by_another_worker"
    )
    assert first.worker.counters.refused == 1
    record = await workshop.job(job_id)
    assert (record.state, record.worker) == ("running", second.id)
    assert workshop.ledger.effects() == []
    gate.of(2).set()
    await workshop.events.seen("job_completed", job_id=job_id, attempt=2)
    record = await workshop.job(job_id)
    assert (record.output, record.fence > 0) == ('"attempt 2"', True)
    assert workshop.ledger.effects() == (["attempt 2"] if atomic else [])
    assert first.worker.counters.processed == (1 if second is first else 0)


async def test_an_old_and_a_new_attempt_that_end_together_are_told_apart(
    workshop: Workshop,
) -> None:
    gate = Gate(workshop, atomic=False)
    workshop.handle("work", gate)
    job_id = await workshop.start_one("work")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", job_id=job_id)
    await taken_away(workshop, worker, job_id)
    await workshop.events.seen("job_started", job_id=job_id, attempt=2)
    gate.of(1).set()
    gate.of(2).set()
    await workshop.events.seen("write_refused", job_id=job_id, attempt=1)
    await workshop.events.seen("job_completed", job_id=job_id, attempt=2)
    await worker.stop()
    assert (await workshop.job(job_id)).output == '"attempt 2"'


def complete(store: Store, job_id: str) -> Op[Any]:
    return end_chain(store, job_id, "completed", output='"from outside"')


def cancel(store: Store, job_id: str) -> Op[Any]:
    return cancel_chain(store, job_id, "not wanted")


def delete(store: Store, job_id: str) -> Op[Any]:
    return delete_chains(store, [job_id])


@pytest.mark.parametrize("how", ["heartbeat", "hint"])
@pytest.mark.parametrize(
    ("move", "reason"),
    [(complete, "already_completed"), (cancel, "cancelled"), (delete, "not_found")],
)
async def test_a_handler_sees_why_its_job_is_no_longer_its_own(
    workshop: Workshop, move: Callable[[Store, str], Op[Any]], reason: str, how: str
) -> None:
    reasons: list[Any] = []

    async def wait(job: Job[Any]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            reasons.append(job.abort_reason)
            raise

    workshop.handle("wait", wait)
    job_id = await workshop.start_one("wait")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", job_id=job_id)
    await workshop.run(move(workshop.store, job_id))
    if how == "heartbeat":
        worker.advance(15)
    else:
        workshop.have_leases_checked(worker)
    await workshop.events.seen("lease_lost", job_id=job_id, reason=reason)
    report = await worker.stop()
    assert reasons == [reason]
    assert report.counters["leases_lost"] == 1
    assert report.counters["retried"] == 0
    assert report.abandoned == 0


async def test_a_job_taken_by_another_worker_aborts_its_handler(workshop: Workshop) -> None:
    reasons: list[Any] = []
    go = asyncio.Event()

    async def wait(job: Job[Any]) -> None:
        if job.attempt == 2:
            return
        try:
            await go.wait()
        except asyncio.CancelledError:
            reasons.append(job.abort_reason)
            raise

    workshop.handle("wait", wait)
    job_id = await workshop.start_one("wait")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", job_id=job_id)
    await taken_away(workshop, worker, job_id)
    await workshop.beat(worker)
    await workshop.events.seen("lease_lost", job_id=job_id, attempt=1)
    await workshop.events.seen("job_completed", job_id=job_id, attempt=2)
    await worker.stop()
    assert len(reasons) == 1
    assert reasons[0] in ("taken_by_another_worker", "already_completed")


async def test_a_lease_set_at_run_time_holds_for_new_claims_and_is_renewed_in_time(
    workshop: Workshop,
) -> None:
    go = asyncio.Event()

    async def wait(job: Job[Any]) -> None:
        await go.wait()

    workshop.handle("wait", wait, timeout="1h")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("worker_started")
    await workshop.beat(worker)
    await workshop.run(workshop.store.workers.set_type("wait", lease_ms=6_000))
    await workshop.beat(worker)
    job_id = await workshop.start_one("wait")
    workshop.have_due()
    await workshop.events.seen("job_started", job_id=job_id)
    (lease,) = await workshop.run(workshop.store.leases.page(10))
    assert lease.expires_at - lease.claimed_at == 6_000_000
    # With the heartbeat of the code's own lease the attempt would have been given up long before.
    for _ in range(10):
        await worker.advance_to_a_beat(1.9)
    assert workshop.events.of("lease_lost") == []
    go.set()
    await workshop.events.seen("job_completed", job_id=job_id)
    await worker.stop()


@pytest.mark.parametrize(
    ("worker_ms", "leases", "beats_ms"),
    [
        (None, [Lease("60s")], 15_000),
        (None, [Lease("60s", heartbeat="5s")], 5_000),
        (None, [Lease("60s", heartbeat="18s")], 18_000),
        (None, [Lease("60s", heartbeat="18s"), Lease("60s")], 15_000),
        (12_000, [Lease("60s")], 12_000),
        (12_000, [Lease("60s", heartbeat="5s"), Lease("60s")], 5_000),
        (9_500, [Lease("30s")], 9_500),
    ],
)
def test_a_worker_beats_as_often_as_the_most_demanding_of_its_leases(
    worker_ms: int | None, leases: list[Lease], beats_ms: int
) -> None:
    assert WorkerOptions(heartbeat_ms=worker_ms).fit_timings(leases).heartbeat_ms == beats_ms


async def test_a_type_s_own_heartbeat_is_the_worker_s(workshop: Workshop) -> None:
    workshop.handle("slow", _nothing, lease=Lease("60s", heartbeat="3s"))
    async with workshop.working():
        (started,) = await workshop.events.seen("worker_started")
    assert started.fields["heartbeat_ms"] == 3_000


async def _nothing(job: Job[Any]) -> None: ...


async def test_a_dead_worker_s_jobs_restart_before_the_backlog_behind_them(
    workshop: Workshop,
) -> None:
    go, begun = asyncio.Event(), count()

    async def wait(job: Job[Any]) -> None:
        before = next(begun)
        await go.wait()
        # The ends of all before it are recorded by then, so that the worker knows what it may take next.
        await workshop.events.seen("job_completed", count=before)

    workshop.handle("wait", wait)
    first = await workshop.start_one("wait")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, slots=1)
    await workshop.events.seen("job_started", job_id=first)
    await workshop.events.seen("reaper_ran")
    recovered = await workshop.start("wait", count=3)
    await workshop.claim_for_nobody("wait", lease_ms=1)
    await workshop.start("wait", count=20)
    worker.advance(10)
    await workshop.events.seen("job_reaped", count=3)
    await until(lambda: worker.worker._claimer._plain.cursors.needs_full_scan(["wait"]))
    go.set()
    await workshop.events.seen("job_completed", count=24)
    started = [each.fields["job_id"] for each in workshop.events.of("job_started")]
    # A process takes one such job at a time: the others come in turn, and not behind the backlog.
    assert started[1] == recovered[0]
    assert max(started.index(each) for each in recovered) <= 12


async def test_a_handler_that_is_interrupted_gives_its_job_back_at_its_place(
    workshop: Workshop,
) -> None:
    async def wait(job: Job[Any]) -> None:
        await asyncio.Event().wait()

    workshop.handle("wait", wait)
    job_id = await workshop.start_one("wait")
    before = (await workshop.job(job_id)).available_at
    worker = workshop.begin()
    await workshop.events.seen("job_started", job_id=job_id)
    await worker.stop(times=2)
    record = await workshop.job(job_id)
    assert (record.state, record.attempt, record.available_at) == ("pending", 0, before)

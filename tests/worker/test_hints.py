"""Hints wake a worker; without them, or when they are lost, polling finds everything."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.outcome import Snooze
from holdfast.core.records import NewJob
from holdfast.core.retry import Retry
from holdfast.notify.base import LOOK_EVERYWHERE, Hint, OnHint
from holdfast.notify.local import NullListener, NullNotifier
from holdfast.storage.id_generator import new_id
from holdfast.worker.job import Job
from holdfast.worker.options import PollBackoff, WorkerOptions
from holdfast.worker.watchdog import ANSWER_S
from tests.support.manual_clock import ManualClock
from tests.support.until import PATIENCE_S
from tests.worker.faults import Faults
from tests.worker.workshop import Workshop


def test_idle_waits_double_up_to_the_longest_until_something_is_found() -> None:
    backoff = PollBackoff(WorkerOptions(idle_min_ms=7_000, idle_max_ms=28_000, idle_jitter_ms=0))
    assert [backoff.poll_s(0.0) for _ in range(4)] == [7, 14, 28, 28]
    backoff.note_found(0)
    assert backoff.poll_s(0.0) == 28
    backoff.note_found(1)
    assert backoff.poll_s(0.0) == 7


async def test_without_a_notifier_the_poll_finds_the_job(workshop: Workshop) -> None:
    workshop.handle_quick()
    worker = workshop.begin(ManualClock(), idle_min_ms=7_000, idle_max_ms=28_000)
    await worker.idle(28)
    worker.advance(28)
    await worker.asleep(28)
    job_id = await workshop.start_one("quick")
    worker.advance(28)
    await workshop.events.seen("job_completed", job_id=job_id)
    await worker.stop()


async def test_a_hint_that_was_lost_costs_no_more_than_the_poll_interval(
    workshop: Workshop,
) -> None:
    workshop.handle_quick()
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, poll_ms=60_000)
    first = await workshop.start_one("quick")
    workshop.have_due()
    await workshop.events.seen("job_completed", job_id=first)
    await worker.idle(60)
    second = await workshop.start_one("quick")
    worker.advance(60)
    await workshop.events.seen("job_completed", job_id=second)
    await worker.stop()


async def test_a_notifier_that_is_not_proven_alive_is_not_relied_on(workshop: Workshop) -> None:
    workshop.handle_quick()
    worker = workshop.begin(notifier=NullNotifier(), poll_ms=600_000)
    job_id = await workshop.start_one("quick")
    await workshop.events.seen("job_completed", job_id=job_id)
    await worker.stop()


class MortalListener(NullListener):
    alive = True

    def __init__(self, on_hint: OnHint) -> None:
        self.on_hint = on_hint


class MortalNotifier(NullNotifier):
    """Proven alive until it dies, which it tells, as far as it notices."""

    def __init__(self) -> None:
        self._listeners: list[MortalListener] = []

    def listen(self, on_hint: OnHint) -> MortalListener:
        self._listeners.append(MortalListener(on_hint))
        return self._listeners[-1]

    def die(self, is_noticed: bool) -> None:
        for each in self._listeners:
            each.alive = False
            if is_noticed:
                each.on_hint(LOOK_EVERYWHERE)


@pytest.mark.parametrize("is_noticed", [True, False], ids=["told", "untold"])
async def test_a_worker_polls_as_soon_as_hints_are_lost(
    sqlite_workshop: Workshop, is_noticed: bool
) -> None:
    workshop, notifier, clock = sqlite_workshop, MortalNotifier(), ManualClock()
    workshop.handle_quick()
    worker = workshop.begin(
        clock, notifier=notifier, poll_ms=600_000, idle_min_ms=7_000, idle_max_ms=7_000
    )
    await worker.idle(600)
    notifier.die(is_noticed)
    died_at = clock.monotonic()
    await worker.idle(7)
    assert clock.monotonic() - died_at < 60
    job_id = await workshop.start_one("quick")
    worker.advance(7)
    await workshop.events.seen("job_completed", job_id=job_id)
    await worker.stop()


async def test_a_delayed_job_runs_when_it_is_due_not_at_the_next_poll(workshop: Workshop) -> None:
    workshop.handle_quick()
    now = await workshop.run(workshop.store.schema.clock())
    job_id = await workshop.start_one("quick", at=now + 300_000)
    worker = workshop.begin(notifier=workshop.notifier, poll_ms=600_000)
    await workshop.events.seen("job_completed", job_id=job_id)
    await worker.stop()


class JustBefore(Faults):
    """No fault at all: something is done just before the nth operation of a purpose."""

    def __init__(self, purpose: str, number: int, act: Callable[[], object]) -> None:
        super().__init__()
        self._moment = (purpose, number)
        self._act = act

    def note(self, purpose: str) -> None:
        super().note(purpose)
        if (purpose, self.runs(purpose)) == self._moment:
            self._act()


async def test_a_job_that_becomes_due_after_a_look_and_before_the_wait_is_not_overlooked(
    workshop: Workshop,
) -> None:
    workshop.handle_quick()
    id = new_id()
    job = NewJob(id=id, chain_id=id, type="quick", input="null")
    faults = JustBefore(
        "claim", 2, lambda: workshop.database.run(workshop.store.jobs.insert([job]))
    )
    worker = workshop.begin(notifier=workshop.notifier, faults=faults, poll_ms=600_000)
    await workshop.events.seen("job_completed", job_id=id)
    await worker.stop()


@pytest.mark.parametrize("how", ["failed", "snoozed"])
async def test_another_attempt_runs_when_it_is_due_not_at_the_next_poll(
    workshop: Workshop, how: str
) -> None:
    async def work(job: Job[Any]) -> Any:
        if workshop.events.of(f"job_{'retried' if how == 'failed' else how}"):
            return None
        if how == "failed":
            raise OSError
        return Snooze("200ms")

    workshop.handle("work", work, retry=Retry(base="200ms"))
    job_id = await workshop.start_one("work")
    worker = workshop.begin(notifier=workshop.notifier, poll_ms=600_000)
    await workshop.events.seen("job_completed", job_id=job_id)
    await worker.stop()


async def test_what_a_worker_gives_back_is_found_by_others_at_once(workshop: Workshop) -> None:
    go = asyncio.Event()
    first = ""

    async def work(job: Job[Any]) -> None:
        if job.worker == first:
            await go.wait()

    workshop.handle("work", work)
    workshop.handle_quick()
    holder = workshop.begin(ManualClock(), notifier=workshop.notifier, slots=1)
    first = holder.id
    ids = await workshop.prefetched("work", 4)
    other = workshop.begin(ManualClock(), notifier=workshop.notifier)
    # The other's mark moves past everything that the first worker holds.
    behind = await workshop.start_one("work")
    await workshop.seen_in_time(other, "job_completed", job_id=behind, worker=other.id)
    holder.worker.stop()
    for job_id in ids[1:]:
        await workshop.events.seen("job_completed", job_id=job_id, worker=other.id)
    go.set()
    await holder.ended()
    await other.stop()


async def test_reaping_wakes_workers_and_tells_the_old_owner(workshop: Workshop) -> None:
    heard: list[Hint] = []
    listener = workshop.notifier.listen(heard.append)
    workshop.handle_quick()

    async def wait(job: Job[Any]) -> None:
        job.wait_for_abort(0)

    workshop.handle("wait", wait)
    job_id = await workshop.start_one("wait")
    claimed = await workshop.claim_for_nobody("wait")
    assert claimed == [job_id]
    workshop.ledger.expire()
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, types={})
    await workshop.events.seen("job_reaped", job_id=job_id)
    await worker.stop()
    listener.close()
    assert Hint("look", "wait") in heard
    assert Hint("lost", worker="nobody", ids=(job_id,)) in heard


async def test_what_is_given_back_while_a_handler_blocks_the_loop_is_found_by_others_at_once(
    workshop: Workshop,
) -> None:
    clock, pause, go = ManualClock(), threading.Event(), asyncio.Event()
    heard: list[Hint] = []
    while_blocked: list[Hint] = []

    async def block(job: Job[Any]) -> None:
        await go.wait()
        heard.clear()
        holder.worker.stop()
        deadline = time.monotonic() + PATIENCE_S
        while Hint("look", "block") not in heard and time.monotonic() < deadline:
            if clock.is_awaited(ANSWER_S):
                clock.advance(ANSWER_S)
            pause.wait(0.001)
        while_blocked.extend(heard)

    workshop.handle("block", block)
    workshop.handle_quick()
    holder = workshop.begin(clock, notifier=workshop.notifier, slots=1)
    listener = workshop.notifier.listen(heard.append)
    ids = await workshop.prefetched("block", 4)
    go.set()
    report = await holder.ended()
    listener.close()
    assert Hint("look", "block") in while_blocked
    assert await workshop.states(ids) == ["completed", "pending", "pending", "pending"]
    assert report.abandoned == 0

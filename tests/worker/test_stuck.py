"""Handlers that obey nobody: their slots are reported, the others go on, and a worker without any is given up."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from holdfast.worker.job import Job
from tests.support.manual_clock import ManualClock
from tests.support.until import PATIENCE_S, until
from tests.worker.workshop import RunningWorker, Workshop

TIMEOUT_S = 40


class Deaf:
    """A handler that ignores every word until the test lets it go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.over = 0

    async def __call__(self, job: Job[Any]) -> None:
        while not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                continue
        self.over += 1


@pytest_asyncio.fixture
async def deaf(workshop: Workshop) -> AsyncIterator[Deaf]:
    """A deaf handler, registered; let go at the end."""
    deaf = Deaf()
    workshop.handle("deaf", deaf, timeout=f"{TIMEOUT_S}s")
    workshop.handle_quick()
    yield deaf
    deaf.go.set()


async def stuck(workshop: Workshop, worker: RunningWorker, job_id: str) -> None:
    """Let a job's time pass, and then the patience with its handler."""
    await workshop.events.seen("job_started", job_id=job_id)
    worker.advance(TIMEOUT_S)
    await workshop.events.seen("job_retried", job_id=job_id)
    await workshop.seen_in_time(worker, "slot_stuck", job_id=job_id)


async def test_a_deaf_handlers_slot_is_reported_and_the_others_go_on(
    workshop: Workshop, deaf: Deaf
) -> None:
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, slots=2)
    first = await workshop.start_one("deaf")
    workshop.have_due()
    await stuck(workshop, worker, first)
    assert "TimedOut" in str((await workshop.attempts(first))[0].error)
    assert worker.worker.counters.stuck == 1
    second = await workshop.start_one("quick")
    workshop.have_due()
    await workshop.seen_in_time(worker, "job_completed", job_id=second)
    assert len(workshop.events.of("slot_stuck")) == 1
    # Whoever obeys at last gives its slot back.
    deaf.go.set()
    await until(lambda: worker.worker.running == 0)
    await worker.asleep(1)
    worker.advance(1)
    await until(lambda: worker.worker.counters.stuck == 0)
    report = await worker.stop()
    assert (report.abandoned, report.exit_code) == (0, 0)


async def test_a_worker_that_answers_has_proved_its_loop_and_its_heartbeat_alive(
    workshop: Workshop,
) -> None:
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()

    def note() -> None:
        answers.put(threading.current_thread().name)

    running = workshop.begin()
    running.worker.answer(note)  # too early: there is nothing yet that could answer
    await workshop.events.seen("worker_started")
    running.worker.answer(note)
    assert await asyncio.to_thread(answers.get, timeout=PATIENCE_S) == "holdfast-heartbeat"
    running.worker.answer(note)
    pause = threading.Event()
    assert not pause.wait(0.2)
    assert answers.empty(), "the loop, blocked by this test, had no turn"
    await running.stop()


async def test_a_worker_whose_every_slot_is_stuck_gives_itself_up(
    workshop: Workshop, deaf: Deaf
) -> None:
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, slots=1)
    job_id = await workshop.start_one("deaf")
    workshop.have_due()
    await stuck(workshop, worker, job_id)
    await workshop.seen_in_time(worker, "worker_stopped")
    report = await worker.ended()
    assert report.reason == "all slots are stuck"
    # So that whoever supervises the process starts another one.
    assert (report.abandoned, report.exit_code) == (1, 1)
    assert workshop.ledger.leases() == []

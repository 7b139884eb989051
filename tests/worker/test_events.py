"""Events leave the worker after their commit: whoever reads the database then sees what they tell."""

import asyncio
from typing import Any

from holdfast.commands.jobs import cancel_jobs
from holdfast.core.errors import Permanent
from holdfast.core.events import CATALOGUE, Event
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.worker.job import Job
from tests.support.manual_clock import ManualClock
from tests.worker.workshop import Workshop

STATES = {
    "job_started": "running",
    "job_completed": "completed",
    "job_continued": "completed",
    "job_retried": "pending",
    "job_snoozed": "pending",
    "job_failed": "failed",
    "job_cancelled": "cancelled",
    "job_released": "pending",
    "job_reaped": "pending",
    "job_unblocked": "pending",
    "lease_lost": "cancelled",
}


class Witness:
    """Reads the job's state at the very moment it is told of."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._observe = workshop.events.observe
        self.seen: list[tuple[str, str | None]] = []
        self.unknown: list[Event] = []
        workshop.events.observe = self  # type: ignore[method-assign]

    def __call__(self, event: Event) -> None:
        if not event.fields.keys() <= set(CATALOGUE[event.name].fields):
            self.unknown.append(event)
        if event.name in STATES:
            state = self._workshop.ledger.state(event.fields["job_id"])
            self.seen.append((event.name, state))
        self._observe(event)


async def test_every_event_of_a_job_is_emitted_after_its_commit(workshop: Workshop) -> None:
    witness = Witness(workshop)
    answers: dict[str, Any] = {
        "value": 1,
        "continue": Continue("quick"),
        "retry": OSError(),
        "snooze": Snooze("1h"),
        "fail": Permanent("no"),
        "cancel": Cancel("no"),
    }

    async def work(job: Job[str]) -> Any:
        answer = answers.get(job.input)
        if isinstance(answer, Exception):
            raise answer
        if job.input == "wait":
            await asyncio.Event().wait()
        return answer

    workshop.handle("work", work)
    workshop.handle_quick()
    await workshop.start("work", "crash")
    await workshop.claim_for_nobody("work")
    workshop.ledger.expire()
    for name in answers:
        await workshop.start("work", name)
    waiting = await workshop.start_one("work", "wait")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    for name in set(STATES) - {"job_released", "job_unblocked", "lease_lost"}:
        await workshop.events.seen(name)
    await workshop.run(cancel_jobs(workshop.store, [waiting]))
    workshop.have_leases_checked(worker)
    await workshop.events.seen("lease_lost")
    await worker.stop()
    assert {name for name, _ in witness.seen} >= set(STATES) - {"job_released", "job_unblocked"}
    for name, state in witness.seen:
        # A job that was taken back is due at once, and may run again by now.
        expected = {STATES[name]} | ({"running"} if name == "job_reaped" else set())
        assert state in expected, f"{name} was told while the job was {state}"
    assert witness.unknown == []


async def test_what_is_given_back_at_the_end_is_emitted_after_its_commit(
    workshop: Workshop,
) -> None:
    witness = Witness(workshop)
    go = asyncio.Event()

    async def wait(job: Job[Any]) -> None:
        await go.wait()

    workshop.handle("wait", wait)
    workshop.handle_quick()
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, slots=1)
    await workshop.prefetched("wait", 3)
    worker.worker.stop()
    await workshop.events.seen("job_released", count=2)
    go.set()
    await worker.ended()
    assert witness.seen.count(("job_released", "pending")) == 2


async def test_the_completion_of_an_atomic_handler_is_emitted_after_its_commit(
    workshop: Workshop,
) -> None:
    witness = Witness(workshop)

    async def pay(job: Job[Any]) -> None:
        await job.tx.execute(workshop.ledger.write_effect, ["paid"])

    workshop.handle("pay", pay, atomic=True)
    await workshop.start("pay")
    await workshop.until_idle()
    assert ("job_completed", "completed") in witness.seen


async def test_an_observer_that_fails_stops_nothing(workshop: Workshop) -> None:
    def fail(event: Event) -> None:
        raise RuntimeError("the metrics are full")

    workshop.events.observe = fail  # type: ignore[method-assign]
    workshop.handle_quick()
    ids = await workshop.start("quick", count=5)
    report = await workshop.until_idle()
    assert report.counters["processed"] == 5
    assert await workshop.states(ids) == ["completed"] * 5

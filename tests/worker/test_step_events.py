"""What durable functions tell observers: what they record, steps that fail for good, records that nobody asks for."""

from __future__ import annotations

from typing import Any

from holdfast.admin.steps import shown_steps
from holdfast.commands.explain import look_around, why
from holdfast.commands.signals import make_signal, send_signal
from holdfast.core.errors import StepFailed
from holdfast.core.retry import Retry
from holdfast.observe.metrics import (
    SIGNALS_SENT,
    SIGNALS_TAKEN,
    STEP_FAILURES,
    STEP_RECORDS,
    Measurement,
    measure,
)
from holdfast.worker.job import Job
from tests.support.until import until
from tests.worker.workshop import Workshop


async def succeed() -> int:
    return 7


async def fail() -> None:
    raise OSError("card")


async def order(job: Job[Any]) -> None:
    await job.step("charge", succeed)
    try:
        await job.step("mail", fail, retry=Retry(max_attempts=1))
    except StepFailed:
        await job.wait_for("approved")


async def test_records_failed_steps_and_signals_are_told_and_measured(workshop: Workshop) -> None:
    workshop.handle("order", order)
    id = await workshop.start_one("order")
    async with workshop.working(notifier=workshop.notifier):
        await workshop.events.seen("job_parked", job_id=id)
        (job,) = await workshop.run(workshop.store.jobs.get([id]))
        around = await workshop.run(look_around(workshop.store, job))
        assert why(job, around) == "Waiting for signal approved"
        change = await workshop.run(send_signal(workshop.store, make_signal("approved")))
        workshop.notifier.send(change.hints)
        await workshop.events.seen("job_completed", job_id=id)
    first, second = await workshop.events.seen("steps_recorded", 2, job_id=id)
    assert (first.fields["recorded"], first.fields["signals"]) == (3, 0)
    assert (second.fields["recorded"], second.fields["signals"]) == (0, 1)
    (failed,) = workshop.events.of("step_failed", job_id=id)
    assert (failed.fields["step"], failed.fields["error"]) == ("mail", "OSError: card")
    told = [each for event in (first, failed) for each in measure(event, 0.0)]
    assert Measurement(STEP_RECORDS, 3, ("order",)) in told
    assert Measurement(STEP_FAILURES, 1, ("order",)) in told
    assert Measurement(SIGNALS_TAKEN, 1, ("order",)) in measure(second, 0.0)
    assert [*measure(change.events[0], 0.0)] == [Measurement(SIGNALS_SENT, 1)]
    assert workshop.events.of("records_unused") == []


async def test_records_that_the_code_does_not_ask_for_are_told_when_it_ends(
    workshop: Workshop,
) -> None:
    asked = ["charge", "mail"]

    async def changing(job: Job[Any]) -> None:
        for name in asked:
            await job.step(name, succeed)
        await job.sleep("1ms")
        asked.clear()
        await job.wait_for("go")

    workshop.handle("order", changing)
    id = await workshop.start_one("order")
    async with workshop.working(notifier=workshop.notifier):
        await until(lambda: not asked)
        change = await workshop.run(send_signal(workshop.store, make_signal("go")))
        workshop.notifier.send(change.hints)
        (told,) = await workshop.events.seen("records_unused", job_id=id)
    assert told.fields["steps"] == ["charge", "mail"]
    names = [each.name for each in workshop.events.events]
    assert names.index("job_completed") < names.index("records_unused")
    kept = await workshop.run(workshop.store.steps.of_jobs([id]))
    shown = shown_steps(kept, (), id, None)
    assert [(each["step"], each["unused"]) for each in shown] == [
        ("charge", True),
        ("mail", True),
        ("sleep", False),
        ("wait:go", False),
    ]

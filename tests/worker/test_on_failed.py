"""`on_failed` is called in the transaction that fails a job for good, whoever finds the failure."""

import asyncio
from typing import Any

import pytest

from holdfast.commands.chains import end_chain
from holdfast.commands.explain import look_around, why
from holdfast.commands.jobs import cancel_jobs, fail_unhandled, redrive_jobs
from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.errors import Permanent
from holdfast.core.flow import Limit, Ordered
from holdfast.core.records import ON_FAILED_TRIES, NewBlocker, NewJob
from holdfast.core.retry import Retry
from holdfast.storage.id_generator import new_id
from holdfast.worker.job import Job
from tests.worker.workshop import Workshop

AT_ONCE = Retry(max_attempts=2, base="1ms", cap="1ms")


class Notes:
    """An `on_failed` that writes a row in the transaction that records the failure."""

    def __init__(self, workshop: Workshop, failures: int = 0) -> None:
        self.errors: list[str | None] = []
        self._statement = workshop.ledger.write_effect
        self._failures = failures

    async def __call__(self, job: Job[Any]) -> None:
        self.errors.append(job.error)
        async with job.complete() as completion:
            await completion.tx.execute(self._statement, (f"failed {job.input}",))
            if len(self.errors) <= self._failures:
                raise ValueError("no note today")


async def broken(job: Job[Any]) -> None:
    raise Permanent("it is broken")


def handle_broken(workshop: Workshop, failures: int = 0, **options: Any) -> Notes:
    """Register a type whose jobs fail for good and are noted."""
    notes = Notes(workshop, failures)
    handler = options.pop("handler", broken)
    workshop.handle("mail.send", handler, on_failed=notes, **{"retry": AT_ONCE} | options)
    return notes


async def declare(workshop: Workshop) -> None:
    await workshop.run(workshop.store.on_failed.declare(["mail.send"]))


async def work_until_failed(workshop: Workshop, job_id: str) -> None:
    async with workshop.working():
        await workshop.events.seen("job_failed", job_id=job_id)


async def test_it_is_called_once_and_commits_with_the_failure(workshop: Workshop) -> None:
    notes = handle_broken(workshop)
    job_id = await workshop.start_one("mail.send", 7)
    await workshop.until_idle()
    assert workshop.ledger.effects() == ["failed 7"]
    assert notes.errors[0] is not None
    assert notes.errors[0].startswith("Permanent: it is broken")
    job = await workshop.job(job_id)
    assert (job.state, job.error, job.attempt) == ("failed", notes.errors[0], 1)
    assert len(workshop.events.of("job_failed", job_id=job_id)) == 1
    assert [(each.attempt, each.kind) for each in await workshop.attempts(job_id)] == [(1, "fail")]
    await workshop.until_idle()
    assert len(notes.errors) == 1


async def test_it_is_called_after_the_last_attempt_and_not_before(workshop: Workshop) -> None:
    def failing(job: Job[Any]) -> None:
        raise ConnectionError(f"try {job.attempt}")

    def note(job: Job[Any]) -> None:
        job.tx.execute(workshop.ledger.write_effect, (f"{job.error}".partition("\n")[0],))

    workshop.handle("mail.send", failing, retry=AT_ONCE, atomic=True, on_failed=note)
    await work_until_failed(workshop, await workshop.start_one("mail.send", 7))
    assert workshop.ledger.effects() == ["ConnectionError: try 2"]


async def test_a_job_that_completes_or_is_cancelled_has_not_failed(workshop: Workshop) -> None:
    async def fine(job: Job[Any]) -> None: ...

    notes = handle_broken(workshop, handler=fine)
    await workshop.start_one("mail.send", 7)
    cancelled = await workshop.start_one("mail.send", 8)
    await workshop.run(cancel_jobs(workshop.store, [cancelled]))
    await workshop.until_idle()
    assert notes.errors == []


async def test_a_job_whose_last_worker_died_is_failed_by_one_that_has_the_function(
    workshop: Workshop,
) -> None:
    await declare(workshop)
    job_id = await workshop.start_one("mail.send", 7, max_attempts=1)
    await workshop.claim_for_nobody("mail.send")
    assert await workshop.reap_as_if_later() == [job_id]
    assert (await workshop.job(job_id)).state == "pending"
    await workshop.run(workshop.store.jobs.trigger([job_id]))
    record = await workshop.job(job_id)
    around = await workshop.run(look_around(workshop.store, record))
    assert why(record, around) == (
        "Failed for good: WorkerDied: the worker died and the only attempt is spent; next, on_failed is called."
        " No live worker handles mail.send"
    )

    notes = handle_broken(workshop)
    await workshop.until_idle()
    job = await workshop.job(job_id)
    assert (job.state, job.error, job.fingerprint) == (
        "failed",
        "WorkerDied: the worker died and the only attempt is spent",
        "worker-died-attempts-spent",
    )
    assert (notes.errors, workshop.ledger.effects()) == ([job.error], ["failed 7"])


async def test_a_job_whose_blocker_failed_elsewhere_is_failed_by_one_that_has_the_function(
    workshop: Workshop,
) -> None:
    await declare(workshop)
    blocker = await workshop.start_one("other", 1)
    job_id, after_id = new_id(), new_id()
    waiting = NewJob(job_id, job_id, "mail.send", "7", blockers=1)
    after = NewJob(after_id, after_id, "other.after", "8", blockers=1)
    requests = [
        StartRequest(waiting, blockers=(NewBlocker(job_id, 0, blocker),)),
        StartRequest(after, blockers=(NewBlocker(after_id, 0, job_id),)),
    ]
    for each in requests:
        await workshop.run(start_chains(workshop.store, [each]))
    await workshop.run(end_chain(workshop.store, blocker, "cancelled"))
    assert await workshop.states([job_id, after_id]) == ["pending", "blocked"]

    handle_broken(workshop)
    await workshop.until_idle()
    assert workshop.ledger.effects() == ["failed 7"]
    assert await workshop.states([job_id, after_id]) == ["failed", "failed"]
    assert (await workshop.job(job_id)).error == f"BlockerFailed: chain {blocker} did not complete"


async def test_it_is_called_again_when_it_raises_and_leaves_nothing_behind(
    workshop: Workshop,
) -> None:
    notes = handle_broken(workshop, failures=2)
    job_id = await workshop.start_one("mail.send", 7)
    await work_until_failed(workshop, job_id)
    assert len(notes.errors) == 3
    assert workshop.ledger.effects() == ["failed 7"]
    assert (await workshop.job(job_id)).error == notes.errors[0]


async def test_a_job_fails_without_it_after_the_last_try(workshop: Workshop) -> None:
    notes = handle_broken(workshop, failures=100)
    job_id = await workshop.start_one("mail.send", 7)
    await work_until_failed(workshop, job_id)
    assert len(notes.errors) == ON_FAILED_TRIES
    assert workshop.ledger.effects() == []
    job = await workshop.job(job_id)
    assert (job.state, job.attempt) == ("failed", 1)
    assert job.error is not None
    assert job.error.startswith("Permanent: it is broken")
    assert f"on_failed was called {ON_FAILED_TRIES} times in vain: ValueError: no note" in job.error
    (warning,) = workshop.events.of("on_failed_gave_up")
    assert warning.fields["job_id"] == job_id


async def test_a_job_whose_worker_dies_in_it_is_tried_again_and_fails_in_the_end(
    workshop: Workshop,
) -> None:
    await declare(workshop)
    job_id = await workshop.start_one("mail.send", 7, max_attempts=1)
    for _ in range(ON_FAILED_TRIES):
        await workshop.claim_for_nobody("mail.send")
        await workshop.reap_as_if_later()
        assert (await workshop.job(job_id)).state == "pending"
        await workshop.run(workshop.store.jobs.trigger([job_id]))
    await workshop.claim_for_nobody("mail.send")
    await workshop.reap_as_if_later()
    assert (await workshop.job(job_id)).state == "failed"


async def test_code_without_the_function_fails_the_job_at_once(workshop: Workshop) -> None:
    await declare(workshop)
    job_id = await workshop.start_one("mail.send", 7, max_attempts=1)
    await workshop.claim_for_nobody("mail.send")
    await workshop.reap_as_if_later()
    await workshop.run(workshop.store.jobs.trigger([job_id]))
    called = []

    async def send(job: Job[Any]) -> None:
        called.append(job.input)

    workshop.handle("mail.send", send)
    await workshop.until_idle()
    job = await workshop.job(job_id)
    assert (job.state, called) == ("failed", [])
    assert job.error == "WorkerDied: the worker died and the only attempt is spent"


async def test_it_is_called_for_each_job_of_a_batch(workshop: Workshop) -> None:
    async def send(jobs: list[Job[Any]]) -> list[Any]:
        return [Permanent("no") if each.input else None for each in jobs]

    handle_broken(workshop, handler=send, batch=10)
    await workshop.start_one("mail.send", 0)
    for number in (1, 2):
        await workshop.start_one("mail.send", number)
    await workshop.until_idle()
    assert sorted(workshop.ledger.effects()) == ["failed 1", "failed 2"]


@pytest.mark.parametrize(
    "options", [{"limits": [Limit(1)]}, {"ordered": Ordered(by="key")}], ids=["limited", "ordered"]
)
async def test_it_is_called_for_jobs_in_line(workshop: Workshop, options: Any) -> None:
    async def send(job: Job[dict[str, str]]) -> None:
        raise Permanent("no")

    notes = handle_broken(workshop, handler=send, **options)
    flow = workshop.types["mail.send"].flow
    assert flow is not None
    gate, is_ordered = flow.partition_of('{"key": "a"}'), "ordered" in options
    input = {"key": "a"}
    first, second = await workshop.start("mail.send", input, 2, gate=gate, ordered=is_ordered)
    await workshop.until_idle()
    # A failed job holds back those behind it in its ordered line.
    expected = "pending" if is_ordered else "failed"
    assert await workshop.states([first, second]) == ["failed", expected]
    assert len(notes.errors) == (1 if is_ordered else 2)


async def test_it_is_called_for_a_job_that_timed_out_for_the_last_time(workshop: Workshop) -> None:
    async def endless(job: Job[Any]) -> None:
        await asyncio.Event().wait()

    notes = handle_broken(workshop, handler=endless, timeout="200ms")
    job_id = await workshop.start_one("mail.send", 7, max_attempts=1)
    await work_until_failed(workshop, job_id)
    assert notes.errors[0] is not None
    assert notes.errors[0].startswith("TimedOut: ")
    assert workshop.ledger.effects() == ["failed 7"]


async def test_it_is_called_for_a_job_whose_input_cannot_be_read(workshop: Workshop) -> None:
    async def send(job: Job[int]) -> None:
        print(job.input)

    async def note(job: Job[int]) -> None:
        async with job.complete() as completion:
            await completion.tx.execute(workshop.ledger.write_effect, (f"{job.error}"[:15],))

    workshop.handle("mail.send", send, on_failed=note)
    job_id = await workshop.start_one("mail.send", "no number")
    async with workshop.working(unhandled_after_ms=0):
        await workshop.events.seen("job_failed", job_id=job_id)
    assert workshop.ledger.effects() == ["InputUnreadable"]


async def test_one_that_cannot_read_the_input_either_is_tried_as_often_as_any(
    workshop: Workshop,
) -> None:
    inputs = []

    async def note(job: Job[int]) -> None:
        inputs.append(job.claimed.input)
        print(job.input)

    async def send(job: Job[int]) -> None:
        print(job.input)

    retry = Retry(base="1ms", cap="1ms")
    workshop.handle("mail.send", send, on_failed=note, retry=retry)
    job_id = await workshop.start_one("mail.send", "no number")
    async with workshop.working(unhandled_after_ms=0):
        await workshop.events.seen("job_failed", job_id=job_id)
    assert len(inputs) == ON_FAILED_TRIES
    assert (await workshop.job(job_id)).state == "failed"


async def test_it_is_called_again_for_a_redriven_job_that_fails_again(workshop: Workshop) -> None:
    notes = handle_broken(workshop)
    job_id = await workshop.start_one("mail.send", 7)
    await workshop.until_idle()
    await workshop.run(redrive_jobs(workshop.store, [job_id]))
    await workshop.until_idle()
    assert len(notes.errors) == 2
    assert (await workshop.job(job_id)).attempt == 1


async def test_a_job_that_no_worker_handles_waits_for_it_once(workshop: Workshop) -> None:
    await declare(workshop)
    job_id = await workshop.start_one("mail.send", 7)
    assert not (await workshop.run(fail_unhandled(workshop.store, "mail.send", 0, 10))).ended
    assert (await workshop.job(job_id)).state == "pending"
    await workshop.run(fail_unhandled(workshop.store, "mail.send", 0, 10))
    job = await workshop.job(job_id)
    assert (job.state, job.error) == ("failed", "UnhandledType: no live worker handles mail.send")


async def test_what_it_wrote_is_rolled_back_when_its_lease_is_lost(workshop: Workshop) -> None:
    async def note(job: Job[Any]) -> None:
        async with job.complete() as completion:
            await completion.tx.execute(workshop.ledger.write_effect, ("failed",))
            if len(lost) == 0:
                lost.append(job.id)
                workshop.ledger.delete("queue", str(job.id))

    lost: list[Any] = []
    workshop.handle("mail.send", broken, on_failed=note)
    await workshop.start_one("mail.send", 7)
    await workshop.until_idle()
    assert workshop.ledger.effects() == []

"""Handlers in processes of their own: they answer, they fail, they die, they are killed at their timeout."""

import asyncio
import os
import signal
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.codec import decode_any, encode_any
from holdfast.core.errors import HandlerInvalid
from holdfast.core.instants import to_instant
from holdfast.core.records import ClaimedJob, NewBlocker, NewJob
from holdfast.core.retry import Retry
from holdfast.storage.id_generator import new_id
from holdfast.worker.job import Job
from holdfast.worker.processes import JobRequest, encode_message
from tests.support.manual_clock import ManualClock
from tests.support.until import PATIENCE_S, until
from tests.worker import process_handlers, slow_handlers
from tests.worker.workshop import Workshop

AT_ONCE = Retry(base="100ms", cap="100ms")


async def finished(workshop: Workshop, handler: Any, input: Any = None, **fields: Any) -> Any:
    """Run one job in a process and return its record."""
    workshop.handle("work", handler, executor="process")
    job_id = await workshop.start_one("work", input, **fields)
    await workshop.until_idle()
    return await workshop.job(job_id)


@pytest.mark.parametrize("handler", [process_handlers.square, process_handlers.square_async])
async def test_a_process_answers_with_a_value(workshop: Workshop, handler: Any) -> None:
    record = await finished(workshop, handler, 12)
    assert (record.state, record.output) == ("completed", "144")


async def test_an_error_in_a_process_is_shown_under_its_own_name(workshop: Workshop) -> None:
    record = await finished(workshop, process_handlers.fail, "hunter2", max_attempts=1)
    assert record.error.startswith("ConnectionError: password=")
    assert "hunter2" not in record.error
    assert "process_handlers.py" in record.error


async def test_a_permanent_error_in_a_process_fails_at_once(sqlite_workshop: Workshop) -> None:
    record = await finished(sqlite_workshop, process_handlers.refuse)
    assert (record.state, record.attempt) == ("failed", 1)


async def test_a_handler_in_a_process_has_no_steps(sqlite_workshop: Workshop) -> None:
    record = await finished(sqlite_workshop, process_handlers.step, 1)
    assert (record.state, record.output) == ("completed", '"HF154"')


@pytest.mark.parametrize(
    "handler", [process_handlers.busy, process_handlers.later, process_handlers.later_by_raising]
)
async def test_a_process_may_ask_for_time(sqlite_workshop: Workshop, handler: Any) -> None:
    record = await finished(sqlite_workshop, handler)
    assert (record.state, record.attempt) == ("pending", 0)


async def test_a_process_may_continue_the_chain(sqlite_workshop: Workshop) -> None:
    sqlite_workshop.handle("square", process_handlers.square, executor="process")
    record = await finished(sqlite_workshop, process_handlers.go_on, 9)
    jobs = await sqlite_workshop.run(sqlite_workshop.store.chains.jobs(record.chain_id))
    assert [each.output for each in jobs] == [None, "81"]


async def test_a_process_says_when_and_how_the_chain_goes_on(sqlite_workshop: Workshop) -> None:
    record = await finished(sqlite_workshop, process_handlers.go_on_later, 9)
    _, next = await sqlite_workshop.run(sqlite_workshop.store.chains.jobs(record.chain_id))
    assert (next.state, next.priority, next.max_attempts) == ("pending", 2, 3)
    assert next.available_at == to_instant(datetime(2100, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("handler", "code"), [(process_handlers.die, "-9"), (process_handlers.leave, "7")]
)
async def test_a_process_that_ends_without_an_answer_is_a_failed_attempt(
    sqlite_workshop: Workshop, handler: Any, code: str
) -> None:
    record = await finished(sqlite_workshop, handler, max_attempts=1)
    assert record.state == "failed"
    assert f"ended with code {code}" in record.error
    assert record.crashes == 0


async def test_what_a_handler_reads_is_not_its_next_question(sqlite_workshop: Workshop) -> None:
    record = await finished(sqlite_workshop, process_handlers.listen)
    assert (record.state, record.output) == ("completed", '""')


@pytest.mark.parametrize(
    ("handler", "kind"),
    [(process_handlers.shout, "ValueError"), (process_handlers.exit_politely, "SystemExit")],
)
async def test_a_process_outlives_strange_errors(
    sqlite_workshop: Workshop, handler: Any, kind: str
) -> None:
    record = await finished(sqlite_workshop, handler, max_attempts=1)
    assert record.state == "failed"
    assert record.error.startswith(kind)


async def test_a_process_serves_one_job_after_another(sqlite_workshop: Workshop) -> None:
    sqlite_workshop.handle("who", process_handlers.identity, executor="process")
    ids = await sqlite_workshop.start("who", count=3)
    await sqlite_workshop.until_idle(slots=1)
    assert len({(await sqlite_workshop.job(each)).output for each in ids}) == 1


async def test_the_start_of_a_process_does_not_count_as_its_handlers_time(
    sqlite_workshop: Workshop,
) -> None:
    sqlite_workshop.handle(
        "slow", slow_handlers.quick, executor="process", timeout="1s", retry=AT_ONCE
    )
    job_id = await sqlite_workshop.start_one("slow")
    await sqlite_workshop.until_idle()
    record = await sqlite_workshop.job(job_id)
    assert (record.state, record.attempt) == ("completed", 1)


async def test_a_process_is_killed_at_its_timeout(workshop: Workshop, tmp_path: Path) -> None:
    workshop.handle("spin", process_handlers.spin, executor="process", timeout="30s")
    pipe = tmp_path / "pid"
    os.mkfifo(pipe)
    job_id = await workshop.start_one("spin", str(pipe), max_attempts=1)
    worker = workshop.begin(ManualClock())
    pid = int(await asyncio.to_thread(pipe.read_text))
    worker.advance(31)
    await workshop.events.seen("job_failed", job_id=job_id)
    await worker.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert "TimedOut" in str((await workshop.job(job_id)).error)


@pytest.mark.parametrize(
    "handler",
    [
        process_handlers.delegate,
        process_handlers.delegate_to_another_session,
        process_handlers.delegate_to_an_orphan,
    ],
)
async def test_what_a_process_has_started_is_killed_with_it(
    sqlite_workshop: Workshop, tmp_path: Path, handler: Any
) -> None:
    sqlite_workshop.handle("work", handler, executor="process", timeout="30s")
    pipe = tmp_path / "held"
    os.mkfifo(pipe)
    await sqlite_workshop.start_one("work", str(pipe), max_attempts=1)
    worker = sqlite_workshop.begin(ManualClock())
    with await asyncio.to_thread(pipe.open) as held:
        assert await asyncio.to_thread(held.readline) == "begun\n"
        worker.advance(31)
        await sqlite_workshop.events.seen("job_failed")
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.to_thread(held.read) == ""
    await worker.stop()


async def test_progress_reported_in_a_process_arrives(
    sqlite_workshop: Workshop, tmp_path: Path
) -> None:
    sqlite_workshop.handle("tell", process_handlers.tell, executor="process")
    go = tmp_path / "go"
    os.mkfifo(go)
    job_id = await sqlite_workshop.start_one("tell", str(go))
    worker = sqlite_workshop.begin(ManualClock(), notifier=sqlite_workshop.notifier)
    progress: list[Any] = []
    async with asyncio.timeout(PATIENCE_S):
        while not progress:
            sqlite_workshop.have_leases_checked(worker)
            progress = await sqlite_workshop.run(sqlite_workshop.store.leases.progress([job_id]))
    assert (progress[0].fraction, progress[0].note) == (0.25, "a quarter")
    await asyncio.to_thread(go.write_text, "go")
    await sqlite_workshop.events.seen("job_completed")
    await worker.stop()


async def test_a_process_with_mistaken_progress_goes_on(sqlite_workshop: Workshop) -> None:
    record = await finished(sqlite_workshop, process_handlers.mistake_progress)
    assert (record.state, record.output) == ("completed", "0.5")


async def test_a_process_knows_its_job_and_what_that_waited_for(workshop: Workshop) -> None:
    workshop.handle("square", process_handlers.square, executor="process")
    workshop.handle("look", process_handlers.look_around, executor="process")
    blocker = await workshop.start_one("square", 3)
    job = NewJob(id=(id := new_id()), chain_id=id, type="look", input="null", blockers=1)
    request = StartRequest(job, blockers=(NewBlocker(id, 0, blocker),))
    await workshop.run(start_chains(workshop.store, [request]))
    await workshop.until_idle()
    assert decode_any(str((await workshop.job(id)).output)) == [id, [9]]


async def test_the_reason_of_a_cancellation_in_a_process_is_cleaned(
    sqlite_workshop: Workshop,
) -> None:
    record = await finished(sqlite_workshop, process_handlers.withdraw)
    assert record.state == "cancelled"


async def test_an_answer_that_cannot_be_said_is_a_failed_attempt(sqlite_workshop: Workshop) -> None:
    record = await finished(sqlite_workshop, process_handlers.go_on_badly, max_attempts=1)
    assert record.state == "failed"
    assert "process ended" not in record.error


async def test_a_process_that_died_while_it_was_idle_costs_no_attempt(
    sqlite_workshop: Workshop,
) -> None:
    sqlite_workshop.handle("who", process_handlers.identity, executor="process")
    async with sqlite_workshop.working(slots=1):
        first = await sqlite_workshop.start_one("who")
        await sqlite_workshop.events.seen("job_completed", job_id=first)
        pid = int(str((await sqlite_workshop.job(first)).output))
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not psutil.pid_exists(pid))
        second = await sqlite_workshop.start_one("who")
        await sqlite_workshop.events.seen("job_completed", job_id=second)
    assert (await sqlite_workshop.job(second)).attempt == 1


async def test_a_handler_does_not_outlive_the_worker_that_asked_for_it(tmp_path: Path) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast.worker.child", f"{process_handlers.__name__}:spin"),
        stdin=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None
    child.stdin.write(
        encode_message(
            JobRequest(
                ClaimedJob(
                    id=(id := new_id()),
                    token="",
                    type="spin",
                    priority=5,
                    available_at=0,
                    attempt=1,
                    max_attempts=None,
                    crashes=0,
                    fence=1,
                    chain_id=id,
                    chain_index=0,
                    input=encode_any(str(told)),
                    blockers=0,
                    trace=None,
                    key=None,
                    created_at=0,
                    claimed_at=0,
                ),
                worker="gone soon",
                blockers=[],
            )
        )
    )
    assert int(await asyncio.to_thread(told.read_text)) == child.pid
    child.stdin.close()
    async with asyncio.timeout(PATIENCE_S):
        assert await child.wait() == -signal.SIGKILL


class Squaring:
    def __call__(self, job: Job[int]) -> int:
        return job.input**2


@pytest.mark.parametrize(
    "handler", [partial(process_handlers.square), Squaring()], ids=["a partial", "an object"]
)
async def test_a_handler_without_a_name_of_its_own_is_refused(
    sqlite_workshop: Workshop, handler: Any
) -> None:
    sqlite_workshop.handle("nameless", handler, executor="process")
    with pytest.raises(HandlerInvalid, match="cannot be imported"):
        sqlite_workshop.worker()


async def test_a_handler_that_no_process_can_import_is_refused(sqlite_workshop: Workshop) -> None:
    def inner(job: Job[Any]) -> None: ...

    sqlite_workshop.handle("inner", inner, executor="process")
    with pytest.raises(HandlerInvalid, match="cannot be imported"):
        sqlite_workshop.worker()

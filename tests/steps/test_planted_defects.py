"""Defects that are planted on purpose: then happens what the laws forbid, so the tests of the laws would notice."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

import msgspec
import psycopg
import pytest

from holdfast.commands.chains import cancel_chain
from holdfast.core.errors import Permanent, SignalTimeout
from holdfast.core.steps import ClosedStep, WrittenStep
from holdfast.steps import recorder, undos
from holdfast.steps.step_driver import StepDriver
from holdfast.storage.operation import Op, Statement
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.worker.job import Job
from tests.contract.functions import STOP, changed, stops
from tests.steps import test_fencing as fencing
from tests.steps import test_replays as replays
from tests.steps.functions import Calls, completed, ended, parked, records, send, start
from tests.steps.test_fencing import Gate
from tests.support.until import until
from tests.worker.faults import Faults
from tests.worker.workshop import Workshop

STOPPED = (
    "select count(*) from pg_locks where locktype = 'advisory' and classid = 0 and not granted"
)
TOKEN = {
    "postgresql": "select token::text from holdfast.queue",
    "sqlite": "select token from holdfast_queue",
}


async def test_planted_a_record_that_needs_no_token_overtakes_the_holder_s(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = recorder._write
    holder: list[str] = []

    def write_as_the_holder(store: Any, rows: Sequence[Any]) -> Op[list[WrittenStep]]:
        if holder:
            rows = [msgspec.structs.replace(each, token=holder[0]) for each in rows]
        return write(store, rows)

    monkeypatch.setattr(recorder, "_write", write_as_the_holder)
    gate = Gate("")
    workshop.handle("function", gate.function)
    first = workshop.begin(notifier=workshop.notifier)
    job_id = await start(workshop, "function", "plain")
    await asyncio.to_thread(gate.inside.wait)
    assert await workshop.reap_as_if_later() == [job_id]
    assert await workshop.claim_for_nobody("function") == [job_id]
    ledger: Any = workshop.ledger
    ((token,),) = ledger._connection.execute(TOKEN[workshop.store.dialect]).fetchall()
    holder.append(token)
    gate.go.set()

    async def is_written() -> bool:
        return "gate" in await records(workshop, job_id)

    await until(is_written)
    await first.stop()


async def test_planted_a_refused_record_that_counts_as_written_lets_a_function_go_on(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = recorder.PendingRecords.settle

    def settle_anyway(self: Any, answer: Any) -> None:
        settle(self, {} if isinstance(answer, Exception) else answer)

    monkeypatch.setattr(recorder.PendingRecords, "settle", settle_anyway)
    calls = Calls()
    gate = Gate("")

    async def function(job: Job[Any]) -> None:
        await job.step("gate", gate.plain)
        calls.of["went on"] += 1

    workshop.handle("function", function)
    async with workshop.working(notifier=workshop.notifier):
        job_id = await start(workshop, "function")
        await asyncio.to_thread(gate.inside.wait)
        assert await workshop.reap_as_if_later(postponed=True) == [job_id]
        gate.go.set()
        await until(lambda: calls.of)
    assert await records(workshop, job_id) == {}


ACCEPTS_ALL = {
    "postgresql": (
        ("given g join live", "given g left join live"),
        ("l.fence", "coalesce(l.fence, 0)"),
    ),
    "sqlite": (
        ("cross join holdfast_queue", "left join holdfast_queue"),
        ("q.fence", "coalesce(q.fence, 0)"),
        ("select q.job_id", "select json_extract(x.value, '$.job_id')"),
    ),
}


@pytest.mark.parametrize("is_planted", [False, True], ids=["as it is", "planted"])
async def test_planted_a_record_is_accepted_after_a_cancel(
    workshop: Workshop, is_planted: bool
) -> None:
    dialect, gate = workshop.store.dialect, Gate("")
    workshop.handle("function", gate.function)
    with ExitStack() as stack:
        for change in ACCEPTS_ALL[dialect] if is_planted else ():
            stack.enter_context(changed({"step_record": change}, dialect))
        async with workshop.working():
            job_id = await start(workshop, "function", "plain")
            await asyncio.to_thread(gate.inside.wait)
            await workshop.run(cancel_chain(workshop.store, job_id))
            gate.go.set()

            async def is_settled() -> bool:
                return bool(gate.errors or await records(workshop, job_id))

            await until(is_settled)
    assert bool(await records(workshop, job_id)) is is_planted


async def test_planted_undos_run_forwards(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []

    async def book(name: str) -> str:
        return name

    async def free(name: str) -> None:
        log.append(name)

    async def trip(job: Job[Any]) -> None:
        for each in ("flight", "hotel"):
            await job.step(each, book, each, undo=free)
        raise Permanent("the weather")

    def forwards(given: Any, *, key: Any) -> list[Any]:
        return sorted(given, key=lambda record: -key(record))

    monkeypatch.setattr(undos, "sorted", forwards, raising=False)
    workshop.handle("trip", trip)
    async with workshop.working():
        await ended(workshop, await start(workshop, "trip"))
    assert log == ["flight", "hotel"]


async def test_planted_a_replay_asks_for_each_step(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = StepDriver._call_async

    async def call_after_asking(self: Any, plan: Any) -> Any:
        await self._functions.load(self._attempt)
        return await call(self, plan)

    monkeypatch.setattr(StepDriver, "_call_async", call_after_asking)
    with pytest.raises(AssertionError):
        await fencing.test_replays_ask_the_database_once_whatever_was_recorded(workshop)


RESETS = {
    "postgresql": ("step_record", "set steps = true,"),
    "sqlite": ("step_mark", "set steps = 1,"),
}


async def test_planted_progress_resets_the_count_of_killed_workers(workshop: Workshop) -> None:
    dialect = workshop.store.dialect
    name, text = RESETS[dialect]
    with changed({name: (text, f"{text} crashes = 0,")}, dialect), pytest.raises(AssertionError):
        await replays.test_progress_does_not_reset_the_count_of_killed_workers(workshop)


ENDS_TWICE = {
    "postgresql": ("step_close", "where s.state = 'open' and", "where"),
    "sqlite": ("step_close_read", "where s.state = 'open' and", "where"),
}


@pytest.mark.parametrize("is_planted", [False, True], ids=["as it is", "planted"])
async def test_planted_a_signal_wins_after_the_timeout_has_won(
    workshop: Workshop, is_planted: bool
) -> None:
    """Two branches of one function end the same wait: the timeout, and a signal that came right after it."""
    dialect = workshop.store.dialect
    name, right, wrong = ENDS_TWICE[dialect]
    ended_as: list[bool] = []

    async def function(job: Job[Any]) -> None:
        with suppress(SignalTimeout):
            await job.wait_for("go", timeout="1ms")
        own: Any = job
        (wait,) = (await records(workshop, str(job.id))).values()
        assert wait.state == "timed_out"
        await send(workshop, "go")
        (signal,) = await workshop.run(workshop.store.signals.list(1))
        token = own.function._attempt.claimed.token
        taken = ClosedStep(wait.job_id, token, wait.name, "", 1, "done", signal_id=signal.id)
        link = own.function._functions.recorder._link
        ended_as.append(bool(await link.run(workshop.store.steps.close([taken]))))

    workshop.handle("function", function)
    with changed({name: (right, wrong)} if is_planted else {}, dialect):
        async with workshop.working(notifier=workshop.notifier):
            await completed(workshop, await start(workshop, "function"))
    assert ended_as == [is_planted]


@pytest.mark.parametrize("is_planted", [False, True], ids=["as it is", "planted"])
async def test_planted_a_record_looks_at_the_token_and_does_not_lock_it(
    postgres_workshop: Workshop, worker_url: str, is_planted: bool
) -> None:
    """The statement is held up between its look and its write, and the job is taken back meanwhile."""
    workshop, gate = postgres_workshop, Gate("")
    gate.go.set()
    workshop.handle("function", gate.function)
    unlocked = {"step_record": ("for no key update skip locked", "")} if is_planted else {}
    ledger: Any = workshop.ledger
    connection = await psycopg.AsyncConnection.connect(worker_url, autocommit=True)
    async with connection:
        await connection.execute("select pg_advisory_lock(%s)", [STOP])
        with changed(stops("step_record")), changed(unlocked):
            first = workshop.begin()
            job_id = await start(workshop, "function", "plain")
            await until(lambda: ledger._connection.execute(STOPPED).fetchone()[0])
        assert await workshop.reap_as_if_later(postponed=True) == [job_id]
    await until(lambda: gate.errors or ledger.rows("step"))
    assert bool(await records(workshop, job_id)) is is_planted
    await first.stop()


@pytest.mark.parametrize("is_planted", [False, True], ids=["as it is", "planted"])
async def test_planted_a_wait_is_given_up_while_sqlite_is_busy(
    sqlite_workshop: Workshop, monkeypatch: pytest.MonkeyPatch, is_planted: bool
) -> None:
    has_given_up = asyncio.Event()

    async def give_up(self: Any, batch: Sequence[Any], error: Exception) -> None:
        for each in batch:
            each.settle({})
        has_given_up.set()

    if is_planted:
        monkeypatch.setattr(recorder.StepRecorder, "_back_off", give_up)
    sqlite: Any = sqlite_workshop.database
    workshop = Workshop(SqliteDatabase(sqlite.path, busy_timeout_ms=50), sqlite_workshop.ledger)
    faults, begun, is_locked = Faults(), asyncio.Event(), asyncio.Event()

    async def function(job: Job[Any]) -> Any:
        begun.set()
        await is_locked.wait()
        return await job.wait_for("go")

    workshop.handle("function", function)
    options = {"notifier": workshop.notifier, "faults": faults, "statement_timeout_ms": 1_000}
    async with workshop.working(**options):
        job_id = await start(workshop, "function")
        await begun.wait()
        with workshop.ledger.lock_everything():
            is_locked.set()
            # Taken as written, or written anew after the first time.
            if is_planted:
                await has_given_up.wait()
            else:
                await faults.ran("steps", 2)
            await until(lambda: workshop.events.of("database_unreachable"))
        await parked(workshop, job_id)
        assert ("wait:go" in await records(workshop, job_id)) is not is_planted
        await send(workshop, "go", data="came")
        if is_planted:
            assert (await workshop.job(job_id)).state == "blocked"
        else:
            assert await completed(workshop, job_id) == '"came"'
    await workshop.close()
    await workshop.database.close_async()


async def test_planted_the_answer_to_a_taken_signal_is_lost_and_not_looked_for(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = recorder.write_held

    def write_without_looking(store: Any, pair: Any, rows: Sequence[Any]) -> Op[Any]:
        op = held(store, pair, rows)
        statement: Statement = next(op)
        while True:
            if statement.name == "step_list":
                return {}
            answer = yield statement
            try:
                statement = op.send(answer)
            except StopIteration as end:
                return end.value

    monkeypatch.setattr(recorder, "write_held", write_without_looking)
    faults = Faults()

    async def function(job: Job[Any]) -> Any:
        return await job.wait_for("go")

    workshop.handle("function", function)
    async with workshop.working(notifier=workshop.notifier, faults=faults):
        job_id = await start(workshop, "function")
        await parked(workshop, job_id)
        before = faults.runs("steps")
        faults.set("after", "steps")
        await send(workshop, "go")
        await faults.ran("steps", before + 2)
        faults.clear()
        # Taken in the database, not by the function.
        await until(lambda: workshop.ledger.leases() == [] or workshop.events.of("job_completed"))
    assert (await records(workshop, job_id))["wait:go"].state == "done"

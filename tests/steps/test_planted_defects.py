"""Defects that are planted on purpose: then happens what the laws forbid, so the tests of the laws would notice."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import Permanent
from holdfast.core.records import JobRecord
from holdfast.core.steps import WrittenStep
from holdfast.steps import function as durable
from holdfast.steps import recorder
from holdfast.storage.operation import Op, Statement
from holdfast.worker.job import Job
from tests.steps.functions import Calls, completed, ended, parked, records, send, start
from tests.steps.test_fencing import Gate
from tests.support.until import until
from tests.worker.faults import Faults
from tests.worker.workshop import Workshop

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
    def settle_anyway(pending: Any, error: Exception) -> None:
        if not pending.written.done():
            pending.written.set_result({})

    monkeypatch.setattr(recorder, "_settle", settle_anyway)
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

    monkeypatch.setattr(durable, "sorted", forwards, raising=False)
    workshop.handle("trip", trip)
    async with workshop.working():
        await ended(workshop, await start(workshop, "trip"))
    assert log == ["flight", "hotel"]


async def test_planted_a_replay_asks_for_each_step(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults, calls = Faults(), Calls()
    find = durable.DurableFunction._find

    async def function(job: Job[Any]) -> None:
        for each in range(20):
            await job.step("part", calls.echo, each)
        await job.wait_for("go")

    def find_by_asking(self: Any, id: Any, kind: Any) -> Any:
        faults.note("read")
        return find(self, id, kind)

    monkeypatch.setattr(durable.DurableFunction, "_find", find_by_asking)
    workshop.handle("function", function)
    async with workshop.working(faults=faults, notifier=workshop.notifier):
        job_id = await start(workshop, "function")
        await parked(workshop, job_id)
        before = faults.runs("read")
        await send(workshop, "go")
        await completed(workshop, job_id)
    assert faults.runs("read") - before > 20


async def test_planted_progress_resets_the_count_of_killed_workers(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    reset = {
        "postgresql": "update holdfast.queue set crashes = 0",
        "sqlite": "update holdfast_queue set crashes = 0",
    }
    calls, go = Calls(), asyncio.Event()

    async def function(job: Job[Any]) -> None:
        await job.step("part", calls.echo, 1)
        ledger: Any = workshop.ledger
        ledger._connection.execute(reset[workshop.store.dialect])
        calls.of["planted"] += 1
        await go.wait()

    workshop.handle("function", function)
    job_id = await start(workshop, "function")
    await workshop.claim_for_nobody("function")
    await workshop.reap_as_if_later()
    async with workshop.working():
        await until(lambda: calls.of["planted"])
        found: JobRecord = await workshop.job(job_id)
        assert found.crashes == 0
        go.set()


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

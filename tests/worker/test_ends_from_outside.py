"""Ends from outside reach a job in every state although nobody sends a hint: the heartbeat finds out."""

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.commands.chains import cancel_chain, delete_chains, end_chain
from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.errors import WrongState
from holdfast.core.lease import Lease
from holdfast.core.records import NewBlocker, NewJob
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.worker.job import Job
from tests.support.manual_clock import ManualClock
from tests.support.until import until
from tests.worker.workshop import AN_HOUR, Workshop

REASONS = {
    "cancel": "cancelled",
    "complete": "already_completed",
    "continue": "already_completed",
    "delete": "not_found",
}
STATES = ("blocked", "pending", "planned", "retrying", "running")


async def in_state(workshop: Workshop, state: str) -> str:
    """Start a chain and bring it into a state; return its id."""
    match state:
        case "blocked":
            (blocker,) = await workshop.start("nobody")
            job = new_id()
            new = NewJob(id=job, chain_id=job, type="work", input="1", blockers=1)
            edges = (NewBlocker(job, 0, blocker),)
            await workshop.run(start_chains(workshop.store, [StartRequest(new, None, edges)]))
            return job
        case "planned":
            now = await workshop.run(workshop.store.schema.clock())
            return await workshop.start_one("work", at=now + AN_HOUR)
        case "retrying":
            job = await workshop.start_one("fails")
            await workshop.events.seen("job_retried", job_id=job)
            return job
        case "running":
            job = await workshop.start_one("work")
            await workshop.events.seen("job_started", job_id=job)
            return job
        case _:
            return await workshop.start_one("nobody")


def ended_by(workshop: Workshop, how: str, chain: str) -> Op[Any]:
    store = workshop.store
    match how:
        case "cancel":
            return cancel_chain(store, chain)
        case "delete":
            return delete_chains(store, [chain])
        case "continue":
            next = NewJob(id=new_id(), chain_id=chain, type="nobody", input="1")
            return end_chain(store, chain, "completed", next=next)
        case _:
            return end_chain(store, chain, "completed", output='"from outside"')


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("how", sorted(REASONS))
async def test_an_end_from_outside_takes_effect_in_every_state(
    workshop: Workshop, how: str, state: str
) -> None:
    reasons: list[str | None] = []

    async def work(job: Job[Any]) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(job.abort_reason)
        return "from the worker"

    async def fails(job: Job[Any]) -> None:
        raise ValueError("no")

    workshop.handle("work", work)
    workshop.handle("fails", fails)
    async with workshop.working(lease=Lease("3s"), heartbeat_ms=50, notifier=None):
        chain = await in_state(workshop, state)
        await workshop.run(ended_by(workshop, how, chain))
        if state == "running":
            await workshop.events.seen("lease_lost", job_id=chain, reason=REASONS[how])
    assert reasons == ([REASONS[how]] if state == "running" else [])
    found = await workshop.run(workshop.store.jobs.get([chain]))
    if how == "delete":
        assert found == []
        return
    assert found[0].state == ("cancelled" if how == "cancel" else "completed")
    assert found[0].output in (None, '"from outside"')
    assert found[0].continued is (how == "continue")


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_a_worker_learns_of_it_by_a_hint_and_not_only_by_its_heartbeat(
    workshop: Workshop, request: pytest.FixtureRequest, how: str
) -> None:
    is_postgres = workshop.store.dialect == "postgresql"
    url = request.getfixturevalue("worker_url") if is_postgres else workshop.database.url

    async def work(job: Job[Any]) -> None:
        await asyncio.Event().wait()

    workshop.handle("work", work)
    chain = await workshop.start_one("work")
    # Its clock stands still: no heartbeat is due, ever.
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", job_id=chain)
    await until(lambda: worker.worker.counters.heartbeats == 1)
    app = Holdfast(url, notifier=workshop.notifier)
    async with app.database.transaction_async() as tx:
        if how == "cancel":
            await app.chains.cancel(tx, chain)
        else:
            await app.chains.delete(tx, chain)
    await workshop.events.seen("lease_lost", job_id=chain, reason=REASONS[how])
    await worker.stop()
    await app.aclose()


async def test_of_a_worker_and_an_end_from_outside_one_counts(workshop: Workshop) -> None:
    async def quick(job: Job[Any]) -> str:
        return "from the worker"

    workshop.handle("quick", quick)
    ids = await workshop.start("quick", count=30)
    refused = 0
    async with workshop.working(slots=4, lease=Lease("3s"), heartbeat_ms=50):
        for each in ids:
            try:
                await workshop.run(ended_by(workshop, "complete", each))
            except WrongState:
                refused += 1
    outputs = [each.output for each in await workshop.run(workshop.store.jobs.get(ids))]
    assert outputs.count('"from the worker"') == refused
    assert outputs.count('"from outside"') == len(ids) - refused

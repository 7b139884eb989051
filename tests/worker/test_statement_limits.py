"""Every statement of a worker has a limit: whoever holds what it needs makes it busy, never hang."""

import asyncio
from contextlib import AbstractContextManager
from typing import Any

import pytest

from holdfast.commands.attempts import finish_attempts, reap_leases
from holdfast.commands.start import deliver_waiting
from holdfast.core.errors import DatabaseBusy
from holdfast.core.records import Claim, Finish, Held, LeaseClass, NewProgress, Probe
from holdfast.core.steps import ClosedStep, NewStep
from holdfast.core.worker_presence import WorkerSign
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.worker.plain_claims import START
from holdfast.worker.worker import BACKGROUND_LINKS, LOOP_LINKS
from tests.worker.workshop import Workshop

LIMIT_MS = 300


def operations(store: Store) -> dict[str, list[Op[Any]]]:
    """What a worker runs on each of its links."""
    job_id, token = new_id(), new_id()
    finish = Finish(id=job_id, token=token, kind="complete", worker="w", chain_id=job_id)
    pair, progress = Held(job_id, token), NewProgress(job_id, token, 1, 0.5, "")
    claim = Claim(
        "w", 1, (Probe("mail", 5, token, 1, *START),), (LeaseClass(token, 1_000, 1, 1, 1),)
    )
    step = NewStep(job_id, token, "charge", "", 1, 1, "step", "done", marks=True)
    ended = ClosedStep(job_id, token, "sleep", "", 1, "done")
    sign = WorkerSign("w", "w", "host", 1, "0", 1, "[]", "{}", None)
    return {
        "claim": [store.jobs.claim(claim), store.jobs.next_due(["mail"])],
        "complete": [
            store.jobs.finish([finish]),
            store.jobs.lease_status([pair]),
            store.leases.free([token]),
            store.workers.stop("w", "{}"),
        ],
        "fan-in": [finish_attempts(store, [finish])],
        "steps": [store.steps.record([step]), store.steps.close([ended])],
        "heartbeat": [
            store.leases.renew([token]),
            store.leases.held("w"),
            store.leases.report([progress]),
            store.leases.forget([progress]),
            store.workers.sign(sign),
            store.workers.settings(),
            store.schema.identity(),
        ],
        "reaper": [
            reap_leases(store),
            store.leases.release([token]),
            deliver_waiting(store, "mail"),
        ],
    }


async def busy(workshop: Workshop, purpose: str, op: Op[Any]) -> None:
    link = workshop.database.link(purpose, LIMIT_MS)
    try:
        with pytest.raises(DatabaseBusy):
            await link.run_atomic(op)
    finally:
        await link.close()


def everything_locked(workshop: Workshop) -> AbstractContextManager[None]:
    locked: AbstractContextManager[None] = workshop.ledger.lock_everything()
    return locked


async def test_no_statement_of_any_link_waits_longer_than_its_limit(workshop: Workshop) -> None:
    each = operations(workshop.store)
    assert set(each) == {*LOOP_LINKS, *BACKGROUND_LINKS}
    with everything_locked(workshop):
        async with asyncio.timeout(30):
            await asyncio.gather(
                *(busy(workshop, purpose, op) for purpose, ops in each.items() for op in ops)
            )


async def test_a_worker_that_met_locks_everywhere_goes_on_when_they_are_gone(
    workshop: Workshop,
) -> None:
    workshop.handle_quick()
    worker = workshop.begin(statement_timeout_ms=LIMIT_MS)
    first = await workshop.start_one("quick")
    await workshop.events.seen("job_completed", job_id=first)
    second = await workshop.start_one("quick")
    with everything_locked(workshop):
        await workshop.events.seen("database_unreachable", purpose="claim")
    third = await workshop.start_one("quick")
    for job_id in (second, third):
        await workshop.events.seen("job_completed", job_id=job_id)
    await worker.stop()

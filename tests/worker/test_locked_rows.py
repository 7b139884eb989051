"""Somebody's open transaction on a queue row delays that job and no other."""

import asyncio
from typing import Any

import psycopg
import pytest

from holdfast.commands.attempts import reap_leases
from holdfast.core.errors import DatabaseUnreachable
from holdfast.core.records import Held
from holdfast.storage.operation import run
from holdfast.storage.postgres.connection import PsycopgExecutor
from holdfast.storage.sql_loader import DEFAULT_SCHEMA
from holdfast.worker.completer import RETRY_MIN_S
from holdfast.worker.job import Job
from tests.support.manual_clock import ManualClock
from tests.support.until import PATIENCE_S, until
from tests.worker.faults import Faults
from tests.worker.workshop import Workshop


async def test_a_locked_row_delays_only_its_own_completion(postgres_workshop: Workshop) -> None:
    workshop, go, clock = postgres_workshop, asyncio.Event(), ManualClock()

    async def work(job: Job[Any]) -> None:
        await go.wait()

    workshop.handle("work", work)
    locked, *others = await workshop.start("work", count=8)
    worker = workshop.begin(clock, notifier=workshop.notifier)
    await workshop.events.seen("job_started", count=8)
    with workshop.ledger.lock(locked):
        go.set()
        # The clock stands still: nothing of this waits for the retry of the locked one.
        await workshop.events.seen("job_completed", count=7)
        later = await workshop.start("work", count=5)
        workshop.have_due()
        await workshop.events.seen("job_completed", count=12)
        assert await workshop.states([locked]) == ["running"]
        await workshop.beat(worker)
        await clock.until_somebody_sleeps(RETRY_MIN_S / 2)
    worker.advance(2)
    await workshop.events.seen("job_completed", job_id=locked)
    await worker.stop()
    assert await workshop.states([*others, *later]) == ["completed"] * 12
    assert workshop.events.of("write_refused") == []


async def test_an_atomic_handler_waits_for_the_transaction_that_has_locked_its_row(
    postgres_workshop: Workshop,
) -> None:
    workshop, go = postgres_workshop, asyncio.Event()

    async def work(job: Job[Any]) -> None:
        await go.wait()
        await job.tx.execute(workshop.ledger.write_effect, ["done"])

    workshop.handle("work", work, atomic=True)
    job_id = await workshop.start_one("work")
    worker = workshop.begin(ManualClock())
    await workshop.events.seen("job_started", job_id=job_id)
    with workshop.ledger.lock(job_id):
        go.set()
        await until(workshop.ledger.waits_for_a_lock)
        assert workshop.ledger.effects() == []
    await workshop.events.seen("job_completed", job_id=job_id, attempt=1)
    assert workshop.ledger.effects() == ["done"]
    await worker.stop()


async def test_a_locked_row_stops_neither_renewal_nor_reaping_of_others(
    postgres_workshop: Workshop,
) -> None:
    workshop, go = postgres_workshop, asyncio.Event()

    async def work(job: Job[Any]) -> None:
        await go.wait()

    workshop.handle("work", work)
    locked, other = await workshop.start("work", count=2)
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", count=2)
    await workshop.events.seen("reaper_ran")
    with workshop.ledger.lock(locked):
        workshop.ledger.expire()
        await workshop.beat(worker)
        assert (await workshop.run(reap_leases(workshop.store))).page.leases == 0
        assert await workshop.reap_as_if_later() == [other]
    go.set()
    await workshop.events.seen("job_completed", job_id=locked)
    await worker.stop()


async def test_a_locked_file_is_no_lost_lease(sqlite_workshop: Workshop) -> None:
    workshop, go, faults = sqlite_workshop, asyncio.Event(), Faults()

    async def work(job: Job[Any]) -> None:
        await go.wait()

    workshop.handle("work", work)
    ids = await workshop.start("work", count=5)
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, faults=faults)
    await workshop.events.seen("job_started", count=5)
    await workshop.beat(worker)
    beats, flushes = faults.runs("heartbeat"), faults.runs("complete")
    with workshop.ledger.lock(ids[0]):
        go.set()
        worker.advance(15)
        await faults.ran("heartbeat", beats + 1)
        await faults.ran("complete", flushes + 1)
        assert workshop.events.of("job_completed") == []
    await workshop.events.seen("job_completed", count=5)
    await worker.stop()
    assert workshop.events.of("lease_lost") == []


async def test_an_atomic_handler_that_waits_in_vain_for_the_file_costs_no_attempt(
    sqlite_workshop: Workshop,
) -> None:
    workshop, go, waited = sqlite_workshop, asyncio.Event(), asyncio.Event()

    async def work(job: Job[Any]) -> None:
        await go.wait()
        try:
            await job.tx.execute(workshop.ledger.write_effect, ["done"])
        finally:
            waited.set()

    workshop.handle("work", work, atomic=True)
    job_id = await workshop.start_one("work", max_attempts=1)
    worker = workshop.begin()
    await workshop.events.seen("job_started", job_id=job_id)
    with workshop.ledger.lock(job_id):
        go.set()
        async with asyncio.timeout(PATIENCE_S):
            await waited.wait()
    await workshop.events.seen("job_snoozed", job_id=job_id)
    await worker.stop()
    record = await workshop.job(job_id)
    assert (record.state, record.attempt) == ("pending", 0)
    assert [each.kind for each in await workshop.attempts(job_id)] == ["snooze"]


@pytest.mark.parametrize("taken_over", [True, False])
async def test_a_lock_timeout_costs_an_attempt_unless_a_lost_worker_may_hold_the_lock(
    postgres_workshop: Workshop, worker_url: str, taken_over: bool
) -> None:
    workshop = postgres_workshop

    async def work(job: Job[Any]) -> None:
        await job.tx.execute(workshop.ledger.write_effect, ["done"])

    workshop.handle("work", work, atomic=True)
    job_id = await workshop.start_one("work")
    if taken_over:
        assert await workshop.claim_for_nobody("work", lease_ms=1) == [job_id]
        await until_reaped(workshop, job_id)
        await workshop.run(workshop.store.jobs.trigger([job_id]))
    with psycopg.connect(worker_url) as stale:
        stale.execute("lock table effect in access exclusive mode")
        worker = workshop.begin()
        told = "job_snoozed" if taken_over else "job_retried"
        await workshop.events.seen(told, job_id=job_id)
        await worker.stop()
        stale.rollback()
    record = await workshop.job(job_id)
    assert (record.state, record.attempt) == ("pending", 1)
    *_, last = await workshop.attempts(job_id)
    assert last.kind == ("snooze" if taken_over else "retry")
    assert "lock timeout" in (last.error or "")


async def test_only_the_transactions_of_what_was_taken_back_are_ended(
    postgres_workshop: Workshop, worker_url: str
) -> None:
    workshop, database, ids = postgres_workshop, postgres_workshop.database, {}
    for type, lease_ms in (("kept", 60_000), ("lost", 1)):
        ids[type] = await workshop.start_one(type)
        assert await workshop.claim_for_nobody(type, lease_ms) == [ids[type]]
    with psycopg.connect(worker_url, autocommit=True) as connection:
        rows = connection.execute("select job_id::text, token::text from holdfast.queue")
        tokens: dict[str, str] = dict(rows.fetchall())
        held = {type: Held(ids[type], tokens[ids[type]]) for type in ids}

        async def lose() -> None:
            async with database.transaction_async(held["lost"]) as lost:
                await lost.execute(workshop.ledger.write_effect, ["lost"])
                # A role that may not end the session leaves it alone, and nothing fails.
                connection.execute("set role pg_read_all_stats")
                assert run(workshop.store.leases.evict([held["lost"]]), on(connection)) == 0
                connection.execute("reset role")
                await lost.execute(workshop.ledger.write_effect, ["lost"])
                await until_reaped(workshop, ids["lost"])
                await lost.execute(workshop.ledger.write_effect, ["lost"])

        async with database.transaction_async(held["kept"]) as kept, database.transaction_async():
            with pytest.raises(DatabaseUnreachable, match="terminating connection"):
                await lose()
            await kept.execute(workshop.ledger.write_effect, ["kept"])
        assert workshop.ledger.effects() == ["kept"]
        # The marks go with their transactions.
        marks = (
            "select count(*) from pg_locks l join pg_database d on d.oid = l.database"
            " where l.locktype = 'advisory' and l.objsubid = 2 and d.datname = current_database()"
        )
        assert connection.execute(marks).fetchall() == [(0,)]


def on(connection: psycopg.Connection[Any]) -> PsycopgExecutor:
    """Run our statements on a connection of a test's own."""
    return PsycopgExecutor(connection, DEFAULT_SCHEMA)


async def until_reaped(workshop: Workshop, job_id: str) -> None:
    """Take a job back from a worker whose lease has ended."""
    async with asyncio.timeout(PATIENCE_S):
        while workshop.ledger.state(job_id) != "pending":
            await workshop.run(reap_leases(workshop.store))

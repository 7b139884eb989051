"""The line to PostgreSQL is cut, swallows everything, or loses its server; the worker goes on when it is back."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.worker.job import Job
from holdfast_chaos.proxy import FaultyProxy
from tests.support.manual_clock import ManualClock
from tests.support.postgres import StartPostgres
from tests.support.until import until
from tests.worker.ledger import PostgresLedger
from tests.worker.workshop import RunningWorker, Workshop

LEFT_US = """
select (extract(epoch from max(expires_at) - clock_timestamp()) * 1000000)::bigint from holdfast.lease
"""


class Patient:
    """A handler that waits, and notes by the database's clock how long its lease still had when it was stopped."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.left_us: list[int] = []

    async def __call__(self, job: Job[Any]) -> None:
        if self.left_us:
            return
        # A connection takes its time, which must not count when the handler is stopped.
        with psycopg.connect(self._url, autocommit=True) as connection:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                row = connection.execute(LEFT_US).fetchone()
                assert row is not None
                self.left_us.append(row[0])
                raise


@pytest.mark.parametrize("fault", [FaultyProxy.cut, FaultyProxy.swallow], ids=["cut", "swallow"])
async def test_handlers_are_stopped_before_their_lease_ends_by_the_databases_clock(
    postgres_workshop: Workshop, worker_url: str, fault: Callable[[FaultyProxy], None]
) -> None:
    workshop, patient = postgres_workshop, Patient(worker_url)
    workshop.handle("wait", patient, lease="5s", timeout="1h")
    job_id = await workshop.start_one("wait")
    with FaultyProxy(worker_url) as proxy:
        database = PostgresDatabase(proxy.url)
        worker = workshop.begin(database=database, statement_timeout_ms=300)
        await workshop.events.seen("job_started", job_id=job_id)
        fault(proxy)
        await until(lambda: len(patient.left_us) == 1)
        assert patient.left_us[0] > 0
        assert workshop.events.of("job_completed") == []
        proxy.pass_all()
        await workshop.events.seen("job_completed", job_id=job_id)
        report = await worker.stop()
        await database.close_async()
    assert report.abandoned == 0
    assert (await workshop.job(job_id)).crashes == 0


async def idle_behind(proxy: FaultyProxy, workshop: Workshop) -> RunningWorker:
    """Have a worker behind a proxy at work, all of its links open and nothing under way on them."""
    workshop.handle_quick()
    database = PostgresDatabase(proxy.url)
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, database=database)
    first = await workshop.start_one("quick")
    workshop.have_due()
    await workshop.events.seen("job_completed", job_id=first)
    await workshop.beat(worker)
    await worker.idle(60)
    return worker


async def test_a_flush_whose_answer_was_lost_is_known_to_be_done(
    postgres_workshop: Workshop, worker_url: str
) -> None:
    workshop, go = postgres_workshop, asyncio.Event()

    async def wait(job: Job[Any]) -> str:
        await go.wait()
        return "done"

    workshop.handle("wait", wait)
    with FaultyProxy(worker_url) as proxy:
        worker = await idle_behind(proxy, workshop)
        job_id = await workshop.start_one("wait")
        workshop.have_due()
        await workshop.events.seen("job_started", job_id=job_id)
        proxy.mute()
        go.set()
        await until(lambda: workshop.ledger.state(job_id) == "completed")
        assert workshop.events.of("job_completed", job_id=job_id) == []
        proxy.cut()
        proxy.pass_all()
        await workshop.seen_in_time(worker, "job_completed", job_id=job_id)
        report = await worker.stop()
    assert (report.counters["processed"], report.counters["refused"]) == (2, 0)
    assert report.abandoned == 0


async def test_a_claim_whose_answer_was_lost_is_given_back_and_costs_no_attempt(
    postgres_workshop: Workshop, worker_url: str
) -> None:
    workshop = postgres_workshop
    with FaultyProxy(worker_url) as proxy:
        worker = await idle_behind(proxy, workshop)
        # Only the answer with the job: a claim that was under way already, or its PREPARE, would be lost instead of it.
        proxy.mute_from("an input to be lost")
        job_id = await workshop.start_one("quick", "an input to be lost", max_attempts=1)
        workshop.have_due()
        await until(lambda: workshop.ledger.state(job_id) == "running")
        proxy.cut()
        proxy.pass_all()
        await workshop.seen_in_time(worker, "job_released", job_id=job_id)
        await workshop.seen_in_time(worker, "job_completed", job_id=job_id, attempt=1)
        report = await worker.stop()
    assert report.abandoned == 0
    assert len(workshop.events.of("job_started", job_id=job_id)) == 1


async def test_killed_backends_cost_nothing_but_a_moment(postgres_workshop: Workshop) -> None:
    workshop = postgres_workshop

    async def work(job: Job[Any]) -> None:
        await asyncio.sleep(0)

    workshop.handle("work", work)
    ids = await workshop.start("work", count=400)
    worker = workshop.begin(slots=4, batch=8)
    ledger = workshop.ledger
    for done in (50, 150, 250):
        await workshop.events.seen("job_completed", count=done)
        # One flush may reach two marks: then the worker has yet to come back from the blow before.
        await until(lambda: ledger.end_sessions() > 0)
    await workshop.events.seen("job_completed", count=400)
    report = await worker.stop()
    assert report.abandoned == 0
    records = await workshop.run(workshop.store.jobs.get(ids))
    assert {each.state for each in records} == {"completed"}
    assert {each.attempt for each in records} == {1}
    assert len(workshop.events.of("job_completed")) == 400


async def test_an_immediate_restart_of_the_server_is_survived(
    private_postgres: StartPostgres,
) -> None:
    server = private_postgres()
    database = PostgresDatabase(server.url)
    database.migrate()
    ledger = PostgresLedger(server.url)
    workshop = Workshop(database, ledger)
    workshop.handle_quick()
    ids = await workshop.start("quick", count=100)
    worker = workshop.begin(slots=2, batch=4)
    await workshop.events.seen("job_completed", count=20)
    ledger.close()
    await asyncio.to_thread(server.restart, "immediate")
    await workshop.events.seen("job_completed", count=100)
    report = await worker.stop()
    assert report.abandoned == 0
    assert set(await workshop.states(ids)) == {"completed"}
    await workshop.close()
    await database.close_async()

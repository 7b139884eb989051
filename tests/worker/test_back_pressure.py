"""What has ended and is not recorded counts as held: without a database that takes outcomes, nothing new begins."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.worker.admission import UNRECORDED_MAX, UNRECORDED_MAX_S
from holdfast.worker.job import Job
from tests.support.manual_clock import ManualClock
from tests.support.until import until
from tests.worker.faults import Faults
from tests.worker.workshop import Workshop

SLOTS = 10
MEGABYTE = 1_000_000


class Counted:
    """A handler that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, job: Job[Any]) -> None:
        self.calls += 1


async def test_only_so_many_jobs_run_that_cannot_be_recorded(workshop: Workshop) -> None:
    counted, faults = Counted(), Faults()
    workshop.handle("count", counted)
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, faults=faults, slots=SLOTS)
    await workshop.beat(worker)
    faults.set("before", "complete")
    jobs = 10 * SLOTS
    await workshop.start("count", count=jobs)
    workshop.have_due()
    await until(lambda: counted.calls >= SLOTS)
    await workshop.beat(worker)
    assert counted.calls < 2 * SLOTS
    faults.clear()
    await workshop.seen_in_time(worker, "database_back", purpose="complete")
    await until(lambda: counted.calls == jobs)
    await worker.stop()
    assert worker.worker.counters.processed == jobs


async def test_nothing_begins_while_an_outcome_has_waited_for_long(workshop: Workshop) -> None:
    counted, faults = Counted(), Faults()
    workshop.handle("count", counted)
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, faults=faults, slots=SLOTS)
    await workshop.beat(worker)
    faults.set("before", "complete")
    await workshop.start("count")
    workshop.have_due()
    await workshop.events.seen("database_unreachable", purpose="complete")
    worker.advance(UNRECORDED_MAX_S)
    ids = await workshop.start("count", count=5)
    workshop.have_due()
    await workshop.beat(worker)
    assert counted.calls == 1
    assert await workshop.states(ids) == ["pending"] * 5
    faults.clear()
    for job_id in ids:
        await workshop.seen_in_time(worker, "job_completed", job_id=job_id)
    await worker.stop()
    assert [(await workshop.job(each)).attempt for each in ids] == [1] * 5


@contextmanager
def locked(workshop: Workshop, request: pytest.FixtureRequest) -> Iterator[None]:
    """Have another transaction keep everybody from writing outcomes."""
    if workshop.store.dialect == "postgresql":
        with psycopg.connect(request.getfixturevalue("worker_url")) as other:
            other.execute("lock table holdfast.outcome in access exclusive mode")
            yield
            other.rollback()
        return
    path: Path = request.getfixturevalue("tmp_path") / "holdfast.db"
    with sqlite3.connect(path, isolation_level=None) as file:
        file.execute("begin immediate")
        yield
        file.execute("rollback")
    file.close()


async def test_a_locked_table_stops_the_worker_and_nothing_runs_twice(
    workshop: Workshop, request: pytest.FixtureRequest
) -> None:
    counted, go = Counted(), asyncio.Event()

    async def count(job: Job[Any]) -> None:
        await go.wait()
        await counted(job)

    workshop.handle("count", count)
    jobs = 5 * UNRECORDED_MAX
    for _ in range(5):
        await workshop.start("count", count=UNRECORDED_MAX)
    worker = workshop.begin(notifier=workshop.notifier, slots=SLOTS, statement_timeout_ms=300)
    await workshop.events.seen("job_started", count=SLOTS)
    with locked(workshop, request):
        go.set()
        await workshop.events.seen("database_unreachable", purpose="complete")
        # By the real clock, as the server's locks are: outcomes grow so old that nothing more may begin.
        await asyncio.sleep(2 * UNRECORDED_MAX_S)
        assert counted.calls < 2 * SLOTS
        before = counted.calls
        await asyncio.sleep(UNRECORDED_MAX_S)
        assert counted.calls == before
    await until(lambda: worker.worker.counters.processed == jobs)
    await worker.stop()
    assert counted.calls == jobs


async def test_large_outputs_get_through_in_portions(workshop: Workshop) -> None:
    output = "x" * MEGABYTE

    async def produce(job: Job[Any]) -> str:
        return output

    workshop.handle("produce", produce)
    ids = await workshop.start("produce", count=60)
    worker = workshop.begin(slots=60, statement_timeout_ms=500)
    await until(lambda: worker.worker.counters.processed == len(ids))
    await worker.stop()
    assert await workshop.states(ids) == ["completed"] * len(ids)

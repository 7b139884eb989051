"""Whoever waits for a locked table outside of a worker is told so in time: producers, readers, ticks, checks."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.errors import DatabaseBusy
from holdfast.core.records import NewJob
from holdfast.scheduler.tick import Tick, TickOptions
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op, run, run_async
from holdfast.storage.postgres import connection
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
from tests.worker.workshop import Workshop

LIMIT_MS = 300


@pytest_asyncio.fixture
async def database(
    workshop: Workshop,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Database]:
    """The workshop's database for somebody of little patience."""
    monkeypatch.setattr(connection, "LOCK_TIMEOUT_MS", LIMIT_MS)
    database: Database
    if workshop.store.dialect == "postgresql":
        database = PostgresDatabase(request.getfixturevalue("worker_url"))
    else:
        database = SqliteDatabase(tmp_path / "holdfast.db", busy_timeout_ms=LIMIT_MS)
    yield database
    await database.close_async()


def writing(database: Database) -> Op[Any]:
    job = NewJob(id=(id := new_id()), chain_id=id, type="mail", input="null")
    return start_chains(database.store, [StartRequest(job)])


def reading(database: Database) -> Op[Any]:
    return database.store.jobs.get([new_id()])


async def run_sync(database: Database) -> None:
    await asyncio.to_thread(database.run, writing(database))


async def run_in_the_other_colour(database: Database) -> None:
    await database.run_async(writing(database))


async def transaction(database: Database) -> None:
    def work() -> None:
        with database.transaction() as tx:
            run(writing(database), tx)

    await asyncio.to_thread(work)


async def transaction_in_the_other_colour(database: Database) -> None:
    async with database.transaction_async() as tx:
        await run_async(writing(database), tx)


async def tick(database: Database) -> None:
    ticking = Tick(database, [], "w", TickOptions(statement_timeout_ms=LIMIT_MS))
    try:
        await ticking.run()
    finally:
        await ticking.close()


async def read(database: Database) -> None:
    await asyncio.to_thread(database.read, reading(database))


async def read_in_the_other_colour(database: Database) -> None:
    await database.read_async(reading(database))


async def check(database: Database) -> None:
    await asyncio.to_thread(database.check)


WRITERS = [run_sync, run_in_the_other_colour, transaction, transaction_in_the_other_colour, tick]
READERS = [read, read_in_the_other_colour, check]


@pytest.mark.parametrize("call", WRITERS)
async def test_a_writer_that_waits_too_long_is_told_so(
    workshop: Workshop, database: Database, call: Callable[[Database], Awaitable[None]]
) -> None:
    with workshop.ledger.lock_everything(), pytest.raises(DatabaseBusy):
        await call(database)
    await call(database)


@pytest.mark.parametrize("call", READERS)
async def test_a_reader_waits_for_nobody_or_is_told_so(
    workshop: Workshop, database: Database, call: Callable[[Database], Awaitable[None]]
) -> None:
    with workshop.ledger.lock_everything():
        if workshop.store.dialect == "postgresql":
            with pytest.raises(DatabaseBusy):
                await call(database)
        else:
            # Readers of a SQLite file in WAL mode see what was committed last.
            await call(database)
    await call(database)

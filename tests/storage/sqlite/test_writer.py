"""The writer runs many operations in one transaction, and a failure undoes only its own."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import ConnectionClosed, DatabaseBusy, DatabaseUnreachable
from holdfast.core.records import NewJob
from holdfast.core.subscriptions import Subscription
from holdfast.storage.operation import Op, Statement
from holdfast.storage.sqlite.connection import SqliteConnection, SqliteOptions, open_writer
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.sqlite.pool import SqlitePool
from holdfast.storage.sqlite.writer import AsyncWriteRequest, SyncWriteRequest, Writer, deliver
from tests.storage.sqlite.scene import failing_after, job_ids, locked, new_job

LONG_S = 60.0

MakeWriter = Callable[..., Writer]


@pytest.fixture
def ran() -> list[str]:
    """Every statement that the writer's connection has run."""
    return []


@pytest.fixture
def make_writer(database: SqliteDatabase, path: Path, ran: list[str]) -> Iterator[MakeWriter]:
    """Make writers whose groups are bounded as the test says."""
    made: list[tuple[Writer, SqlitePool]] = []

    def opened() -> SqliteConnection:
        connection = open_writer(SqliteOptions(str(path)))
        connection.set_trace_callback(ran.append)
        return connection

    def make(group_size: int = 100, group_s: float = LONG_S) -> Writer:
        pool = SqlitePool(opened, 1, str(path))
        writer = Writer(pool, group_size, group_s)
        made.append((writer, pool))
        return writer

    yield make
    for writer, pool in made:
        writer.close()
        pool.close()


def ticket_of(op: Op[Any], wait_s: float = LONG_S) -> SyncWriteRequest[Any]:
    return SyncWriteRequest(op, wait_s, LONG_S)


def submit_together(writer: Writer, path: Path, ops: list[Op[Any]]) -> list[SyncWriteRequest[Any]]:
    """Submit operations while the lock is held elsewhere, so that they wait for it together."""
    tickets = [ticket_of(op) for op in ops]
    with locked(path):
        for ticket in tickets:
            writer.submit(ticket)
    return tickets


def inserts(database: SqliteDatabase, jobs: list[NewJob]) -> list[Op[Any]]:
    return [database.store.jobs.insert([job]) for job in jobs]


def test_operations_that_wait_together_share_one_commit(
    database: SqliteDatabase, path: Path, make_writer: MakeWriter, ran: list[str]
) -> None:
    jobs = [new_job() for _ in range(5)]
    tickets = submit_together(make_writer(), path, inserts(database, jobs))
    assert [ticket.wait() for ticket in tickets] == [{job.id} for job in jobs]
    assert ran.count("commit") == 1
    assert job_ids(path) == {job.id for job in jobs}


@pytest.mark.parametrize(("bounds", "commits"), [((2, LONG_S), 3), ((100, 0.0), 5)])
def test_a_group_is_bounded_by_number_and_by_time(
    database: SqliteDatabase,
    path: Path,
    make_writer: MakeWriter,
    ran: list[str],
    bounds: tuple[int, float],
    commits: int,
) -> None:
    ops = inserts(database, [new_job() for _ in range(5)])
    for ticket in submit_together(make_writer(*bounds), path, ops):
        ticket.wait()
    assert ran.count("commit") == commits


def test_a_failure_undoes_only_itself(
    database: SqliteDatabase, path: Path, make_writer: MakeWriter
) -> None:
    first, bad, last = new_job(), new_job(), new_job()
    failing = failing_after(database.store, bad, ValueError("no"))
    ops = [*inserts(database, [first]), failing, *inserts(database, [last])]
    tickets = submit_together(make_writer(), path, ops)
    assert tickets[0].wait() == {first.id}
    with pytest.raises(ValueError, match="no"):
        tickets[1].wait()
    assert tickets[2].wait() == {last.id}
    assert job_ids(path) == {first.id, last.id}


def test_a_failure_that_ends_the_transaction_is_told_to_all_whose_work_it_undid(
    database: SqliteDatabase, path: Path, make_writer: MakeWriter
) -> None:
    with locked(path) as connection:
        connection.execute(
            "create trigger t before insert on holdfast_subscription "
            "begin select raise(rollback, 'the disk is full'); end"
        )
        connection.execute("commit")
    undone, later = new_job(), new_job()
    subscribe = database.store.events.subscribe([Subscription("e", "h")])
    ops = [*inserts(database, [undone]), subscribe, *inserts(database, [later])]
    tickets = submit_together(make_writer(), path, ops)
    with pytest.raises(DatabaseBusy, match="undone together"):
        tickets[0].wait()
    with pytest.raises(sqlite3.IntegrityError, match="the disk is full"):
        tickets[1].wait()
    assert tickets[2].wait() == {later.id}
    assert job_ids(path) == {later.id}


def test_an_operation_that_catches_its_error_goes_on(
    database: SqliteDatabase, make_writer: MakeWriter
) -> None:
    def careful() -> Op[str]:
        try:
            yield Statement("schema_record", {"version": 1, "name": "again"})
        except sqlite3.Error:
            rows = yield Statement("schema_version", {})
            return str(rows[0][1])
        return "no error"

    ticket = ticket_of(careful())
    make_writer().submit(ticket)
    assert ticket.wait() == "tables"


def test_the_impatient_are_told_that_the_file_is_locked_and_the_patient_go_on(
    database: SqliteDatabase, path: Path, make_writer: MakeWriter
) -> None:
    writer, hasty_job, calm_job = make_writer(), new_job(), new_job()
    hasty, calm = (
        ticket_of(op, wait_s)
        for op, wait_s in zip(inserts(database, [hasty_job, calm_job]), (0.0, LONG_S), strict=True)
    )
    with locked(path):
        writer.submit(calm)
        writer.submit(hasty)
        with pytest.raises(DatabaseBusy):
            hasty.wait()
    assert calm.wait() == {calm_job.id}
    assert job_ids(path) == {calm_job.id}


def test_a_file_that_cannot_be_opened_is_told_to_every_caller(tmp_path: Path) -> None:
    target = SqliteOptions(str(tmp_path / "absent" / "holdfast.db"))
    writer = Writer(SqlitePool(lambda: open_writer(target), 1, target.path))
    ticket = ticket_of(iter_nothing())
    writer.submit(ticket)
    with pytest.raises(DatabaseUnreachable):
        ticket.wait()
    writer.close()


def iter_nothing() -> Op[None]:
    yield Statement("clock", {})


def test_what_was_submitted_before_the_close_is_done_and_nothing_after(
    database: SqliteDatabase, path: Path, make_writer: MakeWriter
) -> None:
    writer, job = make_writer(), new_job()
    ticket = ticket_of(database.store.jobs.insert([job]))
    writer.submit(ticket)
    writer.close()
    assert ticket.wait() == {job.id}
    with pytest.raises(ConnectionClosed):
        writer.submit(ticket_of(iter_nothing()))


async def test_an_operation_that_nobody_awaits_any_more_is_not_begun(
    database: SqliteDatabase, path: Path, make_writer: MakeWriter
) -> None:
    writer, dropped, kept = make_writer(), new_job(), new_job()
    tickets = [AsyncWriteRequest(op, LONG_S, LONG_S) for op in inserts(database, [dropped, kept])]
    with locked(path):
        for ticket in tickets:
            writer.submit(ticket)
        tickets[0].future.cancel()
    assert await tickets[1].future == {kept.id}
    assert job_ids(path) == {kept.id}


async def test_a_loop_is_woken_once_for_all_its_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    tickets: list[AsyncWriteRequest[int]] = [
        AsyncWriteRequest(never(), LONG_S, LONG_S) for _ in range(10)
    ]
    loop = asyncio.get_running_loop()
    calls: list[Any] = []
    wake = loop.call_soon_threadsafe

    def counted(*args: Any) -> asyncio.Handle:
        calls.append(args)
        return wake(*args)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    for number, ticket in enumerate(tickets):
        ticket.result = number
    deliver(tickets)
    assert await asyncio.gather(*(ticket.future for ticket in tickets)) == list(range(10))
    assert len(calls) == 1


def never() -> Op[int]:
    yield Statement("clock", {})
    return 0

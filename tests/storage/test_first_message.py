"""A start that psycopg has prepared goes in one message with BEGIN, and with COMMIT where that is ours to send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import psycopg
import pytest
from psycopg.pq import PipelineStatus, TransactionStatus

from holdfast import Holdfast
from holdfast.core.errors import DatabaseBusy, DatabaseUnreachable, NoTransaction
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Statement
from holdfast.storage.postgres.connection import PsycopgExecutor
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sql_loader import DEFAULT_SCHEMA
from tests.support.until import until

Colour: TypeAlias = Literal["sync", "async"]
# Psycopg prepares what it has seen so often.
SEEN_OFTEN = 6
LOCK = "lock table holdfast.queue in access exclusive mode"
WAITING = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
CANCEL, TERMINATE = "select pg_cancel_backend(%s)", "select pg_terminate_backend(%s)"


@pytest.fixture
def app(postgres_url: str) -> Iterator[Holdfast]:
    app = Holdfast(postgres_url, open_types=True)
    yield app
    app.close()


class Traced:
    """What libpq says of the messages on a connection."""

    def __init__(self, path: Path, file: int) -> None:
        self._path = path
        self._file = file

    def begin(self, connection: Any) -> None:
        connection.pgconn.trace(self._file)

    def count_answers(self) -> int:
        """Count the messages that were waited for; there is one end of an answer for each."""
        return self._path.read_text().count("ReadyForQuery")


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Traced]:
    with (tmp_path / "trace").open("wb") as file:
        yield Traced(tmp_path / "trace", file.fileno())


@asynccontextmanager
async def own_connection(url: str, colour: Colour) -> AsyncIterator[Any]:
    if colour == "sync":
        with psycopg.connect(url) as connection:
            yield connection
    else:
        async with await psycopg.AsyncConnection.connect(url) as aio:
            yield aio


async def result_of(answer: Any) -> Any:
    return await answer if asyncio.iscoroutine(answer) else answer


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_on_a_connection_of_the_caller_a_start_and_its_commit_are_two_messages(
    app: Holdfast, postgres_url: str, colour: Colour, traced: Traced
) -> None:
    async with own_connection(postgres_url, colour) as connection:
        for _ in range(SEEN_OFTEN):
            await result_of(app.start(connection, "noop"))
            await result_of(connection.commit())
        traced.begin(connection)
        await result_of(app.start(connection, "noop"))
        assert connection.info.transaction_status == TransactionStatus.INTRANS
        await result_of(connection.commit())
        connection.pgconn.untrace()
    assert traced.count_answers() == 2
    assert len(app.jobs.list()) == SEEN_OFTEN + 1


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_in_a_transaction_of_ours_they_are_one_message(
    app: Holdfast, colour: Colour, traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = app.database
    assert isinstance(database, PostgresDatabase)
    opened: list[Any] = []
    connect, connect_async = database._connect, database._connect_async

    def keep() -> Any:
        opened.append(connect())
        return opened[-1]

    async def keep_async() -> Any:
        opened.append(await connect_async())
        return opened[-1]

    monkeypatch.setattr(database, "_connect", keep)
    monkeypatch.setattr(database, "_connect_async", keep_async)
    for _ in range(SEEN_OFTEN):
        await start_alone(app, colour)
    (connection,) = opened
    traced.begin(connection)
    await start_alone(app, colour)
    connection.pgconn.untrace()
    assert traced.count_answers() == 1
    assert len(app.jobs.list()) == SEEN_OFTEN + 1
    await app.aclose()


async def start_alone(app: Holdfast, colour: Colour) -> None:
    await result_of(start_in(app, colour))


def start_in(app: Holdfast, colour: Colour) -> Any:
    """Start in a transaction of ours, in a sync call or in a coroutine."""
    return start_sync(app) if colour == "sync" else start_async(app)


def start_sync(app: Holdfast, *statements: str) -> None:
    with app.transaction() as tx:
        for each in statements:
            tx.execute(each)
        app.start(tx, "noop")


async def start_async(app: Holdfast) -> None:
    async with app.transaction() as tx:
        await app.start(tx, "noop")


@contextmanager
def queue_locked(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url) as other:
        other.execute(LOCK)
        yield other
        other.rollback()


async def end_who_waits(url: str, how: str) -> None:
    """Cancel or end whoever waits for the locked table."""
    with psycopg.connect(url, autocommit=True) as other:
        await until(lambda: other.execute(WAITING).fetchall())
        for row in other.execute(WAITING).fetchall():
            other.execute(how, row)


async def run(work: Callable[[], Any], colour: Colour) -> None:
    await (asyncio.to_thread(work) if colour == "sync" else work())


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_a_first_statement_that_fails_leaves_a_transaction_to_roll_back(
    app: Holdfast, postgres_url: str, colour: Colour
) -> None:
    async with own_connection(postgres_url, colour) as connection:
        for _ in range(SEEN_OFTEN):
            await result_of(app.start(connection, "noop"))
            await result_of(connection.commit())
        with queue_locked(postgres_url):
            ending = asyncio.create_task(end_who_waits(postgres_url, CANCEL))
            with pytest.raises(DatabaseBusy, match="job_insert_new"):
                await run(lambda: app.start(connection, "noop"), colour)
            await ending
        assert connection.info.transaction_status == TransactionStatus.INERROR
        assert connection.pgconn.pipeline_status == PipelineStatus.OFF
        await result_of(connection.rollback())
        await result_of(app.start(connection, "noop"))
        await result_of(connection.commit())
    assert len(app.jobs.list()) == SEEN_OFTEN + 1


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_a_session_that_ends_meanwhile_is_said_to_be_lost_and_replaced(
    app: Holdfast, postgres_url: str, colour: Colour
) -> None:
    for _ in range(SEEN_OFTEN):
        await start_alone(app, colour)
    with queue_locked(postgres_url):
        ending = asyncio.create_task(end_who_waits(postgres_url, TERMINATE))
        with pytest.raises(DatabaseUnreachable, match="administrator"):
            await run(lambda: start_in(app, colour), colour)
        await ending
    await start_alone(app, colour)
    assert len(app.jobs.list()) == SEEN_OFTEN + 1
    await app.aclose()


async def test_a_start_that_is_cancelled_leaves_a_session_for_the_next(
    app: Holdfast, postgres_url: str
) -> None:
    for _ in range(SEEN_OFTEN):
        await start_alone(app, "async")
    with queue_locked(postgres_url) as other:
        starting = asyncio.create_task(start_alone(app, "async"))
        await until(lambda: other.execute(WAITING).fetchall())
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    await start_alone(app, "async")
    assert len(app.jobs.list()) == SEEN_OFTEN + 1
    await app.aclose()


def test_a_value_with_a_nul_is_refused_and_not_cut_short(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        executor = PsycopgExecutor(connection, DEFAULT_SCHEMA)
        for _ in range(SEEN_OFTEN):
            executor.execute(insert_of("noop"))
            connection.commit()
        with pytest.raises(psycopg.DataError, match="NUL"):
            executor.execute(insert_of("noop\0more"))
        connection.rollback()
        rows = connection.execute("select type from holdfast.job").fetchall()
    assert rows == [("noop",)] * SEEN_OFTEN


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_a_start_that_fails_with_the_commit_names_its_statement_and_undoes_the_rest(
    app: Holdfast, postgres_url: str, colour: Colour
) -> None:
    for _ in range(SEEN_OFTEN):
        await start_alone(app, colour)
    with queue_locked(postgres_url):
        ending = asyncio.create_task(end_who_waits(postgres_url, CANCEL))
        with pytest.raises(DatabaseBusy, match="job_insert_new"):
            await run(lambda: start_in(app, colour), colour)
        await ending
    await start_alone(app, colour)
    assert len(app.jobs.list()) == SEEN_OFTEN + 1
    await app.aclose()


COUNT = "select count(*) from holdfast.job"


def test_all_that_a_caller_does_comes_after_the_starts_before_it(app: Holdfast) -> None:
    for _ in range(SEEN_OFTEN):
        start_sync(app)
    seen = []
    with app.transaction() as tx:
        app.start(tx, "noop")
        cursor = tx.execute(COUNT)
        seen += cursor.fetchall()
        app.start(tx, "noop")
        seen += cursor.execute(COUNT).fetchall()
        app.start(tx, "noop")
        seen.append((len(app.jobs.list(tx=tx)),))
        app.start(tx, "noop")
        seen += tx.connection.execute(COUNT).fetchall()
        app.start(tx, "noop")
    seen.append((len(app.jobs.list()),))
    assert seen == [(SEEN_OFTEN + number,) for number in range(1, 6)]


async def test_all_that_a_caller_awaits_comes_after_the_starts_before_it(app: Holdfast) -> None:
    for _ in range(SEEN_OFTEN):
        await start_async(app)
    seen = []
    async with app.transaction() as tx:
        await app.start(tx, "noop")
        connection = tx.connection
        seen += await (await connection.execute(COUNT)).fetchall()
        await app.start(tx, "noop")
        seen += await (await connection.execute(COUNT)).fetchall()
        await app.start(tx, "noop")
        seen.append((len(await app.aio.jobs.list(tx=tx)),))
        await app.start(tx, "noop")
        async with connection.transaction(force_rollback=True):
            await app.start(tx, "undone")
            await app.start(tx, "undone")
        seen += await (await connection.execute(COUNT)).fetchall()
    seen.append((len(app.jobs.list()),))
    assert seen == [(SEEN_OFTEN + number,) for number in (1, 2, 3, 4, 4)]
    await app.aclose()


def test_a_start_of_a_block_that_fails_is_not_there(app: Holdfast) -> None:
    for _ in range(SEEN_OFTEN):
        start_sync(app)
    with pytest.raises(RuntimeError, match="undo"):
        start_and_fail(app)
    assert len(app.jobs.list()) == SEEN_OFTEN


def start_and_fail(app: Holdfast) -> None:
    with app.transaction() as tx:
        app.start(tx, "noop")
        raise RuntimeError("undo")


def insert_of(type: str) -> Statement:
    params = {"id": new_id(), "type": type, "input": "null"}
    return Statement("job_insert_new", {**params, "trace": None, "channel": None, "now": None})


def test_a_caller_who_commits_first_is_told_that_the_transaction_is_over(app: Holdfast) -> None:
    for _ in range(SEEN_OFTEN):
        start_sync(app)
    with pytest.raises(NoTransaction):
        start_sync(app, "commit")
    assert len(app.jobs.list()) == SEEN_OFTEN


@pytest.mark.parametrize("nested", [False, True])
async def test_the_driver_s_connection_begins_with_whatever_is_awaited_first(
    app: Holdfast, nested: bool
) -> None:
    for _ in range(SEEN_OFTEN):
        await start_async(app)
    with pytest.raises(RuntimeError, match="undo"):
        await start_on_driver(app, nested)
    assert len(app.jobs.list()) == SEEN_OFTEN
    await app.aclose()


async def start_on_driver(app: Holdfast, nested: bool) -> None:
    async with app.transaction() as tx:
        if nested:
            async with tx.connection.transaction():
                await app.start(tx.connection, "noop")
        else:
            await app.start(tx.connection, "noop")
        raise RuntimeError("undo")

"""A server that hangs while its kernel acknowledges every packet: callers learn of it; slow statements go on."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import psutil
import psycopg
import pytest

from holdfast import Holdfast, errors
from holdfast.storage.postgres import silence
from tests.support.postgres import StartPostgres
from tests.support.process import PostgresProcess
from tests.support.until import SLOWNESS, until

# Less than a statement takes here that the server is still busy with.
SILENT_S, ANSWER_S = 0.5, 1.0
BOUND_S = 10 * SLOWNESS

Call = Callable[[Holdfast], Awaitable[object]]


@pytest.fixture
def server(private_postgres: StartPostgres, monkeypatch: pytest.MonkeyPatch) -> PostgresProcess:
    monkeypatch.setattr(silence, "SILENT_S", SILENT_S)
    monkeypatch.setattr(silence, "ANSWER_S", ANSWER_S)
    return private_postgres()


@pytest.fixture
async def app(server: PostgresProcess) -> AsyncIterator[Holdfast]:
    made = Holdfast(f"{server.url}?connect_timeout=2", open_types=True)
    made.migrate()
    yield made
    await made.aclose()


@contextmanager
def frozen(server: PostgresProcess) -> Iterator[None]:
    """Stop every process of a server; the kernel goes on with its sockets."""
    first = psutil.Process(server.pid)
    processes = [first, *first.children(recursive=True)]
    _send(processes, signal.SIGSTOP)
    try:
        yield
    finally:
        _send(processes, signal.SIGCONT)


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for each in processes:
        # A process of the server may end by itself meanwhile.
        with suppress(psutil.NoSuchProcess):
            each.send_signal(number)


def start(app: Holdfast) -> None:
    with app.transaction() as tx:
        app.start(tx, "work", 1)


async def start_in_thread(app: Holdfast) -> None:
    await asyncio.to_thread(start, app)


async def start_async(app: Holdfast) -> None:
    async with app.transaction() as tx:
        await app.start(tx, "work", 1)


async def list_in_thread(app: Holdfast) -> None:
    await asyncio.to_thread(lambda: app.jobs.list())


async def list_async(app: Holdfast) -> None:
    await app.aio.jobs.list()


@pytest.mark.parametrize("call", [start_in_thread, start_async, list_in_thread, list_async])
async def test_a_call_to_a_server_that_hangs_fails_in_time_and_works_again_when_it_is_back(
    call: Call, server: PostgresProcess, app: Holdfast
) -> None:
    await call(app)
    with frozen(server):
        began = time.monotonic()
        with pytest.raises(errors.DatabaseUnreachable):
            await call(app)
        assert time.monotonic() - began < BOUND_S
    await call(app)


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_a_transaction_that_is_open_when_the_server_hangs_ends_and_says_so(
    colour: str, server: PostgresProcess, app: Holdfast
) -> None:
    def hang() -> None:
        with app.transaction() as tx:
            app.start(tx, "work", 1)
            with frozen(server):
                tx.connection.execute("select 1")

    async def hang_async() -> None:
        async with app.transaction() as tx:
            await app.start(tx, "work", 1)
            with frozen(server):
                await tx.connection.execute("select 1")

    began = time.monotonic()
    with pytest.raises(
        (errors.DatabaseUnreachable, psycopg.OperationalError), match="the server hangs"
    ):
        await (asyncio.to_thread(hang) if colour == "sync" else hang_async())
    assert time.monotonic() - began < BOUND_S
    assert not (await app.aio.jobs.list()).items


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_a_statement_that_takes_long_on_a_server_that_answers_is_not_cut_short(
    colour: str, app: Holdfast
) -> None:
    slow, seconds = "select 'slept' from pg_sleep(%s)", [4 * SILENT_S]

    def sleep() -> object:
        with app.transaction() as tx:
            return tx.connection.execute(slow, seconds).fetchone()

    async def sleep_async() -> object:
        async with app.transaction() as tx:
            return await (await tx.connection.execute(slow, seconds)).fetchone()

    answer = await (asyncio.to_thread(sleep) if colour == "sync" else sleep_async())
    assert answer == ("slept",)


async def test_a_caller_who_is_cancelled_while_the_server_hangs_is_let_go(
    server: PostgresProcess, app: Holdfast
) -> None:
    await list_async(app)
    with frozen(server):
        call = asyncio.create_task(list_async(app))
        await until(lambda: len(asyncio.all_tasks()) > 1)
        await asyncio.sleep(0)
        call.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert time.monotonic() - began < BOUND_S

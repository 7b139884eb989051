"""Jobs in the transaction of a test: they run there, and go with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import NullPool

from holdfast import Continue, Holdfast, Job, Retry, SyncJob
from holdfast.errors import UnsupportedConnection
from holdfast_testing.kit import Kit

app = Holdfast()
NewSession = sessionmaker()
threads: list[int] = []


@app.job("order.charge", retry=Retry(base="10s", max_attempts=3))
def charge(job: Job[int]) -> None:
    threads.append(threading.get_ident())
    with NewSession.begin() as session:
        session.execute(text("insert into paid values (:id)"), {"id": job.input})
        if job.input == 13 and job.attempt == 1:
            raise RuntimeError("declined")
        job.complete(tx=session, output=Continue("order.ship", job.input))


@app.job("order.ship", atomic=True)
def ship(job: Job[int]) -> str:
    job.transaction.execute("insert into paid values (1000)")
    return f"shipped {job.input}"


@app.job("order.note")
async def note(job: Job[int]) -> None:
    async with app.transaction() as tx:
        await app.start(tx, "order.ship", job.input)


class Meeting:
    """Where two handlers meet."""

    def __init__(self) -> None:
        self.began, self.passed = asyncio.Event(), asyncio.Event()


meeting = Meeting()


@app.job("order.fail", retry=Retry(base="10s"))
async def fail(job: Job[int]) -> None:
    async with app.transaction() as tx:
        await tx.execute("insert into paid values (13)")
        meeting.began.set()
        # So long others may try to do their work in between.
        await asyncio.wait([asyncio.ensure_future(meeting.passed.wait())], timeout=0.3)
        raise RuntimeError("declined")


@app.job("order.pass")
async def pass_by(job: Job[int]) -> None:
    await meeting.began.wait()
    async with app.transaction() as tx:
        await tx.execute("insert into paid values (7)")
    meeting.passed.set()


@app.job("order.block")
def block(job: Job[int]) -> None:
    with NewSession.begin() as session:
        session.execute(text("insert into paid values (8)"))


def insert(id: int) -> int:
    """A step that writes through the test's connection."""
    with NewSession.begin() as session:
        session.execute(text("insert into paid values (:id)"), {"id": id})
    return id


def insert_atomic(tx: Any, id: int) -> int:
    """An atomic step."""
    tx.execute("insert into paid values (1001)")
    return id


async def insert_async(id: int) -> int:
    """A step of an async function."""
    async with app.transaction() as tx:
        await tx.execute("insert into paid values (1002)")
    return id


@app.job("order.follow")
def follow(job: SyncJob[int]) -> int:
    one = job.step("insert", insert, job.input)
    two = job.step("atomic", insert_atomic, 2, atomic=True)
    job.sleep("1d")
    return one + two + job.wait_for("order.paid", returns=int)


@app.job("order.follow_async")
async def follow_async(job: Job[int]) -> int:
    one = await job.step("insert", insert_async, job.input)
    await job.sleep("1d")
    return one + await job.wait_for("order.paid", returns=int)


@pytest.fixture(params=["sqlite", "postgres"])
def connection(request: pytest.FixtureRequest) -> Iterator[Connection]:
    url = str(request.getfixturevalue(f"{request.param}_url"))
    restore = app.bind(url)
    app.migrate()
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    with engine.begin() as made:
        made.execute(text("create table paid (id integer)"))
    with engine.connect() as connection:
        transaction = connection.begin()
        NewSession.configure(bind=connection, join_transaction_mode="create_savepoint")
        yield connection
        transaction.rollback()
    with engine.connect() as after:
        assert after.execute(text("select count(*) from paid")).scalar() == 0
    assert not app.jobs.list().items
    restore()


@pytest.fixture
def kit(connection: Connection) -> Iterator[Kit]:
    threads.clear()
    kit = Kit.joined(app, connection)
    yield kit
    kit.close()


def run_until_idle(kit: Kit, form: str) -> None:
    if form == "sync":
        kit.run_until_idle()
    else:
        asyncio.run(kit.run_until_idle_async())


def paid(connection: Connection) -> list[int]:
    return list(connection.execute(text("select id from paid order by id")).scalars())


def test_jobs_run_in_the_transaction_and_the_thread_of_the_test(
    kit: Kit, connection: Connection
) -> None:
    with NewSession.begin() as session:
        chain = app.start(session, charge, 1)
    kit.run_until_idle()
    assert app.chains.get(chain.id).output == "shipped 1"
    assert paid(connection) == [1, 1000]
    assert threads == [threading.get_ident()]


def test_a_failed_attempt_leaves_nothing_but_its_retry(kit: Kit, connection: Connection) -> None:
    with NewSession.begin() as session:
        chain = app.start(session, charge, 13)
    kit.run_until_idle()
    assert app.chains.get(chain.id).state == "pending"
    assert paid(connection) == []
    kit.advance("11s")
    kit.run_until_idle()
    assert app.chains.get(chain.id).state == "completed"
    assert paid(connection) == [13, 1000]


def test_async_handlers_use_transactions_of_the_application(
    kit: Kit, connection: Connection
) -> None:
    with app.transaction() as tx:
        app.start(tx, note, 5)
    kit.run_until_idle()
    assert kit.assert_started("order.ship").state == "completed"
    assert paid(connection) == [1000]


@pytest.mark.parametrize("form", ["sync", "async"])
def test_the_worker_of_a_test_signs_on_and_off(kit: Kit, form: str) -> None:
    with app.transaction() as tx:
        app.start(tx, "order.ship", 1)
    run_until_idle(kit, form)
    (worker,) = app.workers.list(everyone=True)
    assert worker.stopped_at is not None


@pytest.mark.parametrize("form", ["sync", "async"])
def test_atomic_jobs_that_are_due_together_each_keep_their_work(
    kit: Kit, connection: Connection, form: str
) -> None:
    with app.transaction() as tx:
        app.start_many(tx, "order.ship", range(3))
    run_until_idle(kit, form)
    assert [each.state for each in kit.started("order.ship")] == ["completed"] * 3
    assert paid(connection) == [1000] * 3


@pytest.mark.parametrize("form", ["sync", "async"])
def test_a_failing_transaction_takes_nothing_with_it_of_what_runs_beside_it(
    kit: Kit, connection: Connection, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.meeting", Meeting())
    with app.transaction() as tx:
        chains = [app.start(tx, each, 1) for each in (fail, pass_by, block)]
    run_until_idle(kit, form)
    states = [app.chains.get(each.id).state for each in chains]
    assert states == ["pending", "completed", "completed"]
    assert paid(connection) == [7, 8]


def test_a_rolled_back_session_takes_its_jobs_with_it(kit: Kit) -> None:
    with NewSession() as session:
        app.start(session, charge, 1)
        assert len(kit.started()) == 1
        session.rollback()
    assert kit.started() == []


async def test_an_async_connection_is_refused_with_what_to_do(sqlite_url: str) -> None:
    other = Holdfast(sqlite_url)
    other.migrate()
    async with other.transaction() as tx:
        with pytest.raises(UnsupportedConnection, match="only a sync connection can be joined"):
            Kit.joined(other, tx)
    await other.aclose()


@pytest.mark.parametrize("target", ["order.follow", "order.follow_async"])
def test_durable_functions_run_in_the_transaction_of_the_test(
    connection: Connection, kit: Kit, target: str
) -> None:
    with NewSession.begin() as session:
        chain = app.start(session, target, 1)
    kit.run_until_idle()
    kit.advance("1d")
    kit.run_until_idle()
    kit.signal("order.paid", data=10)
    kit.run_until_idle()
    assert app.chains.get(chain.id).output == (13 if target == "order.follow" else 11)
    found = connection.execute(text("select id from paid order by id")).scalars().all()
    assert found == ([1, 1001] if target == "order.follow" else [1002])


async def test_a_sync_function_in_an_async_test_of_a_joined_connection_is_refused(kit: Kit) -> None:
    with NewSession.begin() as session:
        chain = app.start(session, follow, 1)
    await kit.run_until_idle_async()
    (attempt,) = app.jobs.attempts(chain.id)
    assert "a sync handler cannot have steps" in str(attempt.error)


def test_workers_of_durable_functions_die_in_the_transaction_of_the_test(
    connection: Connection, kit: Kit
) -> None:
    def reset() -> None:
        connection.execute(text("delete from paid"))

    def rows() -> set[int]:
        return set(connection.execute(text("select id from paid")).scalars())

    killed = kit.crash_everywhere(follow, 1, signals={"order.paid": 10}, rows=rows, reset=reset)
    assert killed >= 8

"""`job.complete(tx=…)`: the job is completed by the commit of the handler's own transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from holdfast import Continue, Holdfast, Job, Retry
from holdfast.core.errors import AlreadyCompleting
from holdfast_testing.kit import Kit

DRIVERS = {"sqlite": "sqlite", "postgres": "postgresql+psycopg"}
ASYNC_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgres": "postgresql+asyncpg"}


class Base(DeclarativeBase): ...


class Receipt(Base):
    __tablename__ = "receipts"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{kind}_url"))


@pytest.fixture
def kit(url: str) -> Iterator[Kit]:
    """An empty application with a business table."""
    kit = Kit(Holdfast(open_types=True), url)
    with kit.app.transaction() as tx:
        tx.execute("create table paid (id integer)")
        tx.execute("create table receipts (id integer primary key)")
    yield kit
    kit.app.close()


def paid(kit: Kit) -> int:
    return counted(kit, "select count(*) from paid")


def counted(kit: Kit, query: str) -> int:
    with kit.app.transaction() as tx:
        count: int = tx.execute(query).fetchone()[0]
        return count


def start(kit: Kit, type: str = "pay") -> Any:
    with kit.app.transaction() as tx:
        return kit.app.start(tx, type, None).id


def test_rows_and_completion_commit_together(kit: Kit, kind: str, url: str) -> None:
    engine = create_engine(url.replace(url.partition("://")[0], DRIVERS[kind], 1))

    @kit.app.job("pay")
    def pay(job: Job[Any]) -> None:
        with Session(engine) as session, session.begin():
            session.execute(text("insert into paid values (1)"))
            job.complete(tx=session, output="paid")

    chain = start(kit)
    report = kit.run_until_idle()
    engine.dispose()
    assert kit.app.chains.get(chain).output == "paid"
    assert paid(kit) == 1
    assert report.counters["processed"] == 1


async def test_an_async_session_is_awaited_and_the_chain_may_go_on(
    kit: Kit, kind: str, url: str
) -> None:
    engine = create_async_engine(url.replace(url.partition("://")[0], ASYNC_DRIVERS[kind], 1))

    @kit.app.job("pay")
    async def pay(job: Job[Any]) -> None:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(text("insert into paid values (1)"))
            await job.complete(tx=session, output=Continue("ship", {"n": 2}))

    @kit.app.job("ship")
    async def ship(job: Job[Any]) -> int:
        return int(job.input["n"])

    chain = start(kit)
    await kit.run_until_idle_async()
    await engine.dispose()
    assert kit.app.chains.get(chain).output == 2
    await kit.app.aclose()


@pytest.mark.parametrize("autoflush", [True, False])
def test_what_a_session_holds_back_is_written_before_the_completion(
    kit: Kit, kind: str, url: str, autoflush: bool
) -> None:
    engine = create_engine(url.replace(url.partition("://")[0], DRIVERS[kind], 1))
    refusals: list[int] = []

    @kit.app.job("pay", retry=Retry(base="1s", max_attempts=2))
    def pay(job: Job[Any]) -> None:
        with Session(engine, autoflush=autoflush) as session, session.begin():
            session.add(Receipt(id=job.attempt))
            try:
                job.complete(tx=session)
            except IntegrityError:
                refusals.append(job.attempt)
                raise
            assert not session.new

    with kit.app.transaction() as tx:
        tx.execute("insert into receipts values (1)")
    chain = start(kit)
    kit.run_until_idle()
    kit.advance("2s")
    kit.run_until_idle()
    engine.dispose()
    assert refusals == [1]
    assert kit.app.chains.get(chain).state == "completed"
    assert counted(kit, "select count(*) from receipts") == 2


async def test_what_an_async_session_holds_back_is_written_before_the_completion(
    kit: Kit, kind: str, url: str
) -> None:
    engine = create_async_engine(url.replace(url.partition("://")[0], ASYNC_DRIVERS[kind], 1))

    @kit.app.job("pay", retry=Retry(max_attempts=1))
    async def pay(job: Job[Any]) -> None:
        async with AsyncSession(engine) as session, session.begin():
            session.add(Receipt(id=1))
            await job.complete(tx=session)
            assert not session.new

    chain = start(kit)
    await kit.run_until_idle_async()
    await engine.dispose()
    assert kit.app.chains.get(chain).state == "completed"
    assert counted(kit, "select count(*) from receipts") == 1
    await kit.app.aclose()


def test_a_rollback_undoes_the_completion_and_the_job_is_retried(
    kit: Kit, kind: str, url: str
) -> None:
    engine = create_engine(url.replace(url.partition("://")[0], DRIVERS[kind], 1))

    @kit.app.job("pay", retry=Retry(base="1s", max_attempts=2))
    def pay(job: Job[Any]) -> None:
        with Session(engine) as session, session.begin():
            session.execute(text("insert into paid values (1)"))
            job.complete(tx=session, output=job.attempt)
            if job.attempt == 1:
                session.rollback()

    chain = start(kit)
    kit.run_until_idle()
    assert (kit.app.chains.get(chain).state, paid(kit)) == ("pending", 0)
    kit.advance("2s")
    kit.run_until_idle()
    engine.dispose()
    assert (kit.app.chains.get(chain).output, paid(kit)) == (2, 1)


def test_a_chain_goes_on_only_behind_what_the_next_type_declares_to_wait_for(
    kit: Kit, kind: str, url: str
) -> None:
    engine = create_engine(url.replace(url.partition("://")[0], DRIVERS[kind], 1))

    kit.app.declare("packed")
    kit.app.declare("mailed")

    @kit.app.job("ship", waits_for=["packed"])
    def ship(job: Job[Any]) -> None: ...

    @kit.app.job("pay")
    def pay(job: Job[str]) -> None:
        with Session(engine) as session, session.begin():
            session.execute(text("insert into paid values (1)"))
            awaited = kit.app.start(session, job.input, after="1h")
            job.complete(tx=session, output=Continue(ship, blockers=[awaited]))

    with kit.app.transaction() as tx:
        good = kit.app.start(tx, pay, "packed").id
        bad = kit.app.start(tx, pay, "mailed").id
    kit.run_until_idle()
    engine.dispose()
    assert kit.app.chains.get(good).state == "blocked"
    refused = kit.app.chains.get(bad)
    assert refused.state == "failed"
    assert "ship does not declare that it waits for mailed" in str(refused.error)
    assert paid(kit) == 1


def test_completing_twice_is_refused(kit: Kit) -> None:
    refused: list[type[Exception]] = []

    @kit.app.job("pay")
    def pay(job: Job[Any]) -> None:
        with kit.app.transaction() as tx:
            job.complete(tx=tx, output=1)
            for call in (job.complete, job.prepare):
                try:
                    call()
                except AlreadyCompleting as error:
                    refused.append(type(error))

    chain = start(kit)
    kit.run_until_idle()
    assert refused == [AlreadyCompleting, AlreadyCompleting]
    assert kit.app.chains.get(chain).output == 1

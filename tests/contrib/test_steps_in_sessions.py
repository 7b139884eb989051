"""Atomic steps in the application's own SQLAlchemy sessions: their rows and the record commit together, or neither."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from holdfast import Holdfast, Job, Retry, SyncJob
from holdfast_testing.kit import Kit
from tests.contrib.conftest import ASYNC_DRIVERS, alchemy_url

INSERT = text("insert into orders values (:id)")


@pytest.fixture
def kit(any_url: str) -> Iterator[Kit]:
    app = Holdfast(any_url)
    app.migrate()
    with app.transaction() as tx:
        tx.execute("create table orders (id integer primary key)")
    made = Kit(app, any_url)
    yield made
    made.close()
    app.close()


def stored(kit: Kit) -> tuple[int, list[str]]:
    """How many orders there are, and which records."""
    (job,) = kit.app.jobs.list()
    with kit.app.transaction() as tx:
        orders: int = tx.execute("select count(*) from orders").fetchone()[0]
    return orders, [each.name for each in kit.app.jobs.steps(job.id)]


def order_of(url: str, is_async: bool, tries: list[int]) -> Any:
    """A function whose step fails once, after it has written."""
    sessions = sessionmaker(create_engine(alchemy_url(url), poolclass=NullPool))
    engine = create_async_engine(alchemy_url(url, ASYNC_DRIVERS), poolclass=NullPool)
    async_sessions = async_sessionmaker(engine)
    retry = Retry(base="1h", cap="1h", jitter=0)

    def fail_once() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("after the insert")

    async def reserve(session: Any, id: int) -> int:
        await session.execute(INSERT, {"id": id})
        fail_once()
        return id

    async def order(job: Job[int]) -> int:
        begin = async_sessions.begin
        reserved = await job.step("reserve", reserve, job.input, atomic=begin, retry=retry)
        await job.wait_for("paid")
        return reserved

    def reserve_sync(session: Session, id: int) -> int:
        session.execute(INSERT, {"id": id})
        fail_once()
        return id

    def order_sync(job: SyncJob[int]) -> int:
        begin = sessions.begin
        reserved = job.step("reserve", reserve_sync, job.input, atomic=begin, retry=retry)
        job.wait_for("paid")
        return reserved

    return order if is_async else order_sync


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_a_step_in_a_session_commits_with_its_record(
    kit: Kit, any_url: str, is_async: bool
) -> None:
    tries: list[int] = []
    app = kit.app
    app.job("order")(order_of(any_url, is_async, tries))
    with app.transaction() as tx:
        chain = app.start(tx, "order", 7)
    kit.run_until_idle()
    assert stored(kit) == (0, ["reserve.retry"])
    kit.advance("1h")
    kit.run_until_idle()
    assert stored(kit) == (1, ["reserve.retry", "reserve", "wait:paid"])
    kit.signal("paid")
    kit.run_until_idle()
    assert app.chains.get(chain.id).output == 7
    assert len(tries) == 2

"""Consumers whose rows are written by SQLAlchemy: the position commits in the application's own session."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from holdfast.core.errors import InvalidOption
from holdfast.core.retry import Retry
from holdfast_streams import StreamEvent
from tests.contrib.conftest import ASYNC_DRIVERS, alchemy_url
from tests.streams.scene import Scene

ONCE = Retry(base="0s", cap="0s", max_attempts=1)
WRITE = text("insert into taken (n, key, place) values (:n, :key, :place)")


class Base(DeclarativeBase):
    """What is mapped."""


class Taken(Base):
    """A row of the table that consumers write."""

    __tablename__ = "taken"
    n: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str]


def row(event: StreamEvent[Any]) -> dict[str, Any]:
    """What a consumer writes of an event."""
    return {"n": event.data["n"], "key": event.key, "place": event.place}


async def test_a_session_of_the_application_commits_rows_and_position_together(
    scene: Scene,
) -> None:
    sessions = sessionmaker(create_engine(alchemy_url(scene.url), poolclass=NullPool))

    @scene.streams.consumer("order.*", name="revenue", begin=sessions.begin, retry=ONCE)
    def take(events: list[StreamEvent[Any]], session: Session) -> None:
        for each in events:
            session.execute(WRITE, row(each))
        if any(each.data["n"] < 0 for each in events):
            raise ValueError("refused after it was written")

    await check(scene)


async def test_an_async_session_does_too(scene: Scene) -> None:
    engine = create_async_engine(alchemy_url(scene.url, ASYNC_DRIVERS), poolclass=NullPool)
    sessions = async_sessionmaker(engine)

    @scene.streams.consumer("order.*", name="revenue", begin=sessions.begin, retry=ONCE)
    async def take(events: list[StreamEvent[Any]], session: AsyncSession) -> None:
        for each in events:
            await session.execute(WRITE, row(each))
        if any(each.data["n"] < 0 for each in events):
            raise ValueError("refused after it was written")

    await check(scene)


async def test_what_the_session_cannot_flush_at_the_end_fails_like_a_handler(scene: Scene) -> None:
    sessions = sessionmaker(create_engine(alchemy_url(scene.url), poolclass=NullPool))

    @scene.streams.consumer("order.*", name="revenue", begin=sessions.begin, retry=ONCE)
    def take(events: list[StreamEvent[Any]], session: Session) -> None:
        for each in events:
            session.add(Taken(n=max(0, each.data["n"]) or None, key=each.key))

    await check(scene, "IntegrityError")


async def check(scene: Scene, error: str = "refused after it was written") -> None:
    """Events are taken once, the one that fails is parked alone, and what it wrote is not there."""
    scene.streams.register()
    scene.publish(1, 2, -3, 4, key="a")
    async with scene.working():
        await scene.until_taken(1, 2, 4)
        scene.publish(5, key="a")
        await scene.until_taken(1, 2, 4, 5)
    assert scene.taken() == [1, 2, 4, 5]
    (parked,) = scene.parked_events("revenue")
    assert error in str(parked.error)


@pytest.mark.parametrize("begin", ["sessions", 7])
def test_what_begins_no_transaction_is_refused(scene: Scene, begin: Any) -> None:
    with pytest.raises(InvalidOption, match="begin"):

        @scene.streams.consumer("order.*", begin=begin)
        def take(events: list[StreamEvent[Any]], session: Session) -> None: ...

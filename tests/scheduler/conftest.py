"""Each test of the runtime on each store, unless it asks for one by name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from holdfast.core.cycle import CycleSpec
from holdfast.scheduler.runner import Mode
from holdfast.scheduler.tick import Tick, TickOptions
from holdfast.storage.database import Database
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
from tests.scheduler.scene import ManualClock, Recorder, Replica
from tests.scheduler.ticks import FunctionRunner, Log, MakeTick

MakeReplica = Callable[..., Replica]


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """A prepared database of either kind."""
    made = _opened(request, request.param)
    yield made
    await made.close_async()


def _opened(request: pytest.FixtureRequest, kind: str) -> Database:
    if kind == "postgres":
        return PostgresDatabase(request.getfixturevalue("postgres_url"))
    url: str = request.getfixturevalue("sqlite_url")
    made = SqliteDatabase(url.removeprefix("sqlite:///"))
    made.migrate()
    return made


@pytest_asyncio.fixture
async def clock() -> ManualClock:
    """A clock that stands still until it is moved."""
    return ManualClock()


@pytest_asyncio.fixture
async def recorder() -> Recorder:
    """An observer that can be waited for."""
    return Recorder()


@pytest_asyncio.fixture
async def replica(database: Database, clock: ManualClock) -> AsyncIterator[MakeReplica]:
    """Make processes with cycles on the same database."""
    made: list[Replica] = []

    def make(*specs: CycleSpec, **options: Any) -> Replica:
        made.append(Replica(database, options.pop("clock", clock), *specs, **options))
        return made[-1]

    yield make
    for each in made:
        await each.close()


@pytest.fixture
def log() -> Log:
    return Log()


@pytest_asyncio.fixture
async def make_tick(
    database: Database, clock: ManualClock, recorder: Recorder
) -> AsyncIterator[MakeTick]:
    made: list[Tick] = []

    def make(*runners: FunctionRunner, mode: Mode = "tick", **options: Any) -> Tick:
        tick = Tick(
            database,
            runners,
            "w-1",
            TickOptions(**options),
            mode=mode,
            clock=clock,
            observer=recorder,
            now=clock.now,
        )
        made.append(tick)
        return tick

    yield make
    for tick in made:
        await tick.close()

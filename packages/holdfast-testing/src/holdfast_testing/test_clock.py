"""A database whose clock a test moves: every operation gets the test's instant instead of the database's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.core.duration import Duration, milliseconds
from holdfast.core.instants import Instant
from holdfast.storage.database import Database, Link
from holdfast.storage.operation import Op, at

T = TypeVar("T")

Now = Callable[[], Instant | None]


class MovedClock:
    """The system's clock, moved forward by a test."""

    def __init__(self) -> None:
        self.ahead_us = 0

    def instant(self) -> Instant | None:
        """The test's time; None while it is the database's own."""
        return None if self.ahead_us == 0 else self.now()

    def now(self) -> Instant:
        """The test's time."""
        return time.time_ns() // 1000 + self.ahead_us

    def advance(self, duration: Duration) -> None:
        """Move it forward."""
        self.ahead_us += milliseconds(duration) * 1000

    def move_to(self, instant: Instant) -> None:
        """Move it to an instant, unless it is past that."""
        self.ahead_us = max(self.ahead_us, instant - time.time_ns() // 1000)


def _at_time(op: Op[T], now: Now) -> Op[T]:
    instant = now()
    return op if instant is None else at(op, instant)


class TimedLink:
    """A link whose operations run at the test's instant."""

    def __init__(self, link: Link, now: Now) -> None:
        self.purpose = link.purpose
        self.close = link.close
        self._link = link
        self._now = now

    async def run(self, op: Op[T]) -> T:
        return await self._link.run(_at_time(op, self._now))

    async def run_atomic(self, op: Op[T]) -> T:
        return await self._link.run_atomic(_at_time(op, self._now))


class TimedDatabase:
    """A database for a worker under test. Transactions of handlers keep the real clock, which only lies behind."""

    def __init__(self, database: Database, now: Now) -> None:
        self.store = database.store
        self._database = database
        self._now = now

    def __getattr__(self, name: str) -> Any:
        """What has no time in it is the database's own."""
        return getattr(self._database, name)

    def run(self, op: Op[T]) -> T:
        return self._database.run(_at_time(op, self._now))

    async def run_async(self, op: Op[T]) -> T:
        return await self._database.run_async(_at_time(op, self._now))

    def read(self, op: Op[T], timeout_ms: int | None = None) -> T:
        return self._database.read(_at_time(op, self._now), timeout_ms)

    async def read_async(self, op: Op[T], timeout_ms: int | None = None) -> T:
        return await self._database.read_async(_at_time(op, self._now), timeout_ms)

    def link(self, purpose: str, statement_timeout_ms: int = 10_000) -> Link:
        return TimedLink(self._database.link(purpose, statement_timeout_ms), self._now)

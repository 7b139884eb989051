"""A database whose clock a test moves: every operation gets the test's instant instead of the database's own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, TypeVar

from holdfast.core.instants import Instant
from holdfast.core.records import AppliedMigration, Held
from holdfast.core.replication import Replication
from holdfast.storage.database import AsyncTransaction, Database, Link, Singleton, Transaction
from holdfast.storage.operation import Op, at
from holdfast.storage.store import Store

T = TypeVar("T")

Now = Callable[[], Instant | None]


def _at_time(op: Op[T], now: Now) -> Op[T]:
    instant = now()
    return op if instant is None else at(op, instant)


class TimedLink:
    """A link whose operations run at the test's instant."""

    def __init__(self, link: Link, now: Now) -> None:
        self._link = link
        self._now = now

    @property
    def purpose(self) -> str:
        return self._link.purpose

    async def run(self, op: Op[T]) -> T:
        return await self._link.run(_at_time(op, self._now))

    async def run_atomic(self, op: Op[T]) -> T:
        return await self._link.run_atomic(_at_time(op, self._now))

    async def close(self) -> None:
        await self._link.close()


class TimedDatabase:
    """A database for a worker under test. Transactions of handlers keep the real clock, which only lies behind."""

    def __init__(self, database: Database, now: Now) -> None:
        self._database = database
        self._now = now

    @property
    def store(self) -> Store:
        return self._database.store

    @property
    def schema(self) -> str:
        return self._database.schema

    @property
    def url(self) -> str:
        return self._database.url

    def run(self, op: Op[T]) -> T:
        return self._database.run(_at_time(op, self._now))

    async def run_async(self, op: Op[T]) -> T:
        return await self._database.run_async(_at_time(op, self._now))

    def read(self, op: Op[T], timeout_ms: int | None = None) -> T:
        return self._database.read(_at_time(op, self._now), timeout_ms)

    async def read_async(self, op: Op[T], timeout_ms: int | None = None) -> T:
        return await self._database.read_async(_at_time(op, self._now), timeout_ms)

    def transaction(self, mark: Held | None = None) -> AbstractContextManager[Transaction]:
        return self._database.transaction(mark)

    def transaction_async(
        self, mark: Held | None = None
    ) -> AbstractAsyncContextManager[AsyncTransaction]:
        return self._database.transaction_async(mark)

    def snapshot(self) -> AbstractContextManager[Any]:
        return self._database.snapshot()

    def link(self, purpose: str, statement_timeout_ms: int = 10_000) -> Link:
        return TimedLink(self._database.link(purpose, statement_timeout_ms), self._now)

    def singleton(self, key: str) -> Singleton:
        return self._database.singleton(key)

    def migrate(self) -> list[AppliedMigration]:
        return self._database.migrate()

    def check(self) -> list[AppliedMigration]:
        return self._database.check()

    async def check_async(self) -> list[AppliedMigration]:
        return await self._database.check_async()

    async def is_pooled(self) -> bool:
        return await self._database.is_pooled()

    async def replication(self) -> Replication | None:
        return await self._database.replication()

    def close(self) -> None:
        self._database.close()

    async def close_async(self) -> None:
        await self._database.close_async()

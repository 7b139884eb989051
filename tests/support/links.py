"""A database of whose links and reads every call first goes through the test's hands; all else is the real one's."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from holdfast.storage.database import Database, Link
from holdfast.storage.operation import Op

T = TypeVar("T")


class Interference(Protocol):
    """What a test does around the calls of links."""

    async def around(self, purpose: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make a link's call, or not, and answer for it."""


class DisturbedLink:
    """See `storage.database.Link`."""

    def __init__(self, link: Link, interference: Interference) -> None:
        self._link = link
        self._interference = interference
        self.purpose = link.purpose

    async def run(self, op: Op[T]) -> T:
        return await self._interference.around(self.purpose, lambda: self._link.run(op))

    async def run_atomic(self, op: Op[T]) -> T:
        return await self._interference.around(self.purpose, lambda: self._link.run_atomic(op))

    async def close(self) -> None:
        await self._link.close()


class DisturbedDatabase:
    """See `storage.database.Database`."""

    def __init__(self, database: Database, interference: Interference) -> None:
        self._database = database
        self._interference = interference

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def link(self, purpose: str, statement_timeout_ms: int = 10_000) -> DisturbedLink:
        link = self._database.link(purpose, statement_timeout_ms)
        return DisturbedLink(link, self._interference)

    async def read_async(self, op: Op[T], timeout_ms: int | None = None) -> T:
        return await self._interference.around(
            "read", lambda: self._database.read_async(op, timeout_ms)
        )

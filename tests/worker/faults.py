"""A database whose links can be cut: before a statement, after its commit, or in the middle for ever."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from holdfast.core.errors import DatabaseUnreachable
from holdfast.storage.database import Database, Link
from holdfast.storage.statement import Op

T = TypeVar("T")

Fault = Literal["before", "after", "hang", "lost"]
"""An error before the statement, an error after its commit, no answer to what was never sent, or to what was."""


class Faults:
    """What goes wrong on the links of one purpose, or of all of them. Set from any thread."""

    def __init__(self) -> None:
        self._faults: dict[str, Fault] = {}
        self._runs: Counter[str] = Counter()
        self._ran = threading.Condition()

    def set(self, fault: Fault, *purposes: str) -> None:
        """Let something go wrong from now on."""
        for purpose in purposes or ("*",):
            self._faults[purpose] = fault

    def clear(self) -> None:
        """Let everything go well again; what hangs goes on hanging, as behind a dead line."""
        self._faults.clear()

    def of(self, purpose: str) -> Fault | None:
        """What goes wrong for a purpose."""
        return self._faults.get(purpose, self._faults.get("*"))

    def note(self, purpose: str) -> None:
        """Count an operation, whatever becomes of it."""
        with self._ran:
            self._runs[purpose] += 1
            self._ran.notify_all()

    def runs(self, purpose: str) -> int:
        """How many operations were begun for a purpose."""
        return self._runs[purpose]

    async def ran(self, purpose: str, times: int = 1) -> None:
        """Wait until so many operations were begun for a purpose."""

        def wait() -> bool:
            with self._ran:
                return self._ran.wait_for(lambda: self._runs[purpose] >= times, timeout=30)

        assert await asyncio.to_thread(wait), f"{purpose} ran {self._runs[purpose]} times"


class FaultyLink:
    """See `storage.database.Link`."""

    def __init__(self, link: Link, faults: Faults) -> None:
        self._link = link
        self._faults = faults
        self.purpose = link.purpose

    async def run(self, op: Op[T]) -> T:
        return await self._run(self._link.run, op)

    async def run_atomic(self, op: Op[T]) -> T:
        return await self._run(self._link.run_atomic, op)

    async def close(self) -> None:
        await self._link.close()

    async def _run(self, run: Callable[[Op[T]], Any], op: Op[T]) -> T:
        self._faults.note(self.purpose)
        fault = self._faults.of(self.purpose)
        if fault is None:
            answer: T = await run(op)
            return answer
        if fault in ("after", "lost"):
            await run(op)
        if fault in ("hang", "lost"):
            await asyncio.Event().wait()
        raise DatabaseUnreachable(f"the {self.purpose} line was cut")


class FaultyDatabase:
    """See `storage.database.Database`; everything but its links is the real one's."""

    def __init__(self, database: Database, faults: Faults) -> None:
        self._database = database
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def link(
        self, purpose: str, statement_timeout_ms: int = 10_000, durable: bool = True
    ) -> FaultyLink:
        link = self._database.link(purpose, statement_timeout_ms, durable)
        return FaultyLink(link, self._faults)

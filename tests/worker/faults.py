"""What goes wrong on a worker's links: before a statement, after its commit, or in the middle for ever."""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from holdfast.core.errors import DatabaseUnreachable
from tests.support.until import PATIENCE_S

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
                return self._ran.wait_for(lambda: self._runs[purpose] >= times, timeout=PATIENCE_S)

        assert await asyncio.to_thread(wait), f"{purpose} ran {self._runs[purpose]} times"

    async def around(self, purpose: str, call: Callable[[], Awaitable[T]]) -> T:
        """Let a call go well or wrong."""
        self.note(purpose)
        fault = self.of(purpose)
        if fault is None:
            return await call()
        if fault in ("after", "lost"):
            answer = await call()
            if purpose == "claim" and not answer:
                return (
                    answer  # nothing was taken, so nothing is lost: a worker may look at any moment
                )
        if fault in ("hang", "lost"):
            await asyncio.Event().wait()
        raise DatabaseUnreachable(f"the {purpose} line was cut")

"""Time as the worker sees it, injected so that tests and the simulation move it themselves."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock, sleeping on it, and randomness for jitter."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    async def sleep(self, seconds: float) -> None:
        """Let that much time pass."""

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        """Wait for an event at most so long; say whether it came."""

    def random(self) -> float:
        """A number in [0, 1)."""


class SystemClock:
    """The real one."""

    monotonic = staticmethod(time.monotonic)
    random = staticmethod(random.random)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        if event.is_set():
            return True
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True

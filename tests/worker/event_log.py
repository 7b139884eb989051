"""An observer that remembers what it was told, and lets tests wait for it."""

import asyncio
import threading
from typing import Any

from holdfast.core.events import Event
from tests.support.until import PATIENCE_S


class EventLog:
    """Everything that workers told, in order; told from any thread, awaited on the test's loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._changed = asyncio.Event()
        self.events: list[Event] = []

    def observe(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed.set)

    def of(self, name: str, **fields: Any) -> list[Event]:
        """Return the events of a name that have these fields."""
        with self._lock:
            return [
                each
                for each in self.events
                if each.name == name and fields.items() <= each.fields.items()
            ]

    async def seen(self, name: str, count: int = 1, **fields: Any) -> list[Event]:
        """Wait until so many events of a name with these fields were told."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                self._changed.clear()
                found = self.of(name, **fields)
                if len(found) >= count:
                    return found
                await self._changed.wait()

"""The loops beside the worker's own, from the heartbeat to the watchdog. None of them needs a slot."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from holdfast.storage.database import Link


class Companion(Protocol):
    """A loop that ends when told to."""

    async def run(self) -> None: ...
    def stop(self) -> None: ...


class Companions:
    """Runs them together; one that fails takes the others down, so that the worker notices."""

    def __init__(self, loops: Sequence[Companion], links: Sequence[Link]) -> None:
        self._loops = loops
        self._links = links
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run until all have ended, then close their links. Raises: what ended one of them."""
        self._task = asyncio.current_task()
        try:
            async with asyncio.TaskGroup() as group:
                for each in self._loops:
                    group.create_task(each.run(), name=f"holdfast {type(each).__name__.lower()}")
        except* asyncio.CancelledError:
            pass
        finally:
            for link in self._links:
                await link.close()

    def stop(self) -> None:
        """Let each end its present work. Called on their own loop."""
        for each in self._loops:
            each.stop()

    def cancel(self) -> None:
        """End now. Called on their own loop."""
        if self._task is not None:
            self._task.cancel()

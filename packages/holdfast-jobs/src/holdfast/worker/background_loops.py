"""The loops beside the worker's own, from the heartbeat to the watchdog."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.storage.database import Link
from holdfast.worker.worker_context import WorkerContext


class BackgroundLoop:
    """A loop on the background thread; its methods are called on that thread."""

    def __init__(
        self, context: WorkerContext, link: Link, wake: asyncio.Event | None = None
    ) -> None:
        """`wake` has the next round begin now."""
        self._context = context
        self._link = link
        self._wake = wake or asyncio.Event()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Run until stopped."""
        raise NotImplementedError

    def stop(self) -> None:
        """End after the current round."""
        self._stopping.set()
        self._wake.set()


async def run_loops(loops: Sequence[BackgroundLoop], links: Sequence[Link]) -> None:
    """Run loops together until all have ended, then close their links.

    One that fails takes the others down, so that the worker notices. Raises: what ended it.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for each in loops:
                group.create_task(each.run(), name=f"holdfast {type(each).__name__.lower()}")
    except* asyncio.CancelledError:
        pass
    finally:
        for link in links:
            await link.close()

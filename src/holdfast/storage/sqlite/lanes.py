"""Threads for async transactions, one each: a statement that waits for the lock holds up neither loop nor neighbour."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

_KEEP = 4


class Lanes:
    """Threads lent to one transaction at a time; some idle ones are kept."""

    def __init__(self) -> None:
        self._idle: list[ThreadPoolExecutor] = []
        self._closed = False
        self._lock = threading.Lock()

    def take(self) -> ThreadPoolExecutor:
        """Lend a thread of its own to a transaction."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast transaction")

    def give(self, lane: ThreadPoolExecutor) -> None:
        """Take a thread back that has nothing left to do."""
        with self._lock:
            if not self._closed and len(self._idle) < _KEEP:
                self._idle.append(lane)
                return
        lane.shutdown(wait=False)

    def close(self) -> None:
        """End the idle threads, and the others when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for lane in idle:
            lane.shutdown()


async def outlast(future: asyncio.Future[None]) -> asyncio.CancelledError | None:
    """Wait for what must not be left half done; return the cancellation that came meanwhile, to be raised later."""
    cancellation = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancellation = error
    return cancellation

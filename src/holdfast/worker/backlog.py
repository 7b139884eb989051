"""Claimed attempts that no slot has taken yet. Small: a claim asks only for what will soon be started."""

from __future__ import annotations

import asyncio
from collections import deque

from holdfast.worker.attempt import Attempt


class Backlog:
    """A queue of attempts for long-lived slots; taking from a filled one costs no turn of the loop."""

    def __init__(self) -> None:
        self._attempts: deque[Attempt] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        return len(self._attempts)

    @property
    def idle_slots(self) -> int:
        """How many slots wait for work."""
        return sum(not each.done() for each in self._waiting)

    def put(self, attempts: list[Attempt]) -> None:
        """Add attempts; those with crashes go first, because they were claimed into a free slot.

        After `close` they stay here until `close` is called again: a claim's answer may come late.
        """
        for attempt in attempts:
            if attempt.claimed.crashes > 0:
                self._attempts.appendleft(attempt)
            else:
                self._attempts.append(attempt)
        self._wake(len(attempts))

    async def take(self) -> Attempt | None:
        """Wait for the next attempt; None when the backlog was closed."""
        while not self._attempts:
            if self._closed:
                return None
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                await future
            finally:
                if not future.done() or future.cancelled():
                    self._waiting = deque(each for each in self._waiting if each is not future)
        return self._attempts.popleft()

    def close(self) -> list[Attempt]:
        """Give out nothing more; return what was never started."""
        self._closed = True
        unstarted = list(self._attempts)
        self._attempts.clear()
        self._wake(len(self._waiting))
        return unstarted

    def take_of_type(self, name: str, count: int) -> list[Attempt]:
        """Take up to `count` further attempts of one type for a batch handler, without waiting."""
        taken: list[Attempt] = []
        if count <= 0:
            return taken
        kept: deque[Attempt] = deque()
        while self._attempts:
            attempt = self._attempts.popleft()
            if attempt.type.name == name and len(taken) < count:
                taken.append(attempt)
            else:
                kept.append(attempt)
        self._attempts = kept
        return taken

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1

"""Hints from the database for every open stream of this process: one listener, hints coalesced, none queued."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from holdfast.notify.base import Hint, Listener, Notifier

MIN_INTERVAL_S = 0.5
"""A stream sends hints at most this often."""

MAX_INTERVAL_S = 5.0
"""Without any hint a stream sends an empty one all the same: hints may be lost."""


class ChangeHint(msgspec.Struct, frozen=True):
    """What may have changed since the previous hint."""

    kinds: list[str]
    types: list[str]


class Subscriber:
    """One open stream; hints that arrive between two reads are merged."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()
        self._types: set[str] = set()
        self._arrived = asyncio.Event()

    def notify(self, hint: Hint) -> None:
        """Add a hint. Pages show nothing of waiters, so hints about them are ignored."""
        if hint.kind == "awaited":
            return
        self._kinds.add(hint.kind)
        if hint.type:
            self._types.add(hint.type)
        self._arrived.set()

    async def next_hint(self, within_s: float = MAX_INTERVAL_S) -> ChangeHint:
        """Wait for hints and return them merged; an empty one when none arrives in time."""
        try:
            async with asyncio.timeout(within_s):
                await self._arrived.wait()
        except TimeoutError:
            pass
        self._arrived.clear()
        merged = ChangeHint(sorted(self._kinds), sorted(self._types))
        self._kinds, self._types = set(), set()
        return merged


class Broadcaster:
    """The open streams of this process. The listener exists only while there are any."""

    def __init__(self, notifier: Callable[[], Notifier]) -> None:
        self._notifier = notifier
        self._subscribers: set[Subscriber] = set()
        self._listener: Listener | None = None
        self._closing = False

    @property
    def subscribers(self) -> int:
        """How many streams are open."""
        return len(self._subscribers)

    @property
    def is_closing(self) -> bool:
        """Whether streams should end because the process does."""
        return self._closing

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[Subscriber]:
        """Receive hints for as long as the block lasts."""
        subscriber = Subscriber()
        self._subscribers.add(subscriber)
        if self._listener is None:
            self._listener = self._listen(asyncio.get_running_loop())
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)
            if not self._subscribers:
                await self._stop_listening()

    def end_streams(self) -> None:
        """Let every stream end at its next turn."""
        self._closing = True
        self._notify(Hint("look"))

    async def close(self) -> None:
        """End all streams and stop listening."""
        self.end_streams()
        await self._stop_listening()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> Listener:
        def on_hint(hint: Hint) -> None:
            loop.call_soon_threadsafe(self._notify, hint)

        return self._notifier().listen(on_hint)

    def _notify(self, hint: Hint) -> None:
        for each in self._subscribers:
            each.notify(hint)

    async def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await asyncio.to_thread(listener.close)

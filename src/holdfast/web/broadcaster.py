"""The live stream: one ear for all who watch, hints coalesced, nothing kept for those who are slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from holdfast.notify.base import Hint, Listener, Notifier

SHORTEST_S = 0.5
"""Hints are told at most this often."""

LONGEST_S = 5.0
"""Without any hint the watcher is told to look all the same: hints may be lost."""


class News(msgspec.Struct, frozen=True):
    """What may have changed since the last news."""

    kinds: list[str]
    types: list[str]


class Watcher:
    """One who watches; hints that came meanwhile are merged."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()
        self._types: set[str] = set()
        self._came = asyncio.Event()

    def tell(self, hint: Hint) -> None:
        """Take a hint; that somebody waits changes nothing that a page shows."""
        if hint.kind == "awaited":
            return
        self._kinds.add(hint.kind)
        if hint.type:
            self._types.add(hint.type)
        self._came.set()

    async def news(self, longest_s: float = LONGEST_S) -> News:
        """Wait for hints, at most so long, and return what they said."""
        try:
            async with asyncio.timeout(longest_s):
                await self._came.wait()
        except TimeoutError:
            pass
        self._came.clear()
        found = News(sorted(self._kinds), sorted(self._types))
        self._kinds, self._types = set(), set()
        return found


class Live:
    """Everybody in this process who watches. The listener lives only while somebody does."""

    def __init__(self, notifier: Callable[[], Notifier]) -> None:
        self._notifier = notifier
        self._watchers: set[Watcher] = set()
        self._listener: Listener | None = None
        self._closing = asyncio.Event()

    @property
    def watchers(self) -> int:
        """How many watch now."""
        return len(self._watchers)

    @property
    def is_closing(self) -> bool:
        """Whether streams are to end, because the process does."""
        return self._closing.is_set()

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Watcher]:
        """Watch for as long as the block lasts."""
        watcher = Watcher()
        self._watchers.add(watcher)
        if self._listener is None:
            self._listener = self._listen(asyncio.get_running_loop())
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
            if not self._watchers:
                await self._hang_up()

    async def close(self) -> None:
        """End all streams and stop listening."""
        self._closing.set()
        for each in self._watchers:
            each.tell(Hint("look"))
        await self._hang_up()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> Listener:
        def on_hint(hint: Hint) -> None:
            loop.call_soon_threadsafe(self._tell, hint)

        return self._notifier().listen(on_hint)

    def _tell(self, hint: Hint) -> None:
        for each in self._watchers:
            each.tell(hint)

    async def _hang_up(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await asyncio.to_thread(listener.close)

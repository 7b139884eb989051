"""Gives back jobs that a claim took and nobody here knows of, because its answer was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holdfast.core.model import JobRef
from holdfast.storage.database import Link
from holdfast.worker.pace import Pace
from holdfast.worker.workplace import Workplace

PURPOSE = "reaper"


class Returns:
    """A loop that sleeps until there is something to give back; hosted by the heartbeat's thread."""

    def __init__(
        self, place: Workplace, link: Link, released: Callable[[Sequence[JobRef]], None]
    ) -> None:
        self._place = place
        self._link = link
        self._released = released
        self._pace = Pace(place.options)
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()

    def nudge(self) -> None:
        """Look soon. Called on its own loop."""
        self._wake.set()

    def stop(self) -> None:
        """End when nothing is left to give back. Called on its own loop."""
        self._stopping.set()
        self._wake.set()

    async def run(self) -> None:
        """Give back until told to stop; an unreachable database is tried again."""
        holdings = self._place.holdings
        while True:
            await self._wake.wait()
            self._wake.clear()
            while tokens := holdings.take_unanswered():
                if not await self._give_back(tokens):
                    await self._pause()
            if self._stopping.is_set():
                return

    async def _pause(self) -> None:
        """Wait before the next try; the word to end is a reason to try once more at once."""
        clock = self._place.clock
        seconds = self._pace.error_s(clock.random())
        if self._stopping.is_set():
            await clock.sleep(seconds)
        else:
            await clock.wait(self._stopping, seconds)

    async def _give_back(self, tokens: list[str]) -> bool:
        place = self._place
        try:
            released = await self._link.run(place.store.leases.release(tokens))
        except BaseException as error:
            place.holdings.unanswered(tokens)
            if not isinstance(error, Exception):
                raise
            place.trouble.note(PURPOSE, error)
            return False
        place.trouble.over(PURPOSE)
        self._pace.found(len(released))
        if released:
            self._released(released)
        return True

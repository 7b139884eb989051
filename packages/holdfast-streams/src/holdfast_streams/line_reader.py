"""Reading a line so that nothing is skipped and nothing is read before its turn.

Places of a line are drawn from its sequence, and transactions commit in any order. What is dense is read at once. At a
gap, the last place that was seen is remembered, and *then* the server is asked which transactions hold the sequence's
lock, which `nextval` takes and only the end of the transaction frees. Once those are gone, whatever is still missing up
to the remembered place was rolled back; newcomers draw later places and do not matter.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import msgspec

from holdfast.core.instants import Instant
from holdfast.storage.database import Link
from holdfast.worker.clock import Clock
from holdfast_streams.reader_store import LINES, READERS, LineHolder, LineToken, ReadBlock

FIRST_LOOK_S, MAX_LOOK_S = 0.005, 0.25
"""How soon to ask again whether transactions are over, at first and in the end."""

_PREPARED = "-1/"
"""What the name of a prepared transaction begins with in place of its session's."""


class HeldLine(msgspec.Struct):
    """A line that this process holds: under which token, until when by its own clock unless that is renewed, how far
    it is and on which server that was read, how many places it goes on one by one because processes may have died of
    one, and whether it is to stop.
    """

    token: LineToken
    position: int
    fence: int
    failures: int = 0
    until: float = math.inf
    careful: int = 0
    server: Instant | None = None
    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    @property
    def line(self) -> int:
        return self.token.line

    def move(self, position: int) -> None:
        """Note a position that was committed."""
        self.careful = max(0, self.careful - max(0, position - self.position))
        self.position, self.failures = position, 0

    @property
    def mark(self) -> str:
        """What the transactions of its handlers are marked with, so that they can be ended from outside."""
        return f"{self.token.reader}/{self.token.line}"


class Gap:
    """A gap in a line: the last place seen behind it, and the transactions that may still fill it."""

    def __init__(self, seen: int, holders: Sequence[LineHolder]) -> None:
        self.seen = seen
        self._servers = {each.server for each in holders}
        self._waits_for = {each.transaction for each in holders}
        self._prepared = _only_prepared(self._waits_for)

    def is_settled(self, holders: Sequence[LineHolder]) -> bool:
        """Say whether all that were waited for are over. One that was prepared meanwhile has another name."""
        if holders and {each.server for each in holders} != self._servers:
            # The server was restarted, or is another: who held the lock then holds nothing now.
            self._waits_for = {each.transaction for each in holders}
            self._servers = {each.server for each in holders}
        now = {each.transaction for each in holders}
        if self._waits_for - now:
            self._waits_for |= _only_prepared(now) - self._prepared
        self._prepared |= _only_prepared(now)
        self._waits_for &= now
        return not self._waits_for


def _only_prepared(transactions: set[str]) -> set[str]:
    return {each for each in transactions if each.startswith(_PREPARED)}


class LineReader:
    """Reads the lines of one process; what one reader knows to be rolled back, the others need not ask again."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._settled: dict[int, int] = {}

    async def read(self, held: HeldLine, limit: int) -> ReadBlock | None:
        """Return what may be delivered next, waiting at a gap; None when there is nothing, or the line was given up."""
        while not held.ended.is_set():
            found = await self._read(held, limit)
            if found.upto is not None or found.seen is None:
                return found
            await self._settle(held, found.seen)
        return None

    def forget(self) -> None:
        """Ask anew about every gap: the connection was lost, and the server may be another."""
        self._settled.clear()

    async def _read(self, held: HeldLine, limit: int) -> ReadBlock:
        token, settled = held.token, self._settled.get(held.line, 0)
        found = await self._link.run(
            LINES.read(token.reader, token.line, held.position, settled, limit)
        )
        held.server = found.server
        return found

    async def _settle(self, held: HeldLine, seen: int) -> None:
        """Wait until all that were drawing places when this one was seen are over."""
        holders = await self._link.run(READERS.holders(held.line))
        gap, pause_s = Gap(seen, holders), FIRST_LOOK_S
        while not gap.is_settled(holders):
            if await self._clock.wait(held.ended, pause_s):
                return
            pause_s = min(2 * pause_s, MAX_LOOK_S)
            holders = await self._link.run(READERS.holders(held.line))
        self._settled[held.line] = max(seen, self._settled.get(held.line, 0))

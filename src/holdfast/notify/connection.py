"""A line: one connection to a notification server, used from one event loop; a sender's use of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

from holdfast.notify.base import Hint
from holdfast.notify.encoding import encode

PUBLISH_TIMEOUT_S = 5.0


class Line(Protocol):
    """An open connection to a server. Every method may raise; the line is then given up."""

    async def publish(self, payloads: Sequence[str]) -> None:
        """Send payloads to all who subscribed, and return when the server has them."""

    async def subscribe(self) -> None:
        """Begin to receive payloads and this line's own echoes."""

    async def echo(self, payload: str) -> None:
        """Send a payload that only this line receives."""

    async def receive(self, timeout: float) -> Sequence[str]:
        """Return payloads as soon as there are any, none when the time is over."""

    async def close(self) -> None:
        """Give the connection up without waiting for the server."""


Purpose = Literal["hint sender", "hint listener"]
Dial = Callable[[Purpose], Awaitable[Line]]


def new_runner() -> asyncio.Runner:
    """An event loop for a thread of ours; psycopg needs a selector, which is not Windows' default."""
    return asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)


class LineOutlet:
    """See `sender.Outlet`. Between batches its loop stands still."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._runner = new_runner()
        self._line: Line | None = None

    def publish(self, hints: Sequence[Hint]) -> None:
        self._runner.run(self._publish(encode(hints)))

    def close(self) -> None:
        self._runner.run(self._hang_up())
        self._runner.close()

    async def _publish(self, payloads: list[str]) -> None:
        async with asyncio.timeout(PUBLISH_TIMEOUT_S):
            if self._line is not None and await self._delivered(self._line, payloads):
                return
            self._line = await self._dial("hint sender")
            try:
                await self._line.publish(payloads)
            except BaseException:
                await self._hang_up()
                raise

    async def _delivered(self, line: Line, payloads: list[str]) -> bool:
        """Use the line of the last batch, which may have died since then without our noticing."""
        try:
            await line.publish(payloads)
        except asyncio.CancelledError:
            await self._hang_up()
            raise
        except Exception:
            await self._hang_up()
            return False
        return True

    async def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.close()

"""Hints of one worker: what it tells the others, and what it hears from them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from holdfast.notify.base import ANY, Hint, Listener, Notifier
from holdfast.worker.background_loops import call_on

AWAITED_S = 60.0
"""Whoever waits says so again before this is over."""
_MOST_AWAITED = 10_000


class Awaited:
    """The chains somebody waits for. On the loop; while nobody waits it costs nothing."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._all_until = 0.0

    def __bool__(self) -> bool:
        return bool(self._until) or self._all_until > 0

    def add(self, ids: tuple[str, ...], now: float) -> None:
        """Remember chains for a while; without ids, or with too many, all of them."""
        self._until = {id: until for id, until in self._until.items() if until > now}
        if not ids or len(self._until) + len(ids) > _MOST_AWAITED:
            self._all_until = now + AWAITED_S
        self._until.update(dict.fromkeys(ids[:_MOST_AWAITED], now + AWAITED_S))

    def take(self, chain_id: str, now: float) -> bool:
        """Say whether somebody waits for a chain that has ended."""
        if self._all_until <= now:
            self._all_until = 0.0
        return self._until.pop(chain_id, 0.0) > now or self._all_until > now


class Hints:
    """A hint may be lost or doubled, so nothing here waits and nothing here raises."""

    def __init__(self, worker: str, notifier: Notifier | None) -> None:
        self._worker = worker
        self._notifier = notifier
        self._listener: Listener | None = None
        self._soon: dict[Hint, None] = {}
        self._awaited = Awaited()

    @property
    def are_alive(self) -> bool:
        """Whether hints are proven to arrive."""
        return self._listener is not None and self._listener.alive

    def listen(
        self, look: Callable[[str | None, bool], None], check_leases: Callable[[], None]
    ) -> None:
        """Call back on the running loop: `look` (for which type, from the start?) and `check_leases`."""
        if self._notifier is None:
            return
        loop = asyncio.get_running_loop()

        def hear(hint: Hint) -> None:
            match hint.kind:
                case "due" | "look":
                    look(None if hint.type == ANY else hint.type, hint.kind == "look")
                case "lost" if hint.worker in ("", self._worker):
                    check_leases()
                case "awaited":
                    self._awaited.add(hint.ids, loop.time())
                case _:
                    pass

        def on_hint(hint: Hint) -> None:
            call_on(loop, hear, hint)

        self._listener = self._notifier.listen(on_hint)

    async def close(self) -> None:
        """Listen no more, and send what waits; the notifier itself belongs to whoever made it."""
        self._flush()
        listener, self._listener = self._listener, None
        if listener is not None:
            await asyncio.to_thread(listener.close)

    def soon(self, hint: Hint) -> None:
        """Send a hint together with all others of this turn of the loop. On the loop."""
        if self._notifier is None:
            return
        if not self._soon:
            asyncio.get_running_loop().call_soon(self._flush)
        self._soon[hint] = None

    def ended(self, chain_id: str) -> None:
        """Tell those who wait that a chain has ended, if anybody does. On the loop."""
        if self._awaited and self._awaited.take(chain_id, asyncio.get_running_loop().time()):
            self.soon(Hint("ended", ids=(chain_id,)))

    def send(self, hints: Iterable[Hint]) -> None:
        """Send hints now. From any thread."""
        hints = list(hints)
        if self._notifier is not None and hints:
            self._notifier.send(hints)

    def _flush(self) -> None:
        hints, self._soon = list(self._soon), {}
        self.send(hints)

"""Hints of one worker: what it sends to other processes, and what it receives from them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from holdfast.notify.base import ANY, Hint, Listener, Notifier
from holdfast.worker.claimer import Claimer
from holdfast.worker.wakes import Wakes, call_on

AWAITED_S = 60.0
"""A waiting client repeats its hint before this is over."""
MAX_AWAITED = 10_000
"""With more, every chain counts as awaited."""


class AwaitedChains:
    """The chains that clients wait for. On the loop; costs nothing while none do."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._all_until = 0.0

    def __bool__(self) -> bool:
        return bool(self._until) or self._all_until > 0

    def has(self, chain_id: str) -> bool:
        """Whether a client may wait for a chain."""
        return self._all_until > 0 or chain_id in self._until

    def add(self, ids: tuple[str, ...], now: float) -> None:
        """Remember chains for a while; without ids, or with too many, all of them."""
        self._until = {id: until for id, until in self._until.items() if until > now}
        if not ids or len(self._until) + len(ids) > MAX_AWAITED:
            self._all_until = now + AWAITED_S
        else:
            self._until.update(dict.fromkeys(ids, now + AWAITED_S))

    def take(self, chain_id: str, now: float) -> bool:
        """Return whether a client waits for a chain that has ended, and forget it."""
        if self._all_until <= now:
            self._all_until = 0.0
        return self._until.pop(chain_id, 0.0) > now or self._all_until > now


class WorkerHints:
    """A hint may be lost or duplicated, so nothing here waits and nothing here raises."""

    def __init__(self, worker: str, notifier: Notifier | None) -> None:
        self._worker = worker
        self._notifier = notifier
        self._listener: Listener | None = None
        self._soon: dict[Hint, None] = {}
        self._awaited = AwaitedChains()

    @property
    def are_alive(self) -> bool:
        """Whether hints are proven to arrive."""
        return self._listener is not None and self._listener.alive

    def listen(self, claimer: Claimer, wakes: Wakes) -> None:
        """Have jobs claimed, redrives continued and leases checked when a hint says so."""
        if self._notifier is None:
            return
        loop = asyncio.get_running_loop()

        def handle(hint: Hint) -> None:
            match hint.kind:
                case "due" | "look":
                    claimer.hint(None if hint.type == ANY else hint.type, hint.kind == "look")
                    if hint.kind == "look":
                        # A redrive may have begun.
                        wakes.redrives.set_soon()
                        wakes.signals.set_soon()
                case "signal":
                    wakes.signals.set_soon()
                case "lost" if hint.worker in ("", self._worker):
                    wakes.heartbeat.set_soon()
                case "awaited":
                    self._awaited.add(hint.ids, loop.time())
                case _:
                    pass

        def on_hint(hint: Hint) -> None:
            call_on(loop, handle, hint)

        self._listener = self._notifier.listen(on_hint)

    async def close(self) -> None:
        """Stop listening, and send what waits; the notifier itself is not ours to close."""
        self._flush()
        listener, self._listener = self._listener, None
        if listener is not None:
            await asyncio.to_thread(listener.close)

    def send_soon(self, hint: Hint) -> None:
        """Send a hint together with all others of this turn of the loop. On the loop."""
        if self._notifier is None:
            return
        if not self._soon:
            asyncio.get_running_loop().call_soon(self._flush)
        self._soon[hint] = None

    def send_ended(self, chain_id: str) -> None:
        """Send that a chain has ended, if a client waits for it. On the loop."""
        if self._awaited and self._awaited.take(chain_id, asyncio.get_running_loop().time()):
            self.send_soon(Hint("ended", ids=(chain_id,)))

    def is_awaited(self, chain_id: str) -> bool:
        """Whether a client may wait for a chain. On the loop."""
        return self._awaited.has(chain_id)

    def send(self, hints: Iterable[Hint]) -> None:
        """Send hints now. From any thread."""
        hints = list(hints)
        if self._notifier is not None and hints:
            self._notifier.send(hints)

    def _flush(self) -> None:
        hints, self._soon = list(self._soon), {}
        self.send(hints)

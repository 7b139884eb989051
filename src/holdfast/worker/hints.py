"""Hints of one worker: what it tells the others, and what it hears from them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from holdfast.core.model import Reaped
from holdfast.notify.port import ANY, Hint, Listener, Notifier


class Hints:
    """A hint may be lost or doubled, so nothing here waits and nothing here raises."""

    def __init__(self, worker: str, notifier: Notifier | None) -> None:
        self._worker = worker
        self._notifier = notifier
        self._listener: Listener | None = None
        self._soon: dict[Hint, None] = {}

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
                case _:
                    pass

        def on_hint(hint: Hint) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(hear, hint)

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

    def send(self, hints: Iterable[Hint]) -> None:
        """Send hints now. From any thread."""
        hints = list(hints)
        if self._notifier is not None and hints:
            self._notifier.send(hints)

    def _flush(self) -> None:
        hints, self._soon = list(self._soon), {}
        self.send(hints)


def of_reaped(jobs: Iterable[Reaped]) -> list[Hint]:
    """What is worth telling of jobs that were taken back: they are due again, and their workers have lost them."""
    due = {each.type for each in jobs if each.state == "pending"}
    lost: dict[str, list[str]] = {}
    for each in jobs:
        lost.setdefault(each.worker, []).append(each.id)
    return [
        *(Hint("due", type) for type in sorted(due)),
        *(Hint("lost", worker=worker, ids=tuple(ids)) for worker, ids in lost.items()),
    ]

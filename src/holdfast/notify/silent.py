"""No notifications at all: workers find everything by polling."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.notify.port import Hint, Listener, OnHint, SendCounts


class SilentListener:
    """See `port.Listener`. Never hears anything."""

    alive = False
    reconnects = 0

    def wait_until_alive(self, timeout: float) -> bool:
        return False

    def close(self) -> None: ...


class SilentNotifier:
    """See `port.Notifier`. Sends nothing, and drops nothing that was promised."""

    counts = SendCounts()

    def send(self, hints: Sequence[Hint]) -> None: ...

    def listen(self, on_hint: OnHint) -> Listener:
        return SilentListener()

    def close(self) -> None: ...

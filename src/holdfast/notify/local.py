"""Hints inside one process.

No notifications at all: workers find everything by polling.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from holdfast.notify.base import Hint, Listener, OnHint, SendCounts, guarded
from holdfast.notify.sender import Pace
from holdfast.notify.server_notifier import OutletNotifier


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


class LocalListener:
    """See `port.Listener`. What is sent in this process arrives, so it is alive until closed."""

    reconnects = 0

    def __init__(self, hub: Hub, on_hint: OnHint) -> None:
        self._hub = hub
        self._on_hint = guarded(on_hint)
        self.alive = True
        hub.join(self._on_hint)

    def wait_until_alive(self, timeout: float) -> bool:
        return self.alive

    def close(self) -> None:
        self.alive = False
        self._hub.leave(self._on_hint)


class Hub:
    """The callbacks of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: tuple[OnHint, ...] = ()

    def join(self, on_hint: OnHint) -> None:
        """Let a callback hear from now on."""
        with self._lock:
            self._callbacks = (*self._callbacks, on_hint)

    def leave(self, on_hint: OnHint) -> None:
        """Let a callback hear no more."""
        with self._lock:
            self._callbacks = tuple(each for each in self._callbacks if each is not on_hint)

    def publish(self, hints: Sequence[Hint]) -> None:
        """Call everybody back."""
        for on_hint in self._callbacks:
            for hint in hints:
                on_hint(hint)

    def close(self) -> None:
        """Nothing to give up; see `sender.Outlet`."""


class LocalNotifier(OutletNotifier):
    """See `port.Notifier`. Notifiers that are given the same hub hear each other."""

    def __init__(self, hub: Hub | None = None, pace: Pace | None = None) -> None:
        shared = hub or Hub()
        super().__init__(lambda: shared, lambda on_hint: LocalListener(shared, on_hint), pace)

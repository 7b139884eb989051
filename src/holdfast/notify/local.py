"""Hints inside one process."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from holdfast.notify.callback import guarded
from holdfast.notify.outlet import OutletNotifier
from holdfast.notify.port import Hint, OnHint
from holdfast.notify.sender import Pace


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

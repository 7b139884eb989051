"""Hints inside one process, and the notifier that sends none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from holdfast.notify.base import Hint, Listener, OnHint, SendCounts, safe_callback
from holdfast.notify.sender import BufferedNotifier


class LocalListener:
    """A `Listener` for hints of this process, alive until closed."""

    reconnects = 0

    def __init__(self, hub: Hub, on_hint: OnHint) -> None:
        self._hub = hub
        self._on_hint = safe_callback(on_hint)
        self.alive = True
        hub.add(self._on_hint)

    def wait_until_alive(self, timeout: float) -> bool:
        return self.alive

    def close(self) -> None:
        self.alive = False
        self._hub.remove(self._on_hint)


class Hub:
    """The callbacks of one process; a `sender.Publisher`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: tuple[OnHint, ...] = ()

    @property
    def has_listeners(self) -> bool:
        """Whether anybody would be called."""
        return bool(self._callbacks)

    def add(self, on_hint: OnHint) -> None:
        """Add a callback."""
        with self._lock:
            self._callbacks = (*self._callbacks, on_hint)

    def remove(self, on_hint: OnHint) -> None:
        """Remove a callback."""
        with self._lock:
            self._callbacks = tuple(each for each in self._callbacks if each is not on_hint)

    def publish(self, hints: Sequence[Hint]) -> None:
        """Call every callback with every hint."""
        for on_hint in self._callbacks:
            for hint in hints:
                on_hint(hint)

    def close(self) -> None:
        """Do nothing: there is no connection."""


class LocalNotifier(BufferedNotifier):
    """A `Notifier` within the process; notifiers with the same hub receive each other's hints."""

    def __init__(
        self,
        hub: Hub | None = None,
        make_listener: Callable[[Hub, OnHint], Listener] = LocalListener,
    ) -> None:
        self._hub = shared = hub or Hub()
        super().__init__(lambda: shared, partial(make_listener, shared))

    def send(self, hints: Sequence[Hint]) -> None:
        """Send hints; where nobody listens, as in most processes that only start jobs, no thread is woken for them."""
        if self._hub.has_listeners or self._sender.is_closed:
            super().send(hints)


class NullListener:
    """A `Listener` that receives nothing."""

    alive = False
    reconnects = 0

    def wait_until_alive(self, timeout: float) -> bool:
        return False

    def close(self) -> None: ...


class NullNotifier:
    """A `Notifier` that sends nothing: workers find all jobs by polling."""

    counts = SendCounts()

    def send(self, hints: Sequence[Hint]) -> None: ...

    def listen(self, on_hint: OnHint) -> Listener:
        return NullListener()

    def close(self) -> None: ...

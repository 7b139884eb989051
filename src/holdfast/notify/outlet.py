"""The notifier that ours are: hints leave through one outlet, and each listener is made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.notify.port import Hint, Listener, OnHint, SendCounts
from holdfast.notify.sender import CoalescingSender, Outlet, Pace


class OutletNotifier:
    """See `port.Notifier`. It opens its outlet with the first hint and closes what it has made."""

    def __init__(
        self,
        make_outlet: Callable[[], Outlet],
        make_listener: Callable[[OnHint], Listener],
        pace: Pace | None = None,
    ) -> None:
        self._sender = CoalescingSender(make_outlet, pace)
        self._make_listener = make_listener
        self._listeners: list[Listener] = []

    @property
    def counts(self) -> SendCounts:
        return self._sender.counts

    def send(self, hints: Sequence[Hint]) -> None:
        self._sender.send(hints)

    def listen(self, on_hint: OnHint) -> Listener:
        listener = self._make_listener(on_hint)
        self._listeners.append(listener)
        return listener

    def close(self) -> None:
        self._sender.close()
        while self._listeners:
            self._listeners.pop().close()

"""The notifier over a server: one coalescing sender, and listeners with lines of their own."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.notify.line import Dial, LineOutlet
from holdfast.notify.listener import LineListener, Patience
from holdfast.notify.port import Hint, Listener, OnHint, SendCounts
from holdfast.notify.sender import CoalescingSender, Pace


class LineNotifier:
    """See `port.Notifier`. It connects when it is first used."""

    def __init__(
        self, dial: Dial, pace: Pace | None = None, patience: Patience | None = None
    ) -> None:
        self._dial = dial
        self._patience = patience
        self._sender = CoalescingSender(lambda: LineOutlet(dial), pace)
        self._listeners: list[Listener] = []

    @property
    def counts(self) -> SendCounts:
        return self._sender.counts

    def send(self, hints: Sequence[Hint]) -> None:
        self._sender.send(hints)

    def listen(self, on_hint: OnHint) -> Listener:
        listener = LineListener(self._dial, on_hint, self._patience)
        self._listeners.append(listener)
        return listener

    def close(self) -> None:
        self._sender.close()
        while self._listeners:
            self._listeners.pop().close()

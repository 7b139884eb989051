"""The notifier that ours are: hints leave through one outlet, and each listener is made when it is asked for.

The notifier over a server: batches leave over one line, and all listeners of a process hear over another.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from holdfast.notify.base import LOOK_EVERYWHERE, Hint, Listener, OnHint, SendCounts, guarded
from holdfast.notify.connection import Dial, LineOutlet
from holdfast.notify.listener import LineListener, Patience
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


class LineNotifier(OutletNotifier):
    """See `port.Notifier`. It connects when it is first used."""

    def __init__(
        self, dial: Dial, pace: Pace | None = None, patience: Patience | None = None
    ) -> None:
        ears = _Ears(lambda on_hint: LineListener(dial, on_hint, patience))
        super().__init__(lambda: LineOutlet(dial), ears.listen, pace)


class _Ears:
    """The listeners of one process. Their line is opened for the first of them and closed with the last.

    A worker, its schedules and its waiting callers each listen, and a server has only so many connections.
    """

    def __init__(self, open_line: Callable[[OnHint], LineListener]) -> None:
        self._open_line = open_line
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._ears: tuple[_Ear, ...] = ()
        self._line: LineListener | None = None

    def listen(self, on_hint: OnHint) -> _Ear:
        if os.getpid() != self._pid:
            # After a fork the thread that read the line is the parent's.
            self._begin()
        with self._lock:
            heard = guarded(on_hint)
            is_first = self._line is None
            if self._line is None:
                self._line = self._open_line(self._hear)
            ear = _Ear(heard, self._line, self._leave)
            self._ears = (*self._ears, ear)
        if not is_first:
            # What the line brought before was not for this one, as if it had been connected just now.
            heard(LOOK_EVERYWHERE)
        return ear

    def _hear(self, hint: Hint) -> None:
        # A line may be connected before the one that it was opened for is entered.
        with self._lock:
            ears = self._ears
        for ear in ears:
            ear.hear(hint)

    def _leave(self, ear: _Ear) -> None:
        with self._lock:
            self._ears = tuple(each for each in self._ears if each is not ear)
            if self._ears or self._line is not ear.line:
                return
            self._line = None
        ear.line.close()


class _Ear:
    """See `port.Listener`."""

    def __init__(self, hear: OnHint, line: LineListener, leave: Callable[[_Ear], None]) -> None:
        self.hear = hear
        self.line = line
        self._leave = leave
        self._reconnects = line.reconnects
        self._closed = False

    @property
    def alive(self) -> bool:
        return not self._closed and self.line.alive

    @property
    def reconnects(self) -> int:
        return self.line.reconnects - self._reconnects

    def wait_until_alive(self, timeout: float) -> bool:
        return self.line.wait_until_alive(timeout)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._leave(self)

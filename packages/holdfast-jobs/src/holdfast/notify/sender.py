"""Sends hints from one thread, started on demand: the first immediately, then at most one merged batch per window."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from weakref import WeakSet

import msgspec

from holdfast.notify.base import ANY, Hint, HintKind, Listener, OnHint, SendCounts

log = logging.getLogger("holdfast.notify")

TYPES_LIMIT = 2_000
WORKERS_LIMIT = 200
IDS_LIMIT = 5_000

# Ids in order of arrival; None means any.
_Ids = dict[str, None] | None


class PendingHints:
    """Hints to be sent, in order: duplicates merged, narrow ones covered by wider ones, never many.

    Not safe for several threads at once.
    """

    __slots__ = ("_chains", "_lost", "_types")

    def __init__(self) -> None:
        self._types: dict[str, HintKind] = {}
        self._lost: dict[str, _Ids] = {}
        self._chains: dict[HintKind, _Ids] = {}

    def __bool__(self) -> bool:
        return bool(self._types or self._lost or self._chains)

    def add(self, hints: Iterable[Hint]) -> None:
        """Merge hints into the pending ones."""
        for hint in hints:
            match hint.kind:
                case "due" | "look":
                    self._add_type(hint.kind, hint.type)
                case "lost":
                    self._add_lost(hint)
                case "ended" | "awaited" | "signal":
                    # Whoever routes signals routes all of them, whatever their names.
                    known = self._chains.get(hint.kind, {})
                    self._chains[hint.kind] = _merge_ids(known, hint.ids)

    def take(self) -> list[Hint]:
        """Return what is pending, and start over."""
        hints = [Hint(kind, type) for type, kind in self._types.items()]
        hints += [
            Hint("lost", worker=worker, ids=tuple(ids or ())) for worker, ids in self._lost.items()
        ]
        hints += [Hint(kind, ids=tuple(ids or ())) for kind, ids in self._chains.items()]
        self._types, self._lost, self._chains = {}, {}, {}
        return hints

    def _add_type(self, kind: HintKind, type: str) -> None:
        if self._types.get(ANY) in ("look", kind):
            return
        if (kind, type) == ("look", ANY) or len(self._types) >= TYPES_LIMIT:
            self._types = {ANY: "look"}
        elif type == ANY:
            looks = {known: kept for known, kept in self._types.items() if kept == "look"}
            self._types = {ANY: kind} | looks
        elif self._types.get(type) != "look":
            self._types[type] = kind

    def _add_lost(self, hint: Hint) -> None:
        if "" in self._lost:
            return
        if hint.worker == "" or (
            hint.worker not in self._lost and len(self._lost) >= WORKERS_LIMIT
        ):
            self._lost = {"": None}
            return
        self._lost[hint.worker] = _merge_ids(self._lost.get(hint.worker, {}), hint.ids)


def _merge_ids(known: _Ids, ids: tuple[str, ...]) -> _Ids:
    if known is None or not ids or len(known) + len(ids) > IDS_LIMIT:
        return None
    known.update(dict.fromkeys(ids))
    return known


WaitForBatch = Callable[[threading.Condition, float], object]


class Publisher(Protocol):
    """Where batches go; opened by its first batch and used by one thread only."""

    def publish(self, hints: Sequence[Hint]) -> None:
        """Send one batch, within a bounded time. Raises: anything, when it could not."""

    def close(self) -> None:
        """Close the connection."""


class SenderTimings(msgspec.Struct, frozen=True):
    """The window of a batch, how long an idle connection stays open, the longest retry delay and close."""

    window_s: float = 0.01
    idle_s: float = 5.0
    retry_cap_s: float = 5.0
    close_s: float = 1.0


class CoalescingSender:
    """Takes hints from any thread and publishes them in batches from its own.

    The thread starts with the first hint and ends, with its connection, after some idle time.
    Pending hints are sent at interpreter exit; a forked child starts with none.
    """

    _next_at: float

    def __init__(
        self,
        make_publisher: Callable[[], Publisher],
        timings: SenderTimings | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: WaitForBatch = threading.Condition.wait,
    ) -> None:
        self._make_publisher = make_publisher
        self._timings = timings or SenderTimings()
        self._clock = clock
        self._wait = wait
        self._closed = False
        self._batches = 0
        self._dropped = 0
        self._reset()
        _senders.add(self)
        atexit.register(self.close)

    @property
    def is_closed(self) -> bool:
        """Whether hints are only counted as dropped by now."""
        return self._closed

    @property
    def counts(self) -> SendCounts:
        """What was published and dropped so far."""
        return SendCounts(self._batches, self._dropped)

    def send(self, hints: Sequence[Hint]) -> None:
        """Queue hints; never waits and never raises."""
        if not hints:
            return
        with self._changed:
            if self._closed:
                self._dropped += len(hints)
                return
            is_first = not self._pending
            self._pending.add(hints)
            if not self._running:
                self._start()
            elif is_first:
                # While others wait for their turn the thread knows already when to wake.
                self._changed.notify()

    def take_turn(self) -> list[Hint] | None:
        """Have the caller publish a batch at once, and return what waits to be in it; None within the window."""
        with self._changed:
            now = self._clock()
            if self._closed or now < self._next_at:
                return None
            self._next_at = now + self._timings.window_s
            self._late_s = self._timings.window_s / 2
            self._batches += 1
            return self._pending.take()

    def close(self) -> None:
        """Send what is pending, within a bounded time, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._timings.close_s)
        atexit.unregister(self.close)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._pending = PendingHints()
        self._thread: threading.Thread | None = None
        self._running = False
        self._failures = 0
        self._next_at = self._clock()
        self._late_s = 0.0

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="holdfast hints", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The interpreter is ending, or the machine has no thread left; polling finds the jobs.
            self._dropped += len(self._pending.take())
            return
        self._thread, self._running = thread, True

    def _run(self) -> None:
        publisher: Publisher | None = None
        try:
            while batch := self._next_batch():
                publisher = self._publish(publisher, batch)
        finally:
            if publisher is not None:
                publisher.close()

    def _next_batch(self) -> list[Hint]:
        """Wait for the next batch that may go; an empty one ends the thread."""
        with self._changed:
            idle_at = self._clock() + self._timings.idle_s
            while True:
                now = self._clock()
                # Who took a batch along commits often, and may take the next one too.
                next_at = self._next_at + self._late_s
                if self._pending and (self._closed or now >= next_at):
                    self._late_s = 0.0
                    return self._pending.take()
                if not self._pending and (self._closed or now >= idle_at):
                    self._running = False
                    return []
                self._wait(self._changed, (next_at if self._pending else idle_at) - now)

    def _publish(self, publisher: Publisher | None, batch: list[Hint]) -> Publisher | None:
        """Publish a batch, or drop it; return the publisher once there is one."""
        started = self._clock()
        try:
            publisher = publisher or self._make_publisher()
            publisher.publish(batch)
        except Exception as error:
            self._dropped += len(batch)
            if self._failures == 0:
                reason = str(error) or repr(error)
                log.warning("hints are not being sent; workers find jobs by polling: %s", reason)
            self._failures += 1
            longer = self._timings.window_s * 2.0 ** min(self._failures, 30)
            self._next_at = self._clock() + min(self._timings.retry_cap_s, longer)
        else:
            self._batches += 1
            self._failures = 0
            self._next_at = started + self._timings.window_s
        return publisher


_senders: WeakSet[CoalescingSender] = WeakSet()


def _reset_in_child() -> None:
    # The parent's thread does not exist here, and its lock may have been held at the moment of the fork.
    for sender in _senders:
        sender._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)


class _OpenListener:
    """A `Listener` that its notifier forgets once it is closed: callers listen for a moment, again and again."""

    def __init__(self, listener: Listener, opened: set[_OpenListener]) -> None:
        self._listener = listener
        self._opened = opened
        opened.add(self)

    @property
    def alive(self) -> bool:
        return self in self._opened and self._listener.alive

    @property
    def reconnects(self) -> int:
        return self._listener.reconnects

    def wait_until_alive(self, timeout: float) -> bool:
        return self._listener.wait_until_alive(timeout)

    def close(self) -> None:
        self._opened.discard(self)
        self._listener.close()


class BufferedNotifier:
    """A `Notifier` made of a publisher, opened by the first hint, and of listeners, one per callback."""

    def __init__(
        self,
        make_publisher: Callable[[], Publisher],
        make_listener: Callable[[OnHint], Listener],
        timings: SenderTimings | None = None,
    ) -> None:
        self._sender = CoalescingSender(make_publisher, timings)
        self._make_listener = make_listener
        self._listeners: set[_OpenListener] = set()

    @property
    def counts(self) -> SendCounts:
        return self._sender.counts

    def send(self, hints: Sequence[Hint]) -> None:
        self._sender.send(hints)

    def take_turn(self) -> list[Hint] | None:
        """See `CoalescingSender.take_turn`."""
        return self._sender.take_turn()

    def listen(self, on_hint: OnHint) -> Listener:
        return _OpenListener(self._make_listener(on_hint), self._listeners)

    def close(self) -> None:
        self._sender.close()
        for listener in tuple(self._listeners):
            listener.close()

"""Sends hints from one lazy thread: the first at once, then at most one merged batch per window.

Hints that wait to be sent: duplicates merged, narrow ones swallowed by wider ones, never many.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakSet

from holdfast.notify.base import ANY, Hint, HintKind, SendCounts

TYPES_LIMIT = 2_000
WORKERS_LIMIT = 200
IDS_LIMIT = 5_000

# Ids in the order in which they came; None means any.
_Ids = dict[str, None] | None


class Pending:
    """Hints in the order in which they came. Not for several threads at once."""

    __slots__ = ("_awaited", "_ended", "_lost", "_types")

    def __init__(self) -> None:
        self._types: dict[str, HintKind] = {}
        self._lost: dict[str, _Ids] = {}
        self._ended: _Ids = {}
        self._awaited: _Ids = {}

    def __bool__(self) -> bool:
        chains = (self._ended, self._awaited)
        return bool(self._types or self._lost or any(each or each is None for each in chains))

    def add(self, hints: Iterable[Hint]) -> None:
        """Merge hints into those that wait."""
        for hint in hints:
            match hint.kind:
                case "due" | "look":
                    self._add_type(hint.kind, hint.type)
                case "lost":
                    self._add_lost(hint)
                case "ended":
                    self._ended = _merged(self._ended, hint.ids)
                case "awaited":
                    self._awaited = _merged(self._awaited, hint.ids)

    def take(self) -> list[Hint]:
        """Return what waits, and begin anew."""
        hints = [Hint(kind, type) for type, kind in self._types.items()]
        hints += [
            Hint("lost", worker=worker, ids=_listed(ids)) for worker, ids in self._lost.items()
        ]
        if self._ended is None or self._ended:
            hints.append(Hint("ended", ids=_listed(self._ended)))
        if self._awaited is None or self._awaited:
            hints.append(Hint("awaited", ids=_listed(self._awaited)))
        self._types, self._lost, self._ended, self._awaited = {}, {}, {}, {}
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
        self._lost[hint.worker] = _merged(self._lost.get(hint.worker, {}), hint.ids)


def _merged(known: _Ids, ids: tuple[str, ...]) -> _Ids:
    if known is None or not ids or len(known) + len(ids) > IDS_LIMIT:
        return None
    known.update(dict.fromkeys(ids))
    return known


def _listed(ids: _Ids) -> tuple[str, ...]:
    return () if ids is None else tuple(ids)


log = logging.getLogger("holdfast.notify")

Wait = Callable[[threading.Condition, float], object]


class Outlet(Protocol):
    """Where batches go; opened by its first batch and used by one thread only."""

    def publish(self, hints: Sequence[Hint]) -> None:
        """Send one batch, within a bounded time. Raises: anything, when it could not."""

    def close(self) -> None:
        """Give the connection up."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often batches go, how long an idle connection stays, how long failing and closing may take."""

    window_s: float = 0.01
    idle_s: float = 5.0
    retry_cap_s: float = 5.0
    close_s: float = 1.0


class CoalescingSender:
    """Takes hints from any thread and publishes them in batches from its own.

    The thread starts with the first hint and ends, with its connection, when none came for a while.
    Hints that wait are sent at interpreter exit; a forked child begins with nothing.
    """

    def __init__(
        self,
        make_outlet: Callable[[], Outlet],
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Wait = threading.Condition.wait,
    ) -> None:
        self._make_outlet = make_outlet
        self._pace = pace or Pace()
        self._clock = clock
        self._wait = wait
        self._closed = False
        self._batches = 0
        self._dropped = 0
        self._begin_anew()
        _senders.add(self)
        atexit.register(self.close)

    @property
    def counts(self) -> SendCounts:
        """What became of the hints sent so far."""
        return SendCounts(self._batches, self._dropped)

    def send(self, hints: Sequence[Hint]) -> None:
        """Hand hints over; never waits and never raises."""
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

    def close(self) -> None:
        """Send what waits, within a bounded time, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._pace.close_s)
        atexit.unregister(self.close)

    def _begin_anew(self) -> None:
        self._changed = threading.Condition()
        self._pending = Pending()
        self._thread: threading.Thread | None = None
        self._running = False
        self._failures = 0
        self._next_at = self._clock()

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
        outlet = self._make_outlet()
        try:
            while batch := self._next_batch():
                self._publish(outlet, batch)
        finally:
            outlet.close()

    def _next_batch(self) -> list[Hint]:
        """Wait for the next batch that may go; an empty one tells the thread to end."""
        with self._changed:
            idle_at = self._clock() + self._pace.idle_s
            while True:
                now = self._clock()
                if self._pending and (self._closed or now >= self._next_at):
                    return self._pending.take()
                if not self._pending and (self._closed or now >= idle_at):
                    self._running = False
                    return []
                self._wait(self._changed, (self._next_at if self._pending else idle_at) - now)

    def _publish(self, outlet: Outlet, batch: list[Hint]) -> None:
        started = self._clock()
        try:
            outlet.publish(batch)
        except Exception as error:
            self._dropped += len(batch)
            if self._failures == 0:
                reason = str(error) or repr(error)
                log.warning("hints are not sent, workers find jobs by polling: %s", reason)
            self._failures += 1
            longer = self._pace.window_s * 2.0 ** min(self._failures, 30)
            self._next_at = self._clock() + min(self._pace.retry_cap_s, longer)
        else:
            self._batches += 1
            self._failures = 0
            self._next_at = started + self._pace.window_s


_senders: WeakSet[CoalescingSender] = WeakSet()


def _begin_anew_in_child() -> None:
    # The parent's thread is not here, and its lock may have been held in the moment of the fork.
    for sender in _senders:
        sender._begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew_in_child)

"""What a process does where its server has no room for another connection of a caller's transaction.

Everything else gives way to it. A worker's links fold into one connection, which runs the statements of all of them one
at a time; hints are polled for; what lies unused in another pool is closed. That lasts while the server goes on
refusing, and a moment longer. A process that still cannot have both, a connection for its links and one for a
transaction, may rest: it gives up all it has, so that others have both, and comes back later (docs/adr/0021).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet

from holdfast.core.errors import NoConnection

SHORT_S = 30.0
"""How long after the last refusal a process gets by with fewer connections."""

FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 1.0
"""Between two questions for a connection: those who wait are given one that comes back in the meantime."""


class GivesWay(Protocol):
    """Something that holds connections which others may need more. Used from any thread."""

    def give_way(self, entirely: bool) -> None:
        """Close what can be done without; all of it, if the process is to rest. Does not wait."""


class Shortage:
    """Whether one server is short of connections for this process, and who gives way then. Used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: WeakSet[GivesWay] = WeakSet()
        self._until = 0.0
        self._paused_until = 0.0
        self._pause_s = 0.0
        self._is_asking = False
        self._refusal = NoConnection("the server has no room for another connection")
        self.ask_at = 0.0

    @property
    def is_on(self) -> bool:
        """Whether the server refused a connection a moment ago."""
        return time.monotonic() < self._until

    def add(self, holder: GivesWay) -> None:
        """Have something give way from now on."""
        with self._lock:
            self._holders.add(holder)

    def begin(self, asker: GivesWay | None = None) -> None:
        """Note that the server refused a connection, and have all others give way to the asker."""
        now = time.monotonic()
        with self._lock:
            self._until = now + SHORT_S
            self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), MAX_PAUSE_S)
            self.ask_at = now + self._pause_s * (0.5 + random.random() / 2)
        self._give_way(asker, entirely=False)

    @contextmanager
    def ask_server(self, asker: GivesWay) -> Iterator[None]:
        """Open a connection in this block: where the server is short, one at a time and after a pause. A refusal costs
        the server a process. Raises: NoConnection.
        """
        self.check_rest()
        with self._lock:
            is_short, last = self.is_on, self._refusal
            if is_short and (self._is_asking or time.monotonic() < self.ask_at):
                raise NoConnection(last.message, details=last.details, help=last.help)
            self._is_asking = self._is_asking or is_short
        try:
            yield
        except NoConnection as error:
            self._refusal = error
            self.begin(asker)
            raise
        finally:
            if is_short:
                self._is_asking = False
        self._pause_s = self.ask_at = 0.0

    def rest(self, seconds: float) -> None:
        """Give up every connection that nothing runs on, and open none for so long."""
        self._paused_until = time.monotonic() + seconds
        self._give_way(None, entirely=True)

    def check_rest(self) -> None:
        """Raises: NoConnection while the process rests."""
        left = self._paused_until - time.monotonic()
        if left > 0:
            raise NoConnection(
                "the server has no room for all workers; this one leaves its place to others "
                f"for {left:.1f} s"
            )

    def _give_way(self, asker: GivesWay | None, entirely: bool) -> None:
        with self._lock:
            holders = [each for each in self._holders if each is not asker]
        for each in holders:
            each.give_way(entirely)


_shortages: dict[str, Shortage] = {}
# What the parent holds is not the child's to close.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shortages.clear)


def shortage_of(url: str) -> Shortage:
    """The state of the server with this URL."""
    # Every claim asks, and making one costs more than the answer.
    return _shortages.get(url) or _shortages.setdefault(url, Shortage())

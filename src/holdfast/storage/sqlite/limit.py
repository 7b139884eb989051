"""Ends statements that run for too long."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

_STEPS_BETWEEN_LOOKS = 10_000
_NEVER = float("inf")


class Limit:
    """The end of the time that the statements on one connection have."""

    __slots__ = ("_ends_at",)

    def __init__(self) -> None:
        self._ends_at = _NEVER

    def __call__(self) -> bool:
        """Say whether SQLite should interrupt what it is doing."""
        return time.monotonic() > self._ends_at

    def allow(self, seconds: float | None) -> None:
        """Give what comes next this long, or as long as it takes."""
        self._ends_at = _NEVER if seconds is None else time.monotonic() + seconds


@contextmanager
def limited(connection: sqlite3.Connection) -> Iterator[Limit]:
    """Let a limit watch over a connection; it allows everything until it is told otherwise."""
    limit = Limit()
    connection.set_progress_handler(limit, _STEPS_BETWEEN_LOOKS)
    try:
        yield limit
    finally:
        connection.set_progress_handler(None, 0)

"""Waiting for the file's write lock: SQLite waits a moment, whoever needs it longer asks again up to a limit."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from holdfast.storage.sqlite.errors import is_busy, translate

T = TypeVar("T")

Monotonic = Callable[[], float]


class Patience:
    """How long one caller is ready to wait, counted from now."""

    __slots__ = ("_ends_at", "_monotonic")

    def __init__(self, limit_s: float, monotonic: Monotonic = time.monotonic) -> None:
        self._monotonic = monotonic
        self._ends_at = monotonic() + limit_s

    @property
    def is_over(self) -> bool:
        """Whether the caller should be told that the database is busy."""
        return self._monotonic() >= self._ends_at

    def end(self) -> None:
        """Wait no longer; from any thread."""
        self._ends_at = float("-inf")


def insist(action: Callable[[], T], patience: Patience) -> T:
    """Repeat an action while the database is locked. Raises: DatabaseBusy when the patience is over."""
    while True:
        try:
            return action()
        except sqlite3.Error as error:
            if not is_busy(error) or patience.is_over:
                raise translate(error) or error from error


def begin(connection: sqlite3.Connection, patience: Patience) -> None:
    """Begin a transaction that holds the write lock from the start, so that nothing it read can change."""
    insist(lambda: connection.execute("begin immediate"), patience)

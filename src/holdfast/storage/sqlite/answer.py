"""What a caller's own statement answered in an async transaction: a cursor whose rows have been fetched already."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from typing import Any


class Answer:
    """The rows and counts of one statement, read like an async cursor."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        """Fetch everything; in the thread that ran the statement."""
        self.description = cursor.description
        self.lastrowid = cursor.lastrowid
        self._rows: list[Any] = cursor.fetchall()
        # The count of a statement with RETURNING is known only once its rows have been read.
        self.rowcount = cursor.rowcount
        self._next = 0

    async def fetchone(self) -> Any:
        """The next row, or None after the last."""
        async for row in self:
            return row
        return None

    async def fetchall(self) -> list[Any]:
        """All rows that were not read yet."""
        return [row async for row in self]

    async def __aiter__(self) -> AsyncIterator[Any]:
        while self._next < len(self._rows):
            self._next += 1
            yield self._rows[self._next - 1]

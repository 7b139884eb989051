"""Connections of ours, and how it is noticed that a caller's statements changed what the next user would meet.

SQLite asks an authorizer at the compilation of every statement what it is about to do: that is its own reading of the
words, not ours. What has changed its session is closed rather than lent again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

_DATA = frozenset(
    (
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_UPDATE,
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_TRANSACTION,
        sqlite3.SQLITE_SAVEPOINT,
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_CREATE_INDEX,
        sqlite3.SQLITE_CREATE_VIEW,
        sqlite3.SQLITE_CREATE_TRIGGER,
        sqlite3.SQLITE_CREATE_VTABLE,
        sqlite3.SQLITE_DROP_TABLE,
        sqlite3.SQLITE_DROP_INDEX,
        sqlite3.SQLITE_DROP_VIEW,
        sqlite3.SQLITE_DROP_TRIGGER,
        sqlite3.SQLITE_DROP_VTABLE,
        sqlite3.SQLITE_ALTER_TABLE,
        sqlite3.SQLITE_REINDEX,
        sqlite3.SQLITE_ANALYZE,
    )
)


class OwnConnection(sqlite3.Connection):
    """A connection of ours; `is_changed` says that its session is no longer as we opened it."""

    is_changed: bool = False

    def watch(self) -> None:
        """Notice from now on what changes the session."""
        self.set_authorizer(self._allow)

    def _allow(
        self, action: int, name: str | None, value: str | None, schema: str | None, _: str | None
    ) -> int:
        is_data = action in _DATA and schema != "temp"
        is_question = action == sqlite3.SQLITE_PRAGMA and value is None
        if not is_data and not is_question:
            self.is_changed = True
        return sqlite3.SQLITE_OK


class LentCursor(sqlite3.Cursor):
    """What a caller's statement answers with; it tells when its connection is asked for."""

    def __init__(self, connection: OwnConnection, take: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connection)
        self.row_factory = connection.row_factory
        self._take = take

    @property
    def connection(self) -> sqlite3.Connection:
        return self._take()

"""SQLite's errors in Holdfast's words."""

from __future__ import annotations

import sqlite3

from holdfast.core.errors import (
    ConnectionClosed,
    DatabaseBusy,
    DatabaseReadOnly,
    DatabaseUnreachable,
    HoldfastError,
    WrongDatabase,
)

_PRIMARY = 0xFF
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_UNREACHABLE = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
}
_LET_WRITE = "connect without mode=ro, leave PRAGMA query_only off, and check that the file and its folder are writable"
_ONE_WRITER = (
    "try again, and keep transactions short: SQLite has one writer at a time, PostgreSQL many"
)
_CHECK_DISK = "check that the file and its folder are there, writable and not on a full disk"


def is_busy(error: BaseException) -> bool:
    """Whether another connection holds the lock that was needed."""
    return _code(error) in _BUSY


def translate(error: BaseException, statement: str = "") -> HoldfastError | None:
    """Return our error for SQLite's, or None when it is not ours to explain."""
    if isinstance(error, HoldfastError):
        return error
    code, text = _code(error), str(error)
    if code in _BUSY:
        waited = f"{statement or 'a statement'} had to wait too long: {text}"
        return DatabaseBusy(waited, help=_ONE_WRITER)
    if code == sqlite3.SQLITE_INTERRUPT:
        return DatabaseBusy(f"{statement or 'a statement'} took longer than it may")
    if code == sqlite3.SQLITE_READONLY:
        return DatabaseReadOnly(f"the database takes no writes: {text}", help=_LET_WRITE)
    if code in _UNREACHABLE:
        return DatabaseUnreachable(f"SQLite cannot use the file: {text}", help=_CHECK_DISK)
    if code == sqlite3.SQLITE_NOTADB:
        return WrongDatabase(
            f"this is no SQLite database: {text}", help="name another file, or move this one away"
        )
    if text.startswith("no such table: holdfast_"):
        return WrongDatabase(f"this database has no Holdfast schema: {text}")
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in text:
        return ConnectionClosed(text)
    return None


def _code(error: BaseException) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY

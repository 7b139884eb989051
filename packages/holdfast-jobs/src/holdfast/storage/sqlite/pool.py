"""Lends connections: several of one role for a file, the only one there is for a database in memory.

A file that was moved, deleted or replaced is not the one that was opened. And no connection of ours may be open while
the process forks: SQLite keeps its locks per process and file, so a child that inherited an open connection would count
the parent's locks as its own, also for connections that it opens itself. Every database closes its file before a fork,
and parent and child each open it anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from holdfast.core.errors import ConnectionClosed, DatabaseBusy, DatabaseUnreachable
from holdfast.storage.sqlite.connection import SqliteConnection

Open = Callable[[], SqliteConnection]
FileId = tuple[int, int]
"""A file, whatever it is called; no other has the same while it is open."""


class ConnectionSource(Protocol):
    """Lends connections, each to one user at a time."""

    def take(self, wait_s: float) -> SqliteConnection:
        """Lend a connection. Raises: ConnectionClosed, DatabaseBusy, DatabaseUnreachable."""

    def give(self, connection: SqliteConnection, broken: bool = False) -> None:
        """Take a connection back, without an open transaction."""

    def close(self) -> None:
        """Close what is not lent now, and the rest when it comes back."""

    def freeze(self) -> bool:
        """Close what is idle and lend nothing until `thaw`; return whether nothing is left open."""

    def thaw(self) -> None:
        """Lend again."""


class SqlitePool:
    """Connections to a file: idle ones are kept up to a number, others are opened as needed.

    What is written to a file that was moved or deleted is lost, so those to it are not lent any more.
    """

    def __init__(self, open: Open, keep: int, path: str) -> None:
        self._open = open
        self._keep = keep
        self._path = Path(path)
        self._file: FileId | None = None
        self._of_file: set[SqliteConnection] = set()
        self._idle: list[SqliteConnection] = []
        self._lent = 0
        self._closed = False
        self._lock = threading.Lock()

    def take(self, wait_s: float) -> SqliteConnection:
        with self._lock:
            if self._closed:
                raise ConnectionClosed("the database was closed")
            self._follow_file()
            self._lent += 1
            if self._idle:
                return self._idle.pop()
        try:
            connection = self._open()
        except BaseException:
            with self._lock:
                self._lent -= 1
            raise
        with self._lock:
            self._file = self._file or file_at(self._path)
            self._of_file.add(connection)
        return connection

    def give(self, connection: SqliteConnection, broken: bool = False) -> None:
        with self._lock:
            self._lent -= 1
            is_usable = not broken and not self._closed and connection in self._of_file
            if is_usable and len(self._idle) < self._keep:
                self._idle.append(connection)
                return
            self._of_file.discard(connection)
            # Not after the lock: a fork in between would find nothing lent, and the file still open.
            connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._close_idle()

    def freeze(self) -> bool:
        self._lock.acquire()
        self._close_idle()
        return self._lent == 0

    def thaw(self) -> None:
        self._lock.release()

    def _close_idle(self) -> None:
        while self._idle:
            connection = self._idle.pop()
            self._of_file.discard(connection)
            connection.close()

    def _follow_file(self) -> None:
        """Notice another file under our name. Raises: DatabaseUnreachable when there is none any more."""
        if self._file is None:
            return
        found = file_at(self._path)
        if found == self._file:
            return
        self._close_idle()
        self._of_file.clear()
        if found is None:
            # Opening it would make an empty one, and hide that the jobs are somewhere else.
            raise DatabaseUnreachable(f"the database file {self._path} is gone", help="put it back")
        self._file = found


class MemoryConnection:
    """The one connection to a database in memory, used in turn; where it has a name, another can take its place."""

    def __init__(self, open: Open, can_reopen: bool) -> None:
        self._open = open
        # The database lives as long as anything is connected to it.
        self._anchor = open() if can_reopen else None
        self._connection = open()
        self._closed = False
        self._in_use = threading.Lock()

    def take(self, wait_s: float) -> SqliteConnection:
        if not self._in_use.acquire(timeout=wait_s):
            raise DatabaseBusy("another transaction holds the database in memory")
        if self._closed:
            self._in_use.release()
            raise ConnectionClosed("the database was closed")
        return self._connection

    def give(self, connection: SqliteConnection, broken: bool = False) -> None:
        if self._closed:
            self._close()
        elif broken and self._anchor is not None:
            connection.close()
            self._connection = self._open()
        self._in_use.release()

    def close(self) -> None:
        self._closed = True
        if self._in_use.acquire(blocking=False):
            self._close()
            self._in_use.release()

    def _close(self) -> None:
        self._connection.close()
        if self._anchor is not None:
            self._anchor.close()

    def freeze(self) -> bool:
        # A database in memory has no locks that a child could mistake for its own; the child begins with an empty one.
        return True

    def thaw(self) -> None:
        pass


def file_at(path: Path) -> FileId | None:
    """Return the file of this name; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Forkable(Protocol):
    """Something that must not have the file open while the process forks."""

    def before_fork(self) -> None:
        """Close the file and do nothing until `after_fork_in_parent` or `after_fork_in_child`."""

    def after_fork_in_parent(self) -> None:
        """Go on."""

    def after_fork_in_child(self) -> None:
        """Begin anew."""


_alive: WeakSet[Forkable] = WeakSet()
_frozen: list[Forkable] = []


def watch_forks(each: Forkable) -> None:
    """Call a database before and after every fork for as long as it is in use."""
    _alive.add(each)


def _before() -> None:
    _frozen.extend(_alive)
    for each in _frozen:
        each.before_fork()


def _after_in_parent() -> None:
    while _frozen:
        _frozen.pop().after_fork_in_parent()


def _after_in_child() -> None:
    while _frozen:
        _frozen.pop().after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )

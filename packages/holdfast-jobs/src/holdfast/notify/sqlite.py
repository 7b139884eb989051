"""Hints on a SQLite file: sent directly within the process, and between processes by watching the file change."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from holdfast.notify.base import ANY, LOOK_EVERYWHERE, Hint, OnHint, safe_callback
from holdfast.notify.local import Hub, LocalListener, LocalNotifier
from holdfast.storage.sqlite.pool import FileId, file_at, watch_forks

WaitForPoll = Callable[[threading.Event, float], bool]

Version = tuple[int, int]
"""The count of openings and the `data_version` that SQLite reported, which is only comparable within an opening."""


class WatchTimings(msgspec.Struct, frozen=True):
    """How often the file is checked, and how often a change makes workers poll from the start.

    Where so many checks in a row found a change, a worker is busy, polls whenever jobs end, and needs the hints less.
    """

    active_s: float = 0.005
    busy_s: float = 0.02
    busy_after: int = 10
    idle_s: float = 0.05
    idle_after_s: float = 1.0
    look_every_s: float = 0.25
    retry_s: float = 1.0
    close_s: float = 5.0


class Changes:
    """Turns versions of a file into hints: `due` for each change, `look` at a limited rate.

    Commits of other processes cannot be distinguished from our own, and polling from the start is expensive,
    so only some changes ask for it; the last change of a burst always does.
    """

    def __init__(self, timings: WatchTimings) -> None:
        self._timings = timings
        self._version: Version | None = None
        self._changed_at = float("-inf")
        self._changes_in_a_row = 0
        self._looked_at = float("-inf")
        self._owes_look = False

    def notice(self, version: Version, now: float) -> Hint | None:
        """Return the hint for what was read, if any; the first reading is always worth a look."""
        changed = version != self._version
        self._version = version
        self._changes_in_a_row = self._changes_in_a_row + 1 if changed else 0
        if changed:
            self._changed_at = now
            self._owes_look = True
        if self._owes_look and now - self._looked_at >= self._timings.look_every_s:
            self._owes_look = False
            self._looked_at = now
            return LOOK_EVERYWHERE
        return Hint("due", ANY) if changed else None

    def pause(self, now: float) -> float:
        """Return the time until the next reading."""
        timings = self._timings
        if self._changes_in_a_row >= timings.busy_after:
            return timings.busy_s
        active = now - self._changed_at < timings.idle_after_s
        return timings.active_s if active else timings.idle_s


class FileVersion:
    """Reads the version of a file on a connection of its own, which is closed while the process forks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: FileId | None = None
        self._openings = 0
        watch_forks(self)

    def read(self) -> Version:
        """Return the version. Raises: sqlite3.Error, when there is no such file or no way to read it."""
        with self._lock:
            if self._file != file_at(self._path):
                # A connection to a file that was replaced would never see a change.
                self._disconnect()
            try:
                connection = self._connection or self._open()
                (version,) = connection.execute("pragma data_version").fetchone()
            except sqlite3.Error:
                self._disconnect()
                raise
            return self._openings, version

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._disconnect()

    def before_fork(self) -> None:
        self._lock.acquire()
        self._disconnect()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        self._lock.release()

    def _open(self) -> sqlite3.Connection:
        # Mode rw: a watcher must not create the file.
        address = f"{self._path.absolute().as_uri()}?mode=rw"
        self._file = file_at(self._path)
        self._connection = sqlite3.connect(address, timeout=0, uri=True, check_same_thread=False)
        self._openings += 1
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class FileWatcher:
    """Turns changes of a file into hints, from a thread of its own."""

    def __init__(
        self,
        path: Path,
        on_hint: OnHint,
        timings: WatchTimings | None = None,
        wait: WaitForPoll = threading.Event.wait,
    ) -> None:
        self._file = FileVersion(path)
        self._on_hint = safe_callback(on_hint)
        self._timings = timings or WatchTimings()
        self._changes = Changes(self._timings)
        self._wait = wait
        self._closing = threading.Event()
        self._readable = threading.Event()
        self._openings = 0
        self._thread = threading.Thread(target=self._run, name="holdfast watcher", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._readable.is_set() and self._thread.is_alive()

    @property
    def reconnects(self) -> int:
        return max(0, self._openings - 1)

    def wait_until_alive(self, timeout: float) -> bool:
        return self._readable.wait(timeout)

    def close(self) -> None:
        self._closing.set()
        if self._thread is not threading.current_thread():
            self._thread.join(self._timings.close_s)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wait(self._closing, self._check())
        self._file.close()

    def _check(self) -> float:
        """Check the file once and return the time until the next check."""
        try:
            version = self._file.read()
        except sqlite3.Error:
            # The file may not be there yet, or its disk may be gone for a while.
            self._on_lost()
            return self._timings.retry_s
        if not self._readable.is_set():
            self._openings += 1
            self._readable.set()
        now = time.monotonic()
        if hint := self._changes.notice(version, now):
            self._on_hint(hint)
        return self._changes.pause(now)

    def _on_lost(self) -> None:
        if self._readable.is_set():
            self._readable.clear()
            # Pollers that sleep long because hints would wake them must learn that none will.
            self._on_hint(LOOK_EVERYWHERE)


class FileListener(FileWatcher):
    """A `Listener` for hints of its own process and changes of the file."""

    def __init__(self, path: Path, hub: Hub, on_hint: OnHint) -> None:
        self._inside = LocalListener(hub, on_hint)
        super().__init__(path, on_hint)

    def close(self) -> None:
        self._inside.close()
        super().close()


class SqliteNotifier(LocalNotifier):
    """A `Notifier` whose hints arrive in this process; other processes see the file change."""

    def __init__(self, path: Path) -> None:
        # As the database does: a relative path would be another one once the process changes its folder.
        self.path = path.absolute()
        super().__init__(make_listener=partial(FileListener, self.path))

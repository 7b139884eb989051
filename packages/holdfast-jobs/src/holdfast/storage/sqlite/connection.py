"""Opens connections to one SQLite database, bounds how long they wait and run, and puts SQLite's errors in our words.

It refuses network file systems, whose locks and shared memory do not keep SQLite's promises. SQLite asks an authorizer
at the compilation of every statement what it is about to do: that is its own reading of the words, not ours. A
connection whose session a caller's statement has changed is closed rather than lent again.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal, TypeVar
from uuid import uuid4

from holdfast.core.errors import (
    ConfigError,
    ConnectionClosed,
    DatabaseBusy,
    DatabaseReadOnly,
    DatabaseUnreachable,
    HoldfastError,
    UnusableUrl,
    WrongDatabase,
)

T = TypeVar("T")
MEMORY = ":memory:"
OLDEST_SQLITE = (3, 35, 0)

# From here on a database in memory can have a name, by which several connections of a process reach it.
_NAMED_MEMORY = (3, 36, 0)
_IN_MEMORY = "file:/holdfast-"
Synchronous = Literal["FULL", "NORMAL"]
_SYNCHRONOUS = {"FULL": "pragma synchronous = full", "NORMAL": "pragma synchronous = normal"}
_CACHED_STATEMENTS = 256

# SQLite itself waits this long for the write lock before we look at the callers' own limits and ask again.
LOCK_WAIT_S = 0.01


@dataclass(frozen=True, slots=True)
class SqliteOptions:
    """Which database, and how it is to be opened."""

    path: str
    synchronous: Synchronous = "FULL"
    busy_timeout_ms: int = 5000

    def __post_init__(self) -> None:
        if self.synchronous not in _SYNCHRONOUS:
            raise ConfigError(f"synchronous is FULL or NORMAL, not {self.synchronous}")
        if self.busy_timeout_ms < 0:
            raise ConfigError(f"the busy timeout cannot be {self.busy_timeout_ms} ms")

    @property
    def is_in_memory(self) -> bool:
        """Whether the database lives and dies with its connections."""
        return self.path == MEMORY or self.is_named_memory

    @property
    def is_named_memory(self) -> bool:
        """Whether it is in memory and outlives any one of its connections."""
        return self.path.startswith(_IN_MEMORY)

    @property
    def lock_wait(self) -> LockWait:
        """How long a caller that begins now waits for the lock."""
        return LockWait(self.busy_timeout_ms / 1000)


def open_writer(options: SqliteOptions) -> SqliteConnection:
    """Open a connection that may write; it waits only a moment for the lock, so its user asks again."""
    return _open(options, LOCK_WAIT_S)


def open_for_callers(options: SqliteOptions) -> SqliteConnection:
    """Open a connection that is lent to callers: it notices what their statements change about it."""
    connection = _open(options, LOCK_WAIT_S)
    connection.watch_changes()
    return connection


def open_reader(options: SqliteOptions) -> SqliteConnection:
    """Open a connection that cannot write; in WAL mode it waits for nobody."""
    connection = _open(options, options.busy_timeout_ms / 1000)
    connection.execute("pragma query_only = on")
    return connection


def _open(options: SqliteOptions, wait_s: float) -> SqliteConnection:
    try:
        connection = sqlite3.connect(
            options.path,
            timeout=wait_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_CACHED_STATEMENTS,
            factory=SqliteConnection,
            uri=options.is_named_memory,
        )
    except sqlite3.Error as error:
        raise _with_file(translate(error), options) or error from error
    try:
        _prepare(connection, options)
    except BaseException as error:
        connection.close()
        raise _with_file(error, options) or error from error.__cause__
    return connection


def _with_file(error: BaseException | None, options: SqliteOptions) -> DatabaseUnreachable | None:
    """Return the error with the file that could not be opened: a relative path may not be the one that was meant."""
    if not isinstance(error, DatabaseUnreachable):
        return None
    return DatabaseUnreachable(
        f"{error.message} ({Path(options.path).absolute()})", help=error.help
    )


def _prepare(connection: sqlite3.Connection, options: SqliteOptions) -> None:
    if not options.is_in_memory:
        use_wal = "pragma journal_mode = wal"
        mode = retry_while_locked(
            lambda: connection.execute(use_wal).fetchone()[0], options.lock_wait
        )
        if mode != "wal":
            raise UnusableUrl(f"{options.path} cannot be used in WAL mode; its journal is {mode}")
    connection.execute(_SYNCHRONOUS[options.synchronous])
    connection.execute("pragma foreign_keys = off")
    connection.execute("pragma temp_store = memory")


def check_version(version: tuple[int, int, int] = sqlite3.sqlite_version_info) -> None:
    """Refuse a SQLite that lacks what our statements need."""
    if version < OLDEST_SQLITE:
        found, needed = (".".join(map(str, each)) for each in (version, OLDEST_SQLITE))
        raise ConfigError(
            f"this Python comes with SQLite {found}; {needed} or newer is needed",
            help="use a Python built with a newer SQLite, or PostgreSQL",
        )


def name_memory(options: SqliteOptions) -> SqliteOptions:
    """Give a new database in memory a name, where SQLite can."""
    if sqlite3.sqlite_version_info < _NAMED_MEMORY:
        return options
    return replace(options, path=f"{_IN_MEMORY}{uuid4()}?vfs=memdb")


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


class SqliteConnection(sqlite3.Connection):
    """A connection; `is_changed` says that its session is no longer as we opened it."""

    is_changed: bool = False

    def watch_changes(self) -> None:
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


class SqliteCallerCursor(sqlite3.Cursor):
    """The cursor of a caller's own statement; it notices when the caller takes its connection."""

    def __init__(
        self, connection: SqliteConnection, take: Callable[[], sqlite3.Connection]
    ) -> None:
        super().__init__(connection)
        self.row_factory = connection.row_factory
        self._take = take

    @property
    def connection(self) -> sqlite3.Connection:
        return self._take()


class LockWait:
    """How long one caller waits for the file's write lock, counted from now.

    SQLite itself waits only a moment; within this limit it is asked again.
    """

    __slots__ = ("_ends_at",)

    def __init__(self, limit_s: float) -> None:
        self._ends_at = time.monotonic() + limit_s

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._ends_at

    def end(self) -> None:
        """Wait no longer; from any thread."""
        self._ends_at = float("-inf")


def retry_while_locked(action: Callable[[], T], lock_wait: LockWait) -> T:
    """Repeat an action while the database is locked. Raises: DatabaseBusy when the time is up."""
    while True:
        try:
            return action()
        except sqlite3.Error as error:
            if not is_busy(error) or lock_wait.is_over:
                raise translate(error) or error from error


def begin(connection: sqlite3.Connection, lock_wait: LockWait) -> None:
    """Begin a transaction that holds the write lock from the start, so that nothing it read can change."""
    retry_while_locked(lambda: connection.execute("begin immediate"), lock_wait)


_STEPS_BETWEEN_LOOKS = 100_000
"""Each look waits for the interpreter, which runs handlers meanwhile; so many steps take a few milliseconds."""
_NEVER = float("inf")


class StatementTimeout:
    """Until when the statements of one connection may run."""

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
def statement_timeout(connection: sqlite3.Connection) -> Iterator[StatementTimeout]:
    """Bound the statements of a connection; there is no limit until `allow` sets one."""
    timeout = StatementTimeout()
    connection.set_progress_handler(timeout, _STEPS_BETWEEN_LOOKS)
    try:
        yield timeout
    finally:
        connection.set_progress_handler(None, 0)


MOUNTS = Path("/proc/self/mounts")
_NETWORK = frozenset(
    {
        *("9p", "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
        *("glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs", "vboxsf"),
    }
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def read_mounts() -> str:
    """The mounts of this process as the system lists them; nothing where it keeps no such list."""
    try:
        return MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def refuse_network_mount(path: Path, mounts: str) -> None:
    """Raise UnusableUrl when the file lies, or would lie, on a network file system."""
    kind = _file_system_of(PurePosixPath(path.resolve()), mounts)
    if kind in _NETWORK:
        raise UnusableUrl(
            f"{path} is on a network file system ({kind})",
            help="put the file on a local disk, or use PostgreSQL",
        )


def _file_system_of(path: PurePosixPath, mounts: str) -> str | None:
    """The type of the mount that holds the path: the deepest one, and of those the latest."""
    depth, kind = -1, None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = PurePosixPath(_OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        if path.is_relative_to(point) and len(point.parts) >= depth:
            depth, kind = len(point.parts), fields[2]
    return kind


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
_RESTORE = (
    "stop its processes, then restore a backup, or save what can be read: sqlite3 FILE .recover"
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
        waited = f"{statement or 'a statement'} waited too long: {text}"
        return DatabaseBusy(waited, help=_ONE_WRITER)
    if code == sqlite3.SQLITE_INTERRUPT:
        return DatabaseBusy(f"{statement or 'a statement'} exceeded its time limit")
    if code == sqlite3.SQLITE_READONLY:
        return DatabaseReadOnly(f"the database is read-only: {text}", help=_LET_WRITE)
    if code in _UNREACHABLE:
        help = _RESTORE if code == sqlite3.SQLITE_CORRUPT else _CHECK_DISK
        return DatabaseUnreachable(f"SQLite cannot use the file: {text}", help=help)
    if code == sqlite3.SQLITE_NOTADB:
        return WrongDatabase(
            f"this is not a SQLite database: {text}", help="use another file, or move this one away"
        )
    if text.startswith("no such table: holdfast_"):
        return WrongDatabase(f"this database has no Holdfast schema: {text}")
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in text:
        return ConnectionClosed(text)
    return None


def _code(error: BaseException) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY

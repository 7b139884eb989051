"""Opens connections to one SQLite database and checks that it can keep our promises."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace
from typing import Literal
from uuid import uuid4

from holdfast.core.errors import ConfigError, UnusableUrl
from holdfast.storage.sqlite.errors import translate
from holdfast.storage.sqlite.lent import OwnConnection
from holdfast.storage.sqlite.patience import Patience, insist

MEMORY = ":memory:"
OLDEST_SQLITE = (3, 35, 0)

# From here on a database in memory can have a name, by which several connections of a process reach it.
_NAMED_MEMORY = (3, 36, 0)
_IN_MEMORY = "file:/holdfast-"

Synchronous = Literal["FULL", "NORMAL"]

# SQLite itself waits this long for the write lock before we look at the callers' own limits and ask again.
LOCK_WAIT_S = 0.01

_SYNCHRONOUS = {"FULL": "pragma synchronous = full", "NORMAL": "pragma synchronous = normal"}
_CACHED_STATEMENTS = 256


@dataclass(frozen=True, slots=True)
class Target:
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
    def in_memory(self) -> bool:
        """Whether the database lives and dies with its connections."""
        return self.path == MEMORY or self.is_named_memory

    @property
    def is_named_memory(self) -> bool:
        """Whether it is in memory and outlives any one of its connections."""
        return self.path.startswith(_IN_MEMORY)

    @property
    def patience(self) -> Patience:
        """How long whoever begins now waits for the lock."""
        return Patience(self.busy_timeout_ms / 1000)


def check_version(version: tuple[int, int, int] = sqlite3.sqlite_version_info) -> None:
    """Refuse a SQLite that lacks what our statements need."""
    if version < OLDEST_SQLITE:
        found, needed = (".".join(map(str, each)) for each in (version, OLDEST_SQLITE))
        raise ConfigError(
            f"this Python comes with SQLite {found}; {needed} or newer is needed",
            help="use a Python built with a newer SQLite, or PostgreSQL",
        )


def named(target: Target) -> Target:
    """Give a new database in memory a name, where SQLite can."""
    if sqlite3.sqlite_version_info < _NAMED_MEMORY:
        return target
    return replace(target, path=f"{_IN_MEMORY}{uuid4()}?vfs=memdb")


def open_writer(target: Target) -> OwnConnection:
    """Open a connection that may write; it waits only a moment for the lock, so its user asks again."""
    return _open(target, LOCK_WAIT_S)


def open_lent(target: Target) -> OwnConnection:
    """Open a connection that is lent to callers: it notices what their statements change about it."""
    connection = _open(target, LOCK_WAIT_S)
    connection.watch()
    return connection


def open_reader(target: Target) -> OwnConnection:
    """Open a connection that cannot write; in WAL mode it waits for nobody."""
    connection = _open(target, target.busy_timeout_ms / 1000)
    connection.execute("pragma query_only = on")
    return connection


def _open(target: Target, wait_s: float) -> OwnConnection:
    try:
        connection = sqlite3.connect(
            target.path,
            timeout=wait_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_CACHED_STATEMENTS,
            factory=OwnConnection,
            uri=target.is_named_memory,
        )
    except sqlite3.Error as error:
        raise translate(error) or error from error
    try:
        _prepare(connection, target)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, target: Target) -> None:
    if not target.in_memory:
        use_wal = "pragma journal_mode = wal"
        mode = insist(lambda: connection.execute(use_wal).fetchone()[0], target.patience)
        if mode != "wal":
            raise UnusableUrl(f"{target.path} cannot be used in WAL mode; its journal is {mode}")
    connection.execute(_SYNCHRONOUS[target.synchronous])
    connection.execute("pragma foreign_keys = off")
    connection.execute("pragma temp_store = memory")

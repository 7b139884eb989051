"""Rows of a database of either kind, planted and compared as plain values."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg import sql

from holdfast import Holdfast
from holdfast.storage.operation import Op, Statement

T = TypeVar("T")
Row = dict[str, Any]
Rows = dict[tuple[Any, ...], Row]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
IMPATIENT = "?options=-c%20lock_timeout%3D200ms"
"""At the end of an address of PostgreSQL: who waits for a lock is refused."""
WAITING = (
    "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
)
_INSTANTS = ("at", "blocked_since", "slot", "last_slot", "rests_until", "until")


def id_of(number: int) -> str:
    """An id that is told from others by its number."""
    return f"00000000-0000-7000-8000-{number:012d}"


class Tables:
    """Tables by their names without prefix. Instants are microseconds in both databases, ids are text."""

    def __init__(self, url: str) -> None:
        self.is_postgres = url.startswith("postgres")
        # On a connection of its own: what it reads is committed.
        if self.is_postgres:
            self._connection: Any = psycopg.connect(url, autocommit=True)
        else:
            path = url.removeprefix("sqlite:///")
            self._connection = sqlite3.connect(path, isolation_level=None)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def plant(self, table: str, *rows: Mapping[str, Any]) -> None:
        """Insert rows."""
        for row in rows:
            names = list(row)
            if self.is_postgres:
                text: Any = sql.SQL("insert into {} ({}) values ({})").format(
                    sql.Identifier("holdfast", table),
                    sql.SQL(", ").join(map(sql.Identifier, names)),
                    sql.SQL(", ").join([sql.Placeholder()] * len(names)),
                )
            else:
                marks = ", ".join("?" * len(names))
                text = f"insert into holdfast_{table} ({', '.join(names)}) values ({marks})"  # noqa: S608
            self._execute(text, [self._stored(table, name, row[name]) for name in names])

    def execute(self, postgres: str, sqlite: str) -> None:
        """Run a statement that each database has its own words for."""
        self._execute(postgres if self.is_postgres else sqlite, [])

    def head(self, line: int, place: int) -> None:
        """Let a line of the log end at a place."""
        self.execute(
            f"select setval('holdfast.log_line_{line}', {max(place, 1)}, {place > 0})",
            f"update holdfast_log_line set place = {place} where line = {line}",  # noqa: S608
        )

    def someone_waits(self) -> bool:
        """Whether somebody waits for a lock in this database of PostgreSQL."""
        return bool(self._execute(WAITING, []))

    def rows(self, table: str, *key: str) -> Rows:
        """Read a table, by its key."""
        if self.is_postgres:
            text: Any = sql.SQL("select * from {}").format(sql.Identifier("holdfast", table))
        else:
            text = f"select * from holdfast_{table}"  # noqa: S608
        found = [
            {name: _plain(value) for name, value in row.items()} for row in self._execute(text, [])
        ]
        return {tuple(row[name] for name in key): row for row in found}

    def changes(
        self, table: str, key: Sequence[str], run: Callable[[], T]
    ) -> tuple[T, dict[tuple[Any, ...], Row | None]]:
        """Run something; return its answer, and what it changed: new values by key, None for rows that are gone."""
        before = self.rows(table, *key)
        result = run()
        after = self.rows(table, *key)
        found: dict[tuple[Any, ...], Row | None] = dict.fromkeys(before.keys() - after)
        for each, row in after.items():
            old = before.get(each, {})
            new = {name: value for name, value in row.items() if old.get(name, ...) != value}
            if new:
                found[each] = new
        return result, found

    def _stored(self, table: str, name: str, value: Any) -> Any:
        is_instant = (name.endswith("_at") or name in _INSTANTS) and table != "charge"
        if self.is_postgres and is_instant and isinstance(value, int):
            return EPOCH + timedelta(microseconds=value)
        return value

    def _execute(self, text: Any, values: Sequence[Any]) -> list[Row]:
        cursor = self._connection.execute(text, values)
        if cursor.description is None:
            return []
        names = [each[0] for each in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    return str(value) if isinstance(value, UUID) else value


def one(name: str, /, **params: Any) -> Op[list[tuple[Any, ...]]]:
    """An operation of one statement that returns its rows."""
    return (yield Statement(name, params))


class Planted(Tables):
    """Tables with rows that nobody made by an operation, and an application that reads them."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.app = Holdfast(url)

    def close(self) -> None:
        """Close the application and the connection."""
        self.app.close()
        super().close()

    def run(self, op: Op[T]) -> T:
        return self.app.database.run(op)

    def ask(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]:
        """The rows of one statement."""
        return [tuple(row) for row in self.run(one(name, **params))]


@contextmanager
def row_lock(url: str, table: str, **row: object) -> Iterator[None]:
    """Hold the lock of a row in PostgreSQL, in a transaction of somebody else."""
    with psycopg.connect(url) as connection:
        _lock(connection, table, row)
        yield
        connection.rollback()


def is_locked(url: str, table: str, **row: object) -> bool:
    """Whether somebody else holds the lock of a row in PostgreSQL."""
    with psycopg.connect(url) as connection:
        try:
            _lock(connection, table, row)
        except psycopg.errors.LockNotAvailable:
            return True
        return False


def _lock(connection: psycopg.Connection, table: str, row: Mapping[str, object]) -> None:
    same = [sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder()) for name in row]
    text = sql.SQL("select 1 from {} where {} for update nowait").format(
        sql.Identifier("holdfast", table), sql.SQL(" and ").join(same)
    )
    assert connection.execute(text, list(row.values())).fetchone()

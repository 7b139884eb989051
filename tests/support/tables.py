"""Rows of a database of either kind, planted and compared as plain values."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg import sql

from holdfast.storage.operation import Op, Statement

T = TypeVar("T")
Row = dict[str, Any]
Rows = dict[tuple[Any, ...], Row]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANTS = ("at", "blocked_since", "slot", "last_slot")


def id_of(number: int) -> str:
    """An id that is told from others by its number."""
    return f"00000000-0000-7000-8000-{number:012d}"


class Tables:
    """Tables by their names without prefix. Instants are microseconds in both databases, ids are text."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_postgres = url.startswith("postgres")

    def plant(self, table: str, *rows: Mapping[str, Any]) -> None:
        """Insert rows."""
        for row in rows:
            names = list(row)
            if self._is_postgres:
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
        self._execute(postgres if self._is_postgres else sqlite, [])

    def rows(self, table: str, *key: str) -> Rows:
        """Read a table, by its key."""
        if self._is_postgres:
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
        if self._is_postgres and is_instant and value is not None:
            return EPOCH + timedelta(microseconds=value)
        return value

    def _execute(self, text: Any, values: Sequence[Any]) -> list[Row]:
        if self._is_postgres:
            with psycopg.connect(self._url, autocommit=True) as connection:
                cursor: Any = connection.execute(text, values)
                names = [each.name for each in cursor.description or ()]
                return [dict(zip(names, row, strict=True)) for row in cursor] if names else []
        path = self._url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            file.row_factory = sqlite3.Row
            return [dict(row) for row in file.execute(text, values)]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    return str(value) if isinstance(value, UUID) else value


def one(name: str, /, **params: Any) -> Op[list[tuple[Any, ...]]]:
    """An operation of one statement that returns its rows."""
    return (yield Statement(name, params))

"""Rows that many tests begin with: an application writes them once, later tests load them at a fraction of the cost."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

# What makes a database that one and no copy, and what its migrations wrote.
_NOT_COPIED = ("identity", "schema_version", "alembic_version")
_TABLES = """
select c.oid::regclass::text
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.relkind = 'r' and n.nspname in ('holdfast', 'public') and c.relname <> all(%s)
"""
_SEQUENCES = """
select format('%I.%I', schemaname, sequencename), last_value
  from pg_sequences where schemaname in ('holdfast', 'public') and last_value is not null
"""


class SavedRows(Protocol):
    """All rows of a database, to be loaded into others of the same tables."""

    def load(self, url: str) -> None: ...


class BeginWith:
    """Begins tests with the same rows: the first of a run in each kind of database writes them."""

    def __init__(self) -> None:
        self._saved: dict[str, SavedRows] = {}

    async def fill(self, url: str, write: Callable[[], Awaitable[object]]) -> None:
        """Have the rows in the database, whose tables are there."""
        kind = urlsplit(url).scheme
        if kind in self._saved:
            self._saved[kind].load(url)
            return
        await write()
        self._saved[kind] = _SqliteRows(url) if kind == "sqlite" else _PostgresRows(url)


class _PostgresRows:
    def __init__(self, url: str) -> None:
        with psycopg.connect(url) as connection:
            names = connection.execute(_TABLES, [list(_NOT_COPIED)]).fetchall()
            copies = {name: _copied_out(connection, name) for (name,) in names}
            self._sequences = connection.execute(_SEQUENCES).fetchall()
        self._tables = {name: rows for name, rows in copies.items() if rows}

    def load(self, url: str) -> None:
        """Write the rows as a restore does: in any order, without triggers."""
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute("set session_replication_role = replica")
            for name, rows in self._tables.items():
                cursor.execute(_statement("delete from {}", name))
                with cursor.copy(_statement("copy {} from stdin", name)) as copy:
                    copy.write(rows)
            for name, value in self._sequences:
                cursor.execute("select setval(%s::regclass, %s)", [name, value])


def _copied_out(connection: psycopg.Connection, name: str) -> bytes:
    with connection.cursor().copy(_statement("copy {} to stdout", name)) as copy:
        return b"".join(bytes(part) for part in copy)


def _statement(template: str, name: str) -> sql.Composed:
    # The name is `regclass` as text: quoted by the server where it has to be.
    return sql.SQL(template).format(sql.SQL(name))


class _SqliteRows:
    def __init__(self, url: str) -> None:
        copy = Path(f"{_file(url)}.saved")
        with closing(sqlite3.connect(_file(url))) as source:
            source.execute("vacuum into ?", [str(copy)])
        self._content = copy.read_bytes()
        copy.unlink()

    def load(self, url: str) -> None:
        """Replace the whole file but its identity: a copy is a database of its own, not a restored one."""
        with (
            closing(sqlite3.connect(":memory:")) as memory,
            closing(sqlite3.connect(_file(url))) as target,
        ):
            identity = target.execute("select id, database_name from holdfast_identity").fetchone()
            memory.deserialize(self._content)
            memory.backup(target)
            with target:
                target.execute("update holdfast_identity set id = ?, database_name = ?", identity)


def _file(url: str) -> str:
    return url.removeprefix("sqlite:///")

"""Reads and empties all tables of a test database, whatever they are."""

import sqlite3
from pathlib import Path
from typing import Protocol

import psycopg
from psycopg import sql

from holdfast.storage.sql_loader import DEFAULT_SCHEMA
from tests.conformance import Contents

# What was migrated stays migrated.
_KEPT = "schema_version"


class Tables(Protocol):
    """All tables of one database, through a connection of its own."""

    def read(self) -> Contents:
        """Return every row of every table."""

    def clear(self) -> None:
        """Delete every row but the record of migrations."""

    def close(self) -> None:
        """Give the connection up."""


_TABLES = "select tablename from pg_tables where schemaname = %s order by tablename"
_ROWS = sql.SQL("select {name}, t::text from {table} t")
_DELETE = sql.SQL("delete from {}")


class PostgresTables:
    """See `Tables`."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._names = [row[0] for row in self._connection.execute(_TABLES, [DEFAULT_SCHEMA])]
        self._read = sql.SQL(" union all ").join(
            _ROWS.format(name=sql.Literal(name), table=sql.Identifier(DEFAULT_SCHEMA, name))
            for name in self._names
        )
        self._clear = sql.SQL(";").join(
            _DELETE.format(sql.Identifier(DEFAULT_SCHEMA, name))
            for name in self._names
            if name != _KEPT
        )

    def read(self) -> Contents:
        found: dict[str, list[str]] = {name: [] for name in self._names}
        for name, row in self._connection.execute(self._read):
            found[name].append(row)
        return {name: sorted(rows) for name, rows in found.items()}

    def clear(self) -> None:
        self._connection.execute(self._clear)

    def close(self) -> None:
        self._connection.close()


_SQLITE_STATEMENTS = """
select name, printf('select * from "%w"', name), printf('delete from "%w"', name)
  from sqlite_master where type = 'table' and name like 'holdfast!_%' escape '!' order by name
"""


class SqliteTables:
    """See `Tables`. SQLite itself quotes the names into the statements."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._statements = self._connection.execute(_SQLITE_STATEMENTS).fetchall()

    def read(self) -> Contents:
        self._connection.execute("begin")
        try:
            return {
                name: sorted(repr(row) for row in self._connection.execute(select))
                for name, select, _ in self._statements
            }
        finally:
            self._connection.execute("commit")

    def clear(self) -> None:
        self._connection.execute("begin immediate")
        for name, _, delete in self._statements:
            if not name.endswith(_KEPT):
                self._connection.execute(delete)
        self._connection.execute("commit")

    def close(self) -> None:
        self._connection.close()

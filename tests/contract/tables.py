"""Reads and empties all tables of a test database, whatever they are."""

from typing import Any

import psycopg
from psycopg import Connection, sql

from holdfast.storage.sqlfile import DEFAULT_SCHEMA
from holdfast.testing.conformance.harness import Contents

_TABLES = "select tablename from pg_tables where schemaname = %s order by tablename"
_ROWS = sql.SQL("select {name}, t::text from {table} t")
_KEPT = {"schema_version"}


def _tables(connection: Connection[Any]) -> list[str]:
    return [row[0] for row in connection.execute(_TABLES, [DEFAULT_SCHEMA])]


class PostgresTables:
    """The tables of one PostgreSQL database, through a connection of its own."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._names = _tables(self._connection)
        self._read = sql.SQL(" union all ").join(
            _ROWS.format(name=sql.Literal(name), table=sql.Identifier(DEFAULT_SCHEMA, name))
            for name in self._names
        )
        self._clear = sql.SQL(";").join(
            sql.SQL("delete from {}").format(sql.Identifier(DEFAULT_SCHEMA, name))
            for name in self._names
            if name not in _KEPT
        )

    def read(self) -> Contents:
        """Return every row of every table."""
        found: dict[str, list[str]] = {name: [] for name in self._names}
        for name, row in self._connection.execute(self._read):
            found[name].append(row)
        return {name: sorted(rows) for name, rows in found.items()}

    def clear(self) -> None:
        """Delete every row but the record of migrations."""
        self._connection.execute(self._clear)

    def close(self) -> None:
        """Give the connection up."""
        self._connection.close()

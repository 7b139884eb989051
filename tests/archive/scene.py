"""An application whose deliveries are archived, for tests of commands and pages."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from holdfast import Holdfast
from holdfast_archive import Archive, add_archive

APPLICATION = """
from holdfast import Holdfast
from holdfast_archive import add_archive

app = Holdfast()
archive = add_archive(app)
archive.table("deliveries", key="id", at="completed_at", keep="0s")
"""
_POSTGRES = (
    "create table deliveries (id bigint primary key, note text, completed_at timestamptz)",
    "create table deliveries_copy (id bigint primary key, note text, completed_at timestamptz)",
    "insert into deliveries select place, 'note ' || place, timestamptz '2025-09-10 12:00+00'"
    " + place % 2 * interval '30 days' from generate_series(1, 100) place",
)
_SQLITE = (
    "create table deliveries (id integer primary key, note text, completed_at integer)",
    "create table deliveries_copy (id integer primary key, note text, completed_at integer)",
    "with recursive series (place) as (select 1 union all select place + 1 from series limit 100)"
    " insert into deliveries select place, 'note ' || place,"
    " 1757505600000000 + place % 2 * 2592000000000 from series",
)
_COUNTS = {
    "deliveries": "select count(*) from deliveries",
    "deliveries_copy": "select count(*) from deliveries_copy",
}
SEPTEMBER, OCTOBER = "deliveries/2025-09/0", "deliveries/2025-10/0"


class Deliveries:
    """A table with fifty rows in each of two closed months."""

    def __init__(self, url: str) -> None:
        self._url = url

    def create(self) -> None:
        """Make the table and its rows."""
        for statement in _SQLITE if self._url.startswith("sqlite") else _POSTGRES:
            self.execute(statement)

    def execute(self, statement: str) -> list[Any]:
        """Run a statement that both databases understand."""
        if self._url.startswith("sqlite"):
            with closing(sqlite3.connect(self._url.removeprefix("sqlite:///"))) as file, file:
                return file.execute(statement).fetchall()
        with psycopg.connect(self._url) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def count(self, table: str = "deliveries") -> int:
        """How many rows a table has."""
        return int(self.execute(_COUNTS[table])[0][0])


def declare(app: Holdfast, root: Path) -> Archive:
    """Declare the archive of an application, with its files in a directory."""
    archive = add_archive(app, str(root))
    archive.table("deliveries", key="id", at="completed_at", keep="0s")
    return archive


def damage(root: Path, manifest: str) -> None:
    """Change a byte in the middle of a manifest's object."""
    (found,) = root.glob(f"{manifest.rpartition('/')[0]}/*.parquet")
    content = bytearray(found.read_bytes())
    content[len(content) // 2] ^= 0xFF
    found.write_bytes(content)

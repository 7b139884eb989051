"""Databases as earlier versions left them: their schema, rows written as they wrote them, and the commands of today."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.storage.migrations import load_migrations
from holdfast.storage.postgres import migrations as postgres_migrations
from holdfast.storage.sqlite import migrations as sqlite_migrations
from holdfast_postgres.schema_upgrade import statements_of


@dataclass(frozen=True)
class Dialect:
    """How the rows of earlier versions are written; the last three say what has columns now."""

    prefix: str
    long_ago: str
    later: str
    never: str
    true: str
    false: str
    ids: Callable[[str], str]
    in_line: str
    no_rest: str


DIALECTS = {
    "postgres_url": Dialect(
        "earlier.",
        "now() - interval '1 hour'",
        "now() + interval '1 hour'",
        "'infinity'",
        "true",
        "false",
        lambda id: f"array['{id}'::uuid]",
        "timestamptz '9999-12-31 00:00:00+00'",
        "'-infinity'",
    ),
    "absent_sqlite_url": Dialect(
        "holdfast_",
        "(select now from holdfast_clock) - 3600000000",
        "(select now from holdfast_clock) + 3600000000",
        "9223372036854775807",
        "1",
        "0",
        lambda id: f"'[\"{id}\"]'",
        "253402214400000000",
        "0",
    ),
}


class Earlier:
    """A database of an earlier version, and the commands of today."""

    def __init__(self, url: str, dialect: Dialect, folder: Path) -> None:
        self.app = Holdfast(url, schema="earlier", open_types=True)
        self.folder = folder
        self.write = dialect
        self._url = url
        self._environment = {**os.environ, "HOLDFAST_URL": url, "HOLDFAST_SCHEMA": "earlier"}

    def run(self, *words: str) -> str:
        """Run a command of today in the application's folder."""
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *words],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def insert(self, tx: Any, table: str, columns: str, values: str) -> None:
        """Write a row of a table."""
        tx.execute(f"insert into {self.write.prefix}{table} ({columns}) values ({values})")  # noqa: S608

    @contextmanager
    def connect(self) -> Iterator[Any]:
        """A plain connection: the application refuses a schema that is too old."""
        if self._url.startswith("sqlite"):
            with closing(sqlite3.connect(self._url.removeprefix("sqlite:///"))) as file, file:
                yield file
            return
        with psycopg.connect(self._url) as connection:
            yield connection


@contextmanager
def earlier_database(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    steps: Mapping[str, int],
) -> Iterator[Earlier]:
    """Make a database with the first so many migrations of each dialect."""
    url: str = request.getfixturevalue(request.param)
    for module in (postgres_migrations, sqlite_migrations):
        monkeypatch.setattr(
            module, "load_migrations", lambda name: load_migrations(name)[: steps[name]]
        )
    if request.param == "postgres_url":
        make_postgres(url)
    else:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(sqlite_migrations.migration_sql())
    monkeypatch.undo()
    found = Earlier(url, DIALECTS[request.param], folder)
    yield found
    if request.param == "postgres_url":
        with found.app.transaction() as tx:
            tx.execute("drop schema earlier cascade")
    found.app.close()


def make_postgres(url: str) -> None:
    """Make the schema of that version, a statement at a time."""
    script = postgres_migrations.migration_sql("earlier")
    with psycopg.connect(url, autocommit=True) as connection:
        for each in statements_of(script):
            connection.execute(each.encode())

"""The real PostgreSQL that every figure is taken on, and databases on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
from psycopg import sql

from holdfast.storage.postgres.database import PostgresDatabase
from tests.bench.machine import SETTINGS
from tests.support.installation import embedded_binaries
from tests.support.postgres import with_database
from tests.support.process import PostgresProcess


class BenchServer:
    """An embedded server with production's durability, for one run of the bench."""

    def __init__(self) -> None:
        self._process = PostgresProcess(embedded_binaries(), SETTINGS)
        self._connection = psycopg.connect(self._process.url, autocommit=True)

    def close(self) -> None:
        """End the server and remove its files."""
        self._connection.close()
        self._process.close()

    def __enter__(self) -> BenchServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def database(self) -> Iterator[str]:
        """Yield the address of a new database with our schema, dropped afterwards."""
        name = f"bench_{uuid4().hex}"
        self._connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        url = with_database(self._process.url, name)
        try:
            database = PostgresDatabase(url)
            database.migrate()
            database.close()
            yield url
        finally:
            self._connection.execute(
                sql.SQL("drop database {} with (force)").format(sql.Identifier(name))
            )

    def restart(self) -> None:
        """Stop and start the server, so that nothing is in its memory."""
        self._connection.close()
        self._process.restart()
        self._connection = psycopg.connect(self._process.url, autocommit=True)

    def wal_bytes(self) -> int:
        """Return how much write-ahead log there has been."""
        return int(self._ask("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    def settings(self) -> dict[str, str]:
        """Return the version and the settings that figures depend on, as the server sees them."""
        version = self._ask("show server_version")
        shown = self._connection.execute(
            "select name, current_setting(name) from unnest(%s::text[]) name", [list(SETTINGS)]
        )
        return {"postgresql": version} | dict(shown.fetchall())

    def _ask(self, question: str) -> str:
        row = self._connection.execute(question.encode()).fetchone()
        assert row is not None
        return str(row[0])

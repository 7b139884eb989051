"""Every statement is accepted by every database it is written for."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from holdfast.storage.sql_loader import load_statements
from holdfast.storage.sqlite.migrations import migration_sql
from holdfast.storage.sqlite.store import sqlite_statements
from tests.contract.buffers import COMMANDS, prepare
from tests.contract.conftest import POSTGRES
from tests.support.postgres import PostgresServer

POSTGRES_STATEMENTS = load_statements("holdfast.storage.postgres")
SQLITE_STATEMENTS = load_statements("holdfast.storage.sqlite")


class Nulls(dict[str, None]):
    """Every parameter there could be."""

    def __missing__(self, name: str) -> None:
        return None


@pytest.fixture(scope="module", params=POSTGRES)
def postgres(request: pytest.FixtureRequest) -> Iterator[Connection[Any]]:
    """A connection to each version."""
    server: PostgresServer = request.getfixturevalue(f"{request.param}_server")
    with server.database() as url, psycopg.connect(url) as connection:
        yield connection


@pytest.fixture(scope="module")
def sqlite() -> Iterator[sqlite3.Connection]:
    """A connection to a migrated database."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(migration_sql())
        yield connection


@pytest.mark.parametrize("name", sorted(POSTGRES_STATEMENTS.keys() - COMMANDS))
def test_postgresql_prepares_the_statement(postgres: Connection[Any], name: str) -> None:
    with postgres.transaction(force_rollback=True):
        # Nothing is found by luck: every name has its schema.
        postgres.execute("set local search_path to ''")
        prepare(postgres, name)
        known = postgres.execute("select parameter_types::text[] from pg_prepared_statements")
        types = {type for row in known for type in row[0]}
        assert types <= {"text"}, "parameters go as text and are cast in SQL"
        postgres.execute("deallocate all")


@pytest.mark.parametrize("name", sorted(SQLITE_STATEMENTS))
def test_sqlite_compiles_the_statement(sqlite: sqlite3.Connection, name: str) -> None:
    assert sqlite.execute("explain " + sqlite_statements()[name], Nulls()).fetchall()

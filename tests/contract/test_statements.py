"""Every statement is accepted by every database it is written for."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from holdfast.storage.sql_loader import dialect_statements
from holdfast.storage.sqlite.migrations import migration_sql
from holdfast.storage.sqlite.store import sqlite_statements
from tests.contract.buffers import COMMANDS, prepare
from tests.contract.conftest import POSTGRES
from tests.support.postgres import PostgresServer

POSTGRES_STATEMENTS = dialect_statements("postgres")
SQLITE_STATEMENTS = dialect_statements("sqlite")


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


def test_postgresql_prepares_every_statement(postgres: Connection[Any]) -> None:
    # Nothing is found by luck: every name has its schema.
    postgres.execute("set search_path to ''")
    found = {name: types_of(postgres, name) for name in POSTGRES_STATEMENTS.keys() - COMMANDS}
    assert {name: each for name, each in found.items() if each - {"text"}} == {}, (
        "parameters go as text and are cast in SQL"
    )


def types_of(postgres: Connection[Any], name: str) -> set[str]:
    """Prepare a statement; return the types of its parameters."""
    with postgres.transaction(force_rollback=True):
        try:
            prepare(postgres, name)
        except psycopg.Error as error:
            return {str(error)}
        known = postgres.execute("select parameter_types::text[] from pg_prepared_statements")
        found = {type for row in known for type in row[0]}
        postgres.execute("deallocate all")
        return found


def test_sqlite_compiles_every_statement(sqlite: sqlite3.Connection) -> None:
    found = {name: compiled(sqlite, sqlite_statements()[name]) for name in SQLITE_STATEMENTS}
    assert {name: each for name, each in found.items() if each is not None} == {}


def compiled(sqlite: sqlite3.Connection, statement: str) -> str | None:
    """Compile a statement; return what is wrong with it."""
    try:
        steps = sqlite.execute("explain " + statement, Nulls()).fetchall()
    except sqlite3.Error as error:
        return str(error)
    return None if steps else "no steps"

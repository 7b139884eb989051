"""Applies migrations under an advisory lock, so that replicas may start together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any

import msgspec
import psycopg
from psycopg import Connection, sql

from holdfast.core.errors import WrongDatabase
from holdfast.core.records import AppliedMigration
from holdfast.storage.migrations import (
    Migration,
    check_schema,
    check_unchanged,
    list_pending,
    load_migrations,
)
from holdfast.storage.operation import run
from holdfast.storage.postgres.connection import PsycopgExecutor
from holdfast.storage.sql_loader import place_schema
from holdfast.storage.store.schema import SchemaStore

PACKAGE = "holdfast.storage.postgres"

_TRY_LOCK = "select pg_try_advisory_lock(hashtextextended(%s, 0))"
_LOOK_EVERY_S = 0.1
_UNLOCK = "select pg_advisory_unlock(hashtextextended(%s, 0))"
_LOCK_TIMEOUT = "select set_config('lock_timeout', %s, false)"
_RECORD = sql.SQL(
    "insert into holdfast.schema_version (version, name, checksum, oldest_code) values ({}, {}, {}, {});"
)
_UNFINISHED = """
select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = %s and c.relname = any (%s) and not i.indisvalid
"""
_DROP = sql.SQL("drop index concurrently {}.{}")
# Strings, quoted names, bodies of functions and comments come first, so that a semicolon inside them ends nothing.
_PART = re.compile(
    r"'(?:[^']|'')*'|\"[^\"]*\"|(?P<tag>\$\w*\$).*?(?P=tag)|--[^\n]*|/\*.*?\*/|(?P<end>;)|[^'\"$;/-]+|.",
    re.DOTALL,
)
_IDENTITY = "insert into holdfast.identity (id, database_name) values (gen_random_uuid(), current_database());"


def migration_sql(schema: str) -> str:
    """The whole schema as SQL, for people who run migrations by other means; needs no connection."""
    parts = []
    for step in load_migrations(PACKAGE):
        literals = map(sql.Literal, msgspec.structs.astuple(step.record))
        parts += [step.text, _RECORD.format(*literals).as_string(None)]
    return place_schema("\n".join([*parts, _IDENTITY, ""]), schema)


def read_applied(connection: Connection[Any], schema: str) -> list[AppliedMigration]:
    """Read what was applied; a database without the schema has nothing. Needs autocommit."""
    try:
        return run(SchemaStore().applied(), PsycopgExecutor(connection, schema))
    except WrongDatabase:
        return []


def apply_migrations(
    connection: Connection[Any], schema: str, make_id: Callable[[], str]
) -> list[AppliedMigration]:
    """Take every pending step, each in its own transaction; return what was applied. Needs autocommit.

    Concurrency: one at a time per schema; those that waited find the work done.
    """
    key = f"holdfast:migrate:{schema}"
    _lock(connection, key)
    try:
        known = load_migrations(PACKAGE)
        applied = read_applied(connection, schema)
        check_unchanged(known, applied)
        todo = list_pending(known, applied)
        for step in todo:
            _apply(connection, schema, step)
        check_schema(known, read_applied(connection, schema))
        executor = PsycopgExecutor(connection, schema)
        run(SchemaStore().identify(make_id()), executor)
        run(SchemaStore().note_server(), executor)
        return [step.record for step in todo]
    finally:
        if not connection.broken:
            connection.execute(_UNLOCK, [key])


def _lock(connection: Connection[Any], key: str) -> None:
    """Wait for other migrations as long as they take, between statements.

    An index that another one builds concurrently waits for every running statement: waiting in one would be a deadlock.
    """
    while not connection.execute(_TRY_LOCK, [key]).fetchall()[0][0]:
        sleep(_LOOK_EVERY_S)


@contextmanager
def _waiting_without_limit(connection: Connection[Any]) -> Iterator[None]:
    """Wait for old transactions as long as they take: nobody queues behind these waits."""
    row = connection.execute("show lock_timeout").fetchone()
    assert row is not None
    connection.execute(_LOCK_TIMEOUT, ["0"])
    yield
    connection.execute(_LOCK_TIMEOUT, [row[0]])


def statements_of(script: str) -> Iterator[str]:
    """Split a script into its statements, each with the comments before it."""
    begin = 0
    for part in _PART.finditer(script):
        if part["end"]:
            yield script[begin : part.end()].strip()
            begin = part.end()
    rest = script[begin:].strip()
    if rest and not all(line.startswith("--") for line in rest.splitlines()):
        yield rest


def _apply(connection: Connection[Any], schema: str, step: Migration) -> None:
    executor = PsycopgExecutor(connection, schema)
    # One at a time: databases that speak PostgreSQL's language often refuse several in one message.
    statements = [each.encode() for each in statements_of(place_schema(step.text, schema))]
    if step.concurrently:
        # CREATE INDEX CONCURRENTLY refuses a transaction; such a step is one statement that may be repeated.
        with _waiting_without_limit(connection):
            _drop_unfinished(connection, schema, step)
            for each in statements:
                connection.execute(each)
        run(SchemaStore().record(step.record), executor)
        return
    with connection.transaction():
        try:
            for each in statements:
                connection.execute(each)
        except psycopg.errors.InsufficientPrivilege as error:
            raise WrongDatabase(
                f"this role is not allowed to create the schema: {error}",
                help="run `holdfast migrate sql` and apply it as the owner",
            ) from error
        run(SchemaStore().record(step.record), executor)


def _drop_unfinished(connection: Connection[Any], schema: str, step: Migration) -> None:
    """Drop what a build that failed half way has left: such an index costs writes, serves nobody and bears the name."""
    for (name,) in connection.execute(_UNFINISHED, [schema, list(step.indexes)]).fetchall():
        connection.execute(_DROP.format(sql.Identifier(schema), sql.Identifier(name)))

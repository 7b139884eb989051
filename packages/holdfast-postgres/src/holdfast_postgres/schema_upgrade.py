"""Applies migrations under a lock, so that replicas may start together, and by single statements to tables in use."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import psycopg
from psycopg import Connection, sql

from holdfast.core.errors import SchemaChanged, WrongDatabase
from holdfast.core.records import AppliedMigration
from holdfast.storage.id_generator import new_id
from holdfast.storage.migrations import (
    Migration,
    Tell,
    check_schema,
    check_unchanged,
    list_pending,
    load_migrations,
)
from holdfast.storage.operation import run
from holdfast.storage.postgres.connection import PsycopgExecutor
from holdfast.storage.postgres.migrations import PACKAGE, read_applied
from holdfast.storage.sql_loader import place_schema
from holdfast.storage.store.schema import ANYWHERE, DatabasePlace, SchemaStore, ServerStatsStore
from holdfast_postgres.grants import missing_grants
from holdfast_postgres.online_ddl import BlockerWatch, MigrationLock, OnlineDdl, Patience

_COMMENT = sql.SQL("comment on table {} is {}")
_READ_COMMENT = "select pg_catalog.obj_description(pg_catalog.to_regclass(%s), 'pg_class')"
# Strings, quoted names, bodies of functions and comments come first, so that a semicolon inside them ends nothing.
_PART = re.compile(
    r"'(?:[^']|'')*'|\"[^\"]*\"|(?P<tag>\$\w*\$).*?(?P=tag)|--[^\n]*|/\*.*?\*/|(?P<end>;)|[^'\"$;/-]+|.",
    re.DOTALL,
)


def apply_migrations(
    connections: Sequence[Connection[Any]],
    schema: str,
    wait_s: float,
    tell: Tell,
    place: DatabasePlace = ANYWHERE,
) -> list[AppliedMigration]:
    """Take every pending step; return what was applied. The connections are in autocommit: to work, to lock, to watch.

    Concurrency: one at a time per schema; those that waited find the work done.
    Raises: MigrationBlocked.
    """
    connection, locking, watching = connections
    patience = Patience(wait_s, tell)
    lock, watch = MigrationLock(locking, f"holdfast:migrate:{schema}"), BlockerWatch(watching)
    with lock.hold(patience, watch):
        known = load_migrations(PACKAGE)
        applied = read_applied(connection, schema)
        check_unchanged(known, applied)
        todo = list_pending(known, applied)
        ddl = OnlineDdl(connection, schema, lock, watch, patience)
        for step in todo:
            if applied:
                _upgrade(connection, schema, step, ddl)
            else:
                _create(connection, schema, step)
        check_schema(known, read_applied(connection, schema))
        executor = PsycopgExecutor(connection, schema)
        run(SchemaStore(place).identify(new_id()), executor)
        run(SchemaStore(place).note_server(), executor)
        _repeat_grants(connection, schema, patience.tell)
        return [step.record for step in todo]


def _repeat_grants(connection: Connection[Any], schema: str, tell: Tell) -> None:
    """Give roles what this version needs in addition, if they have what earlier ones needed."""
    document = run(ServerStatsStore().privileges(), PsycopgExecutor(connection, schema))
    for missing in missing_grants(document):
        try:
            for statement in missing.statements(schema):
                connection.execute(statement)
            tell(f"granted {missing.role} ({missing.kind}): {missing}")
        except psycopg.errors.InsufficientPrivilege:
            tell(
                f"{missing.role} ({missing.kind}) lacks {missing}; run `holdfast grants` as the owner"
            )


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


def _create(connection: Connection[Any], schema: str, step: Migration) -> None:
    """Take a step of a new schema, which nobody uses yet, in one transaction."""
    with connection.transaction():
        # What the schema is made of is that of pg_catalog, whatever the role's search path has before it.
        connection.execute("set local search_path = pg_catalog")
        try:
            # One at a time: databases that speak PostgreSQL's language often refuse several in one message.
            for each in statements_of(place_schema(step.text, schema)):
                connection.execute(each.encode())
        except psycopg.errors.InsufficientPrivilege as error:
            raise WrongDatabase(
                f"this role is not allowed to create the schema: {error}",
                help="run `holdfast migrate sql` and apply it as the owner",
            ) from error
        run(SchemaStore().record(step.record), PsycopgExecutor(connection, schema))


class _Progress(msgspec.Struct, frozen=True):
    """How much of a step is done. It is kept as a comment on the table of steps, which takes no other table or lock."""

    version: int
    statements: int
    checksum: str

    @classmethod
    def after(cls, step: Migration, statements: Sequence[str]) -> _Progress:
        text = "\n".join(statements)
        return cls(step.version, len(statements), hashlib.sha256(text.encode()).hexdigest())


def _upgrade(connection: Connection[Any], schema: str, step: Migration, ddl: OnlineDdl) -> None:
    """Take a step while old workers and producers go on, from where an interrupted run has left it."""
    statements = list(statements_of(place_schema(step.text, schema)))
    table = sql.Identifier(schema, "schema_version")

    def note(progress: _Progress | None) -> None:
        text = msgspec.json.encode(progress).decode() if progress else None
        connection.execute(_COMMENT.format(table, text))

    for count in range(_done_of(connection, table, step, statements), len(statements)):
        progress = _Progress.after(step, statements[: count + 1])
        ddl.execute(statements[count], partial(note, progress))
    with connection.transaction():
        run(SchemaStore().record(step.record), PsycopgExecutor(connection, schema))
        note(None)


def _done_of(
    connection: Connection[Any], table: sql.Identifier, step: Migration, statements: Sequence[str]
) -> int:
    """Count the statements of a step that an interrupted run has done. Raises: SchemaChanged."""
    row = connection.execute(_READ_COMMENT, [table.as_string(None)]).fetchone()
    try:
        done = msgspec.json.decode((row and row[0]) or "", type=_Progress)
    except msgspec.DecodeError:
        return 0
    if done.version != step.version:
        return 0
    if done != _Progress.after(step, statements[: done.statements]):
        raise SchemaChanged(
            f"migration {step.version:04}_{step.name} was begun by another version",
            help="finish it with the version of holdfast that began it",
        )
    return done.statements

"""Applies migrations under the file's write lock, so that processes may start together."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import msgspec

from holdfast.core.errors import WrongDatabase
from holdfast.core.records import AppliedMigration
from holdfast.storage.migrations import check_schema, check_unchanged, list_pending, load_migrations
from holdfast.storage.operation import run
from holdfast.storage.sqlite.connection import MEMORY, LockWait, begin, translate
from holdfast.storage.sqlite.store import PACKAGE
from holdfast.storage.sqlite.transaction import SqliteExecutor
from holdfast.storage.store.schema import ANYWHERE, DatabasePlace, SchemaStore

_RECORD = """
select 'insert into holdfast_schema_version (version, name, checksum, oldest_code, applied_at) values ('
       || quote(?) || ', ' || quote(?) || ', ' || quote(?) || ', ' || quote(?) || ', (select now from holdfast_clock));'
"""
_IDENTITY = """
insert into holdfast_identity (only_row, id, database_name, created_at)
select 1, substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-4' || substr(h, 14, 3) || '-a' || substr(h, 18, 3) || '-'
       || substr(h, 21), coalesce(nullif(file, ''), ':memory:'), (select now from holdfast_clock)
  from pragma_database_list, (select lower(hex(randomblob(16))) as h) where name = 'main';
"""


def migration_sql() -> str:
    """The whole schema as SQL, for people who run migrations by other means; needs no connection."""
    parts = []
    with closing(sqlite3.connect(MEMORY)) as quoter:
        for step in load_migrations(PACKAGE):
            record = quoter.execute(_RECORD, msgspec.structs.astuple(step.record))
            parts += [step.text, record.fetchone()[0]]
    return "\n".join(["begin immediate;", *parts, _IDENTITY, "commit;", ""])


def read_applied(connection: sqlite3.Connection) -> list[AppliedMigration]:
    """Read what was applied; a database without the schema has nothing."""
    try:
        return run(SchemaStore().applied(), SqliteExecutor(connection))
    except WrongDatabase:
        return []


def apply_migrations(
    connection: sqlite3.Connection,
    lock_wait: LockWait,
    make_id: Callable[[], str],
    place: DatabasePlace = ANYWHERE,
) -> list[AppliedMigration]:
    """Take every pending step in one transaction; return what was applied.

    Concurrency: one at a time per file; those that waited find the work done.
    """
    begin(connection, lock_wait)
    try:
        applied = _apply(connection, make_id, place)
        connection.execute("commit")
    except sqlite3.Error as error:
        raise translate(error, "the migration") or error from error
    finally:
        if connection.in_transaction:
            connection.execute("rollback")
    return applied


def _apply(
    connection: sqlite3.Connection, make_id: Callable[[], str], place: DatabasePlace
) -> list[AppliedMigration]:
    executor = SqliteExecutor(connection)
    known = load_migrations(PACKAGE)
    applied = read_applied(connection)
    check_unchanged(known, applied)
    todo = list_pending(known, applied)
    for step in todo:
        for statement in _statements_of(step.text):
            connection.execute(statement)
        run(SchemaStore().record(step.record), executor)
    check_schema(known, read_applied(connection))
    run(SchemaStore(place).identify(make_id()), executor)
    return [step.record for step in todo]


def _statements_of(script: str) -> Iterator[str]:
    """Split a script: the driver's own way to run one would commit first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""

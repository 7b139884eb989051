"""Applies migrations under the file's write lock, so that processes may start together."""

from __future__ import annotations

import sqlite3
import time
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
    """Take every pending step; return what was applied. In a file that is in use, others may write between two steps.

    Concurrency: one at a time per file; those that waited find the work done.
    """
    taken: list[AppliedMigration] = []
    while True:
        begin(connection, lock_wait)
        try:
            has_more = _apply(connection, taken)
            if not has_more:
                run(SchemaStore(place).identify(make_id()), SqliteExecutor(connection))
            connection.execute("commit")
        except sqlite3.Error as error:
            raise translate(error, "the migration") or error from error
        finally:
            if connection.in_transaction:
                connection.execute("rollback")
        if not has_more:
            return taken
        time.sleep(0.1)  # those who wait for the file's lock look at least so often


def _apply(connection: sqlite3.Connection, taken: list[AppliedMigration]) -> bool:
    """Take the next step, or all of a new file; say whether there are more."""
    known, applied = load_migrations(PACKAGE), read_applied(connection)
    check_unchanged(known, applied)
    todo = list_pending(known, applied)
    steps = todo[:1] if applied else todo
    for step in steps:
        for statement in _statements_of(step.text):
            connection.execute(statement)
        run(SchemaStore().record(step.record), SqliteExecutor(connection))
    taken += [step.record for step in steps]
    if len(todo) == len(steps):
        check_schema(known, read_applied(connection))
    return len(todo) > len(steps)


def _statements_of(script: str) -> Iterator[str]:
    """Split a script: the driver's own way to run one would commit first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""

"""The schema as SQL, and what of it was applied. The package `holdfast-postgres` applies it, to tables in use too."""

from __future__ import annotations

from typing import Any

import msgspec
from psycopg import Connection, sql

from holdfast.core.errors import WrongDatabase
from holdfast.core.records import AppliedMigration
from holdfast.storage.migrations import load_migrations
from holdfast.storage.operation import run
from holdfast.storage.postgres.connection import PsycopgExecutor
from holdfast.storage.sql_loader import place_schema
from holdfast.storage.store.schema import SchemaStore

PACKAGE = "holdfast.storage.postgres"

_RECORD = sql.SQL(
    "insert into holdfast.schema_version (version, name, checksum, oldest_code) values ({}, {}, {}, {});"
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

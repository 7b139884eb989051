"""Empties a test's database for the next test, at a fraction of what a fresh copy costs.

The session that does it stays for the next time: a new one would have to learn about all tables first, which costs
several times as much as to empty them.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql

# Deleted rows stay in the files until vacuum; beyond this a fresh copy is the better start.
MAX_ROWS = 2_000

# What was migrated stays migrated.
_RECORD_OF_ALEMBIC = '"alembic_version"'

_SHAPE = """
select string_agg(concat_ws(':', n.nspname, c.relname, c.relkind, c.relnatts, c.reloptions), ','
                  order by n.nspname, c.relname)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
"""
_STEPS = "select string_agg(version || ':' || checksum, ',' order by version) from holdfast.schema_version"
_SETTINGS = "select count(*) from pg_db_role_setting"
_BUSINESS_TABLES = """
select n.nspname, c.relname
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.relkind in ('r', 'p') and n.nspname !~ '^pg_' and n.nspname not in ('holdfast', 'information_schema')
 order by 1, 2
"""
_TABLES = """
select c.relname, pg_stat_get_live_tuples(c.oid) + pg_stat_get_dead_tuples(c.oid)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = 'holdfast' and c.relkind = 'r' and c.relname <> 'schema_version'
"""
CLEANER = "the tests' cleaner"
"""The name of the session."""

_OTHERS = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid()
"""


def shape_of(connection: psycopg.Connection) -> str:
    """Return what no test may leave changed: relations with their options, migrations, database and role settings."""
    answers = [connection.execute(each.encode()).fetchone() for each in (_SHAPE, _STEPS, _SETTINGS)]
    return repr(answers)


def business_tables(connection: psycopg.Connection) -> list[str]:
    """Return the tables that are not Holdfast's, quoted and with their schema."""
    found = connection.execute(_BUSINESS_TABLES.encode()).fetchall()
    return [sql.Identifier(*name).as_string(connection) for name in found]


def emptied(url: str, shape: str, kept: Sequence[str] = ()) -> bool:
    """Make a used database like new; False when it is not worth it or something else was changed in it.

    Of the business tables those to be kept lose their rows; others in the public schema are dropped.
    """
    for _ in range(2):
        try:
            return _empty(_cleaner(url), shape, kept)
        except psycopg.Error:
            # A test may have ended every session; then there is nothing wrong with the database.
            if url not in _cleaners or not _cleaners[url].closed:
                break
    dismiss(url)
    return False


def dismiss(url: str) -> None:
    """End the session for a database that is not used any more."""
    found = _cleaners.pop(url, None)
    if found is not None:
        found.close()


_cleaners: dict[str, psycopg.Connection] = {}


def _cleaner(url: str) -> psycopg.Connection:
    found = _cleaners.get(url)
    if found is None or found.closed:
        found = _cleaners[url] = psycopg.connect(
            url, autocommit=True, options="-c lock_timeout=2000", application_name=CLEANER
        )
    return found


def _empty(connection: psycopg.Connection, shape: str, kept: Sequence[str]) -> bool:
    connection.execute(_OTHERS)
    _drop_tables(connection, kept)
    if shape_of(connection) != shape:
        return False
    tables = connection.execute(_TABLES.encode()).fetchall()
    if sum(rows for _, rows in tables) > MAX_ROWS:
        return False
    deletes = [
        sql.SQL("delete from holdfast.{}").format(sql.Identifier(name)) for name, _ in tables
    ]
    connection.execute(sql.SQL("; ").join([*deletes, *_delete_at_once(kept)]))
    return True


def _drop_tables(connection: psycopg.Connection, kept: Sequence[str]) -> None:
    for name in business_tables(connection):
        if name.startswith('"public".') and name not in kept:
            connection.execute(sql.SQL("drop table if exists {} cascade").format(sql.SQL(name)))


def _delete_at_once(tables: Sequence[str]) -> list[sql.Composed]:
    """Return one statement for all, so that foreign keys are checked when every table is empty."""
    parts = [
        sql.SQL("{} as (delete from {})").format(sql.Identifier(f"d{number}"), sql.SQL(name))
        for number, name in enumerate(tables)
        if not name.endswith(_RECORD_OF_ALEMBIC)
    ]
    if not parts:
        return []
    return [sql.SQL("with {} select").format(sql.SQL(", ").join(parts))]

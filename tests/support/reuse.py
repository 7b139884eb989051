"""Empties a test's database for the next test, at a fraction of what a fresh copy costs."""

from __future__ import annotations

import psycopg
from psycopg import sql

# Deleted rows stay in the files until vacuum; beyond this a fresh copy is the better start.
MOST_ROWS = 2_000

_SHAPE = """
select string_agg(concat_ws(':', n.nspname, c.relname, c.relkind, c.relnatts, c.reloptions), ','
                  order by n.nspname, c.relname)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
"""
_STEPS = "select string_agg(version || ':' || checksum, ',' order by version) from holdfast.schema_version"
_SETTINGS = "select count(*) from pg_db_role_setting"
_TABLES = """
select c.relname, pg_stat_get_live_tuples(c.oid) + pg_stat_get_dead_tuples(c.oid)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = 'holdfast' and c.relkind = 'r' and c.relname <> 'schema_version'
"""
_OTHERS = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid()
"""


def shape_of(connection: psycopg.Connection) -> str:
    """Return what no test may leave changed: relations with their options, migrations, database and role settings."""
    answers = [connection.execute(each.encode()).fetchone() for each in (_SHAPE, _STEPS, _SETTINGS)]
    return repr(answers)


def emptied(url: str, shape: str) -> bool:
    """Make a used database like new; False when it is not worth it or something else was changed in it."""
    try:
        with psycopg.connect(url, autocommit=True, options="-c lock_timeout=2000") as connection:
            connection.execute(_OTHERS)
            _drop_own_tables(connection)
            if shape_of(connection) != shape:
                return False
            tables = connection.execute(_TABLES.encode()).fetchall()
            if sum(rows for _, rows in tables) > MOST_ROWS:
                return False
            deletes = [
                sql.SQL("delete from holdfast.{}").format(sql.Identifier(name))
                for name, _ in tables
            ]
            connection.execute(sql.SQL("; ").join(deletes))
            return True
    except psycopg.Error:
        return False


def _drop_own_tables(connection: psycopg.Connection) -> None:
    """Drop the business tables that a test made in the public schema."""
    names = connection.execute(
        "select tablename from pg_tables where schemaname = 'public' order by tablename"
    ).fetchall()
    for (name,) in names:
        connection.execute(
            sql.SQL("drop table if exists public.{} cascade").format(sql.Identifier(name))
        )

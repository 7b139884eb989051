"""The PostgreSQL schema: applied once whoever comes first, printable, in any schema, refused when not understood."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any

import psycopg
import pytest
from psycopg import Connection, sql

from holdfast.core.errors import (
    InvalidIdentifier,
    SchemaChanged,
    SchemaTooNew,
    SchemaTooOld,
    WrongDatabase,
)
from holdfast.core.records import NewJob
from holdfast.storage.migrations import Migration, load_migrations
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.postgres.migrations import PACKAGE, migration_sql
from holdfast_postgres import schema_upgrade
from holdfast_postgres.schema_upgrade import statements_of
from tests.support.postgres import PostgresServer
from tests.support.until import PATIENCE_S

KNOWN = load_migrations(PACKAGE)
ACME = "acme_jobs"
JOB_ID = "019a0000-0000-7000-8000-000000000001"

MIGRATE = """
import sys
from holdfast.storage.postgres.database import PostgresDatabase

print(len(PostgresDatabase(sys.argv[1], sys.argv[2]).migrate()))
"""

SHAPE = """
select 'column', c.table_name || '.' || c.column_name,
       concat_ws(' ', c.ordinal_position, c.data_type, c.udt_name, c.is_nullable, c.column_default)
  from information_schema.columns c where c.table_schema = %(schema)s
union all
select 'index', indexname, replace(indexdef, %(schema)s, 'X') from pg_indexes where schemaname = %(schema)s
union all
select 'constraint', conname, replace(pg_get_constraintdef(oid), %(schema)s, 'X')
  from pg_constraint where connamespace = %(schema)s::regnamespace
union all
select 'view', viewname, replace(definition, %(schema)s, 'X') from pg_views where schemaname = %(schema)s
union all
select 'function', proname, replace(pg_get_functiondef(oid), %(schema)s, 'X')
  from pg_proc where pronamespace = %(schema)s::regnamespace
union all
select 'options', relname, array_to_string(reloptions, ',')
  from pg_class where relnamespace = %(schema)s::regnamespace and reloptions is not null
 order by 1, 2, 3
"""


@contextmanager
def opened(url: str, schema: str = "holdfast") -> Iterator[PostgresDatabase]:
    database = PostgresDatabase(url, schema)
    try:
        yield database
    finally:
        database.close()


@pytest.fixture
def connection(postgres_url: str) -> Iterator[Connection[Any]]:
    """A connection to a database with the default schema."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def shape(connection: Connection[Any], schema: str) -> list[Any]:
    return connection.execute(SHAPE, {"schema": schema}).fetchall()


def test_applying_twice_changes_nothing(postgres_url: str, connection: Connection[Any]) -> None:
    with opened(postgres_url, ACME) as database:
        assert database.migrate() == [each.record for each in KNOWN]
        before = shape(connection, ACME)
        identity = database.run(database.store.schema.identity())
        assert database.migrate() == []
        assert database.run(database.store.schema.identity()) == identity
        assert database.check() == [each.record for each in KNOWN]
    assert shape(connection, ACME) == before


def test_processes_that_start_together_migrate_once(postgres_url: str) -> None:
    command = [sys.executable, "-c", MIGRATE, postgres_url, ACME]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = sorted(int(each.communicate(timeout=PATIENCE_S)[0]) for each in running)
    assert [each.returncode for each in running] == [0, 0, 0]
    assert answers == [0, 0, len(KNOWN)]


def test_a_process_that_waits_for_another_migration_says_for_which_and_keeps_no_index_from_being_built(
    postgres_url: str, connection: Connection[Any]
) -> None:
    """A build waits for every statement that runs, so one that waited for the builder would be a deadlock."""
    connection.execute("create table built (id integer)")
    key = f"holdfast:migrate:{ACME}"
    connection.execute("select pg_advisory_lock(hashtextextended(%s, 0))", [key])
    applied: list[int] = []
    said: Queue[str] = Queue()

    def migrate() -> None:
        with opened(f"{postgres_url}?options=-c%20lock_timeout%3D1ms", ACME) as impatient:
            applied.append(len(impatient.migrate(tell=said.put)))

    other = threading.Thread(target=migrate)
    other.start()
    pid = connection.info.backend_pid
    assert f"waiting for another migration, held by pid {pid} " in said.get(timeout=PATIENCE_S)
    connection.execute("create index concurrently on built (id)")
    connection.execute("select pg_advisory_unlock(hashtextextended(%s, 0))", [key])
    other.join()
    assert applied == [len(KNOWN)]


def test_the_printed_schema_is_the_applied_one(
    postgres_url: str, connection: Connection[Any]
) -> None:
    connection.execute(migration_sql("by_hand").encode())
    with opened(postgres_url, "by_tool") as database:
        database.migrate()
    assert shape(connection, "by_hand") == shape(connection, "by_tool")
    with opened(postgres_url, "by_hand") as database:
        assert database.check() == [each.record for each in KNOWN]
        assert database.migrate() == []
        assert database.run(database.store.schema.identity()) is not None


def test_two_schemas_live_side_by_side(postgres_url: str) -> None:
    job = NewJob(JOB_ID, JOB_ID, "mail", "{}")
    with opened(postgres_url) as ours, opened(postgres_url, ACME) as theirs:
        theirs.migrate()
        theirs.run(theirs.store.jobs.insert([job]))
        assert len(theirs.run(theirs.store.jobs.get([JOB_ID]))) == 1
        assert ours.run(ours.store.jobs.get([JOB_ID])) == []


@pytest.mark.parametrize("name", ["", "Acme", 'a"; drop schema public; --', "pg_acme"])
def test_a_bad_schema_name_is_refused_before_anything_runs(name: str) -> None:
    with pytest.raises(InvalidIdentifier):
        PostgresDatabase("postgresql://nowhere.invalid/db", name)
    with pytest.raises(InvalidIdentifier):
        migration_sql(name)


def test_a_schema_that_is_not_there_is_too_old(postgres_url: str) -> None:
    with opened(postgres_url, ACME) as database, pytest.raises(SchemaTooOld, match="version 0"):
        database.check()


def test_a_schema_without_the_newest_step_is_too_old(
    postgres_url: str, connection: Connection[Any]
) -> None:
    newest = KNOWN[-1].version
    connection.execute("delete from holdfast.schema_version where version = %s", [newest])
    with opened(postgres_url) as database, pytest.raises(SchemaTooOld, match=f"needs {newest}"):
        database.check()


@pytest.mark.parametrize("ask", ["check", "migrate"])
def test_a_schema_that_no_longer_serves_this_code_is_refused(
    postgres_url: str, connection: Connection[Any], ask: str
) -> None:
    newest = KNOWN[-1].version
    connection.execute(
        "insert into holdfast.schema_version (version, name, checksum, oldest_code) values (%s, 'later', '', %s)",
        [newest + 2, newest + 1],
    )
    with opened(postgres_url) as database, pytest.raises(SchemaTooNew):
        getattr(database, ask)()


def test_a_schema_that_is_newer_but_still_serves_this_code_is_used(
    postgres_url: str, connection: Connection[Any]
) -> None:
    newest = KNOWN[-1].version
    connection.execute(
        "insert into holdfast.schema_version (version, name, checksum, oldest_code) values (%s, 'later', '', %s)",
        [newest + 1, newest],
    )
    with opened(postgres_url) as database:
        assert len(database.check()) == len(KNOWN) + 1
        assert database.migrate() == []


def later_step(version: int, text: str) -> Migration:
    return Migration(version, "later", text, 1)


def with_step(monkeypatch: pytest.MonkeyPatch, step: Migration) -> None:
    monkeypatch.setattr(schema_upgrade, "load_migrations", lambda _: (*KNOWN, step))


def test_a_step_that_was_changed_is_refused_before_anything_is_done(
    postgres_url: str, connection: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.execute("update holdfast.schema_version set checksum = 'another'")
    with_step(monkeypatch, later_step(KNOWN[-1].version + 1, "create table holdfast.more ()"))
    before = shape(connection, "holdfast")
    with opened(postgres_url) as database:
        for look in (database.migrate, database.check):
            with pytest.raises(SchemaChanged, match="is not the one that was applied"):
                look()
    assert shape(connection, "holdfast") == before


def test_two_commands_at_once_migrate_once(postgres_url: str) -> None:
    command = [sys.executable, "-m", "holdfast", "migrate", "--url", postgres_url]
    command += ["--schema", ACME, "-o", "json"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [each.communicate(timeout=100)[0] for each in running]
    assert [each.returncode for each in running] == [0, 0]
    assert sorted(len(json.loads(each)) for each in answers) == [0, len(KNOWN)]


def test_a_step_of_a_new_schema_that_fails_leaves_nothing(
    postgres_url: str, connection: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "create schema if not exists holdfast; select 1 / 0"
    monkeypatch.setattr(schema_upgrade, "load_migrations", lambda _: (later_step(1, text),))
    with opened(postgres_url, ACME) as database:
        with pytest.raises(psycopg.errors.DivisionByZero):
            database.migrate()
        monkeypatch.undo()
        assert connection.execute("select to_regnamespace(%s)", [ACME]).fetchall() == [(None,)]
        assert len(database.migrate()) == len(KNOWN), "the lock was given back"


def test_a_step_that_fails_half_way_continues_there_once_it_is_corrected(
    postgres_url: str, connection: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    version, first = KNOWN[-1].version + 1, "create table holdfast.half ();"
    with opened(postgres_url) as database:
        with_step(monkeypatch, later_step(version, f"{first} select 1 / 0"))
        with pytest.raises(psycopg.errors.DivisionByZero):
            database.migrate()
        with_step(monkeypatch, later_step(version, "create table holdfast.other (); select 1"))
        with pytest.raises(SchemaChanged, match="was begun by another version"):
            database.migrate()
        corrected = later_step(version, f"{first} alter table holdfast.half add id integer")
        with_step(monkeypatch, corrected)
        assert database.migrate() == [corrected.record]
    assert connection.execute("select count(id) from holdfast.half").fetchall() == [(0,)]


def test_a_step_is_sent_one_statement_at_a_time(
    postgres_url: str, connection: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
    -- Some databases refuse several statements in one message.
    create table holdfast.seen as select current_query() as statement;
    insert into holdfast.seen select current_query();
    -- That was all.
    """
    with_step(monkeypatch, later_step(KNOWN[-1].version + 1, text))
    with opened(postgres_url) as database:
        database.migrate()
    rows = connection.execute("select statement from holdfast.seen").fetchall()
    assert [each.count("current_query") for (each,) in rows] == [1, 1]


def test_a_semicolon_ends_a_statement_only_outside_of_texts_bodies_and_comments() -> None:
    script = """
    create function f() returns text language sql as $body$ select ';'; $body$; -- one; of two
    insert into "a;b" values ('it''s; fine', $$;$$) /* ; */;
    select a - b / c
    """
    first, second, third = statements_of(script)
    assert (first[:15], first[-7:]) == ("create function", "$body$;")
    assert (second[:14], second[-8:]) == ("-- one; of two", "/* ; */;")
    assert third == "select a - b / c"
    assert list(statements_of("-- nothing\n")) == []


def test_the_schema_may_be_prepared_by_an_owner_who_is_not_the_user(
    postgres_server: PostgresServer, postgres_url: str, connection: Connection[Any]
) -> None:
    name = f"plain_{postgres_url.rsplit('_', 1)[1]}"
    role = sql.Identifier(name)
    connection.execute(sql.SQL("create role {}").format(role))
    try:
        options = f"-c%20role%3D{name}"
        with (
            opened(f"{postgres_url}?options={options}", ACME) as plain,
            pytest.raises(WrongDatabase, match="not allowed to create the schema") as caught,
        ):
            plain.migrate()
        assert "holdfast migrate sql" in str(caught.value.help)
    finally:
        connection.execute(sql.SQL("drop role {}").format(role))

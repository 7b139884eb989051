"""Migrations: once, whoever comes first; a newer schema is refused; the printed script makes the same tables."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.core.errors import SchemaChanged, SchemaTooNew, SchemaTooOld, WrongDatabase
from holdfast.storage.migrations import load_migrations
from holdfast.storage.sqlite import migrations
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.sqlite.migrations import migration_sql
from tests.storage.sqlite.scene import new_job

SCHEMA = "select type, name, sql from sqlite_master order by type, name"


def test_a_new_file_is_migrated_once(path: Path) -> None:
    database = SqliteDatabase(path)
    versions = [each.version for each in database.migrate()]
    assert versions == [each.version for each in load_migrations("holdfast.storage.sqlite")]
    assert database.migrate() == []
    assert [each.version for each in database.check()] == versions
    database.close()


def test_a_database_knows_its_identity_and_its_path(database: SqliteDatabase, path: Path) -> None:
    identity = database.read(database.store.schema.identity())
    assert identity is not None
    assert identity.recorded_name == identity.name == str(path)
    database.migrate()
    assert database.read(database.store.schema.identity()) == identity


def test_a_copied_file_is_recognised(database: SqliteDatabase, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(copy)) as target, database.transaction() as transaction:
        transaction.execute("select 1")
        with closing(sqlite3.connect(str(database.path))) as source:
            source.backup(target)
    other = SqliteDatabase(copy)
    identity = other.read(other.store.schema.identity())
    assert identity is not None
    assert (identity.recorded_name, identity.name) == (str(database.path), str(copy))
    other.close()


def test_threads_that_migrate_at_once_apply_each_step_once(path: Path) -> None:
    databases = [SqliteDatabase(path) for _ in range(8)]
    with ThreadPoolExecutor(len(databases)) as threads:
        applied = list(threads.map(SqliteDatabase.migrate, databases))
    assert sum(len(steps) for steps in applied) == len(load_migrations("holdfast.storage.sqlite"))
    for database in databases:
        database.close()


def test_others_write_between_two_steps_of_an_upgrade(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = load_migrations("holdfast.storage.sqlite")
    with monkeypatch.context() as earlier:
        earlier.setattr(migrations, "load_migrations", lambda _: known[:-3])
        SqliteDatabase(path).migrate()
    seen: list[int] = []

    def write(_: float) -> None:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            other.execute("begin immediate")
            read = "select max(version) from holdfast_schema_version"
            seen.append(other.execute(read).fetchone()[0])

    monkeypatch.setattr("holdfast.storage.sqlite.migrations.time.sleep", write)
    applied = [each.version for each in SqliteDatabase(path).migrate()]
    assert applied == [each.record.version for each in known[-3:]]
    assert seen == applied[:-1]


def test_a_schema_that_no_longer_serves_this_code_is_refused(database: SqliteDatabase) -> None:
    with database.transaction() as transaction:
        transaction.execute("insert into holdfast_schema_version values (99, 'later', '', 99, 0)")
    with pytest.raises(SchemaTooNew):
        database.check()
    with pytest.raises(SchemaTooNew):
        database.migrate()


def test_a_step_that_was_changed_is_refused(database: SqliteDatabase) -> None:
    with database.transaction() as transaction:
        transaction.execute("update holdfast_schema_version set checksum = 'another'")
    for look in (database.migrate, database.check):
        with pytest.raises(SchemaChanged):
            look()


def test_a_file_without_the_tables_is_named_as_such(path: Path) -> None:
    database = SqliteDatabase(path)
    with pytest.raises(SchemaTooOld):
        database.check()
    with pytest.raises(WrongDatabase, match="no such table"):
        database.run(database.store.jobs.insert([new_job()]))
    with pytest.raises(WrongDatabase):
        database.read(database.store.jobs.get([]))
    database.close()


def test_the_printed_script_makes_the_same_database(
    database: SqliteDatabase, tmp_path: Path
) -> None:
    by_hand = tmp_path / "by_hand.db"
    with closing(sqlite3.connect(by_hand)) as connection:
        connection.executescript(migration_sql())
        expected = connection.execute(SCHEMA).fetchall()
    with database.transaction() as transaction:
        assert transaction.execute(SCHEMA).fetchall() == expected
    other = SqliteDatabase(by_hand)
    assert other.migrate() == []
    identity = other.read(other.store.schema.identity())
    assert identity is not None
    assert identity.recorded_name == str(by_hand)
    other.close()

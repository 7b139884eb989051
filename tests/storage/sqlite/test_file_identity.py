"""A file that is moved, deleted or replaced while a process has it open."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import DatabaseUnreachable
from holdfast.storage.operation import Op
from holdfast.storage.sqlite.database import SqliteDatabase


def names_of(path: Path) -> list[Path]:
    """The file and those that SQLite keeps beside it."""
    return [each for each in path.parent.iterdir() if each.name.startswith(path.name)]


def moved(path: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for each in names_of(path):
        each.rename(folder / each.name)


def calls(database: SqliteDatabase) -> list[Any]:
    """One call on each kind of connection."""

    def clock() -> Op[Any]:
        return database.store.schema.clock()

    return [lambda: database.run(clock()), lambda: database.read(clock()), lambda: _begin(database)]


def _begin(database: SqliteDatabase) -> None:
    with database.transaction() as tx:
        tx.execute("select 1")


def test_a_file_that_is_gone_is_told_and_not_made_anew(
    database: SqliteDatabase, path: Path
) -> None:
    for call in calls(database):
        call()
    for each in names_of(path):
        each.unlink()
    for call in calls(database):
        with pytest.raises(DatabaseUnreachable, match="is gone"):
            call()
    assert not path.exists()


def test_a_file_that_comes_back_is_used_again(database: SqliteDatabase, path: Path) -> None:
    away = path.parent / "away"
    for call in calls(database):
        call()
    moved(path, away)
    with pytest.raises(DatabaseUnreachable):
        calls(database)[0]()
    moved(away / path.name, path.parent)
    for call in calls(database):
        call()


def test_a_file_in_the_place_of_another_is_the_one_that_is_written(
    database: SqliteDatabase, path: Path
) -> None:
    database.run(database.store.schema.identify("00000000-0000-7000-8000-000000000001"))
    moved(path, path.parent / "away")
    other = SqliteDatabase(path)
    other.migrate()
    found = database.run(database.store.schema.identity())
    assert found == other.run(other.store.schema.identity())
    other.close()


def test_a_transaction_open_meanwhile_does_not_bring_its_connection_back(
    database: SqliteDatabase, path: Path
) -> None:
    with database.transaction() as tx:
        tx.execute("select 1")
        moved(path, path.parent / "away")
    with closing(sqlite3.connect(path)) as other:
        other.execute("create table business (id int)")
        with database.transaction() as tx:
            tx.execute("insert into business values (7)")
        assert other.execute("select id from business").fetchall() == [(7,)]

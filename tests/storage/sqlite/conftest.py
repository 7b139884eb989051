"""A migrated SQLite file for each test, closed afterwards."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.storage.sqlite.database import SqliteDatabase


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a file that is not there yet."""
    return tmp_path / "holdfast.db"


@pytest.fixture
def database(path: Path, sqlite_template: Path) -> Iterator[SqliteDatabase]:
    """A database with its tables."""
    made = SqliteDatabase(shutil.copy(sqlite_template, path))
    made.migrate()
    yield made
    made.close()

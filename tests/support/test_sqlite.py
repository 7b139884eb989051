"""A prepared file is what a migration makes, under an identity of its own."""

import sqlite3
from contextlib import closing
from pathlib import Path

from holdfast import Holdfast


def contents(url: str) -> tuple[list[str], list[str]]:
    """The rows of a file as statements, and its identity."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        lines = list(connection.iterdump())
    own = ("holdfast_identity", "holdfast_schema_version")
    rows = [each for each in lines if not any(f'INTO "{name}"' in each for name in own)]
    return rows, [each for each in lines if 'INTO "holdfast_identity"' in each]


def test_a_copy_is_like_a_file_that_was_migrated(sqlite_url: str, tmp_path: Path) -> None:
    migrated = Holdfast(f"sqlite:///{tmp_path / 'other.db'}")
    copied = Holdfast(sqlite_url)
    for app in (migrated, copied):
        app.migrate()
        app.close()
    rows, identity = contents(migrated.url)
    assert contents(copied.url)[0] == rows
    assert identity
    assert contents(copied.url)[1] not in ([], identity)

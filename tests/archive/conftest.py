"""An application with an archive on each store, and tables of its own to archive."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.core.instants import to_instant
from holdfast_archive import Archive
from holdfast_archive.manifest import Manifest
from holdfast_files import Files, open_files

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
"""When the tests happen."""


@dataclass
class Place:
    """A database with an archive; `now` is the time that the archive sees, and tests move."""

    url: str
    files: Files
    app: Holdfast
    archive: Archive
    root: Path
    now: datetime = NOW
    opened: list[Any] = field(default_factory=list)

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is SQLite."""
        return self.url.startswith("sqlite")

    def execute(
        self, postgres: str, sqlite: str | None = None, params: Sequence[Any] = ()
    ) -> list[Any]:
        """Run a statement of the test's own, in the dialect of the place; `?` marks values."""
        if self.is_sqlite:
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as file:
                found = file.execute(sqlite or postgres, params).fetchall()
                file.commit()
                return found
        with psycopg.connect(self.url) as connection:
            text = postgres.replace("%", "%%").replace("?", "%s") if params else postgres
            cursor = connection.execute(text.encode(), params or None)
            return cursor.fetchall() if cursor.description else []

    def fill(self, rows: Sequence[tuple[int, str, datetime | None]]) -> None:
        """Insert deliveries: id, note, when they were completed."""
        for id, note, at in rows:
            moment: Any = at
            if self.is_sqlite and at is not None:
                moment = to_instant(at)
            self.execute(
                "insert into deliveries (id, note, completed_at) values (?, ?, ?)",
                params=(id, note, moment),
            )

    def rows(self, table: str = "deliveries") -> list[str]:
        """Return every row of a table bit for bit, as the database writes it."""
        if not self.is_sqlite:
            return [
                row[0]
                for row in self.execute("select t::text from #t t order by 1".replace("#t", table))
            ]
        names = [row[1] for row in self.execute("", f"pragma table_info({table})")]
        # A text that is not UTF-8 could not be read as one.
        shown = " || '|' || ".join(
            f"typeof({each}) || case when typeof({each}) in ('text', 'blob') then hex({each}) else quote({each}) end"
            for each in names
        )
        text = "select #c from #t order by 1".replace("#c", shown).replace("#t", table)
        return [row[0] for row in self.execute("", text)]

    def later(self, **spans: float) -> None:
        """Let time pass for the archive."""
        self.now += timedelta(**spans)

    def manifests(self) -> list[tuple[str, str]]:
        """Return names and states, oldest first."""
        return [(each.name, each.state) for each in reversed(self.archive.list())]

    def object_path(self, manifest: Manifest, place: int = 0) -> Path:
        """Return where an object of a manifest lies."""
        return self.root / manifest.objects[place].key


def place_at(url: str, root: Path, **options: Any) -> Place:
    """Make a place, and the table of deliveries in it."""
    app = Holdfast(url)
    files = open_files(root)
    place = Place(url, files, app, Archive(lambda: app.database, files), root)
    place.archive = Archive(
        lambda: app.database, files, now=lambda: to_instant(place.now), **options
    )
    app.migrate()
    place.execute(
        "create table deliveries (id bigint primary key, note text, completed_at timestamptz)",
        "create table deliveries (id integer primary key, note text, completed_at integer)",
    )
    return place


@pytest.fixture(params=["postgres", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An archive in a directory, on each store."""
    found = place_at(request.getfixturevalue(f"{request.param}_url"), tmp_path / "archive")
    yield found
    found.app.close()

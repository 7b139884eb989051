"""What is archived: tables of the application's, and Holdfast's own ended chains."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self, TypeAlias
from zoneinfo import ZoneInfo

from holdfast.core.instants import Instant, to_instant
from holdfast.storage.database import Database
from holdfast.storage.operation import Row
from holdfast.storage.store.params import texts
from holdfast_archive.errors import ArchiveSourceInvalid
from holdfast_archive.manifest import Period, PeriodLength, period_of
from holdfast_archive.table_access import (
    MEMBERS,
    Batches,
    RowSelection,
    Shape,
    TableAccess,
    TimeSpan,
    span_of,
)

EARLIEST = datetime(1, 1, 3, tzinfo=UTC)
"""Rows from before the year 1 belong to no period."""


@dataclass(slots=True)
class Member:
    """One table of a period as it is exported: its rows, of which `select` keeps those that no live part covers."""

    name: str
    shape: Shape
    open: Callable[[Shape], Batches]
    select: Callable[[Shape, Sequence[Row]], tuple[Sequence[Row], int]]
    items: int = 0

    def rows(self, shape: Shape) -> Batches:
        """Read the rows from the beginning."""
        self.items = 0
        return self.open(shape)

    def keep(self, shape: Shape, rows: Sequence[Row]) -> Sequence[Row]:
        """Return the rows to be written, and count their items."""
        kept, items = self.select(shape, rows)
        self.items += items
        return kept


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table of the application's own; an item is a row."""

    name: str
    selection: RowSelection
    length: PeriodLength
    grace_ms: int
    keep_ms: int | None

    @property
    def zone(self) -> ZoneInfo:
        """The zone whose days or months are archived."""
        return self.selection.zone

    @property
    def table(self) -> str:
        """The table."""
        return self.selection.table

    def prepare(self, access: TableAccess, database: Database) -> None:
        """Make ready for a run; one table needs nothing."""

    def first(self, access: TableAccess, connection: Any, span: TimeSpan) -> Instant | None:
        """Return when the first item of a span is."""
        return access.first(connection, self.selection, span)

    def count(self, access: TableAccess, connection: Any, period: Period) -> int:
        """Count the items of a period."""
        return access.count(connection, self.selection, span_of(period))

    def members(
        self, access: TableAccess, connection: Any, period: Period, covered: Seen
    ) -> Iterator[Member]:
        """Yield the tables to be exported, one after the other; items in `covered` are left out."""
        span = span_of(period)
        shape = access.shape(connection, self.table, self.selection.key)
        shape = access.fit_kinds(connection, shape, self.selection, span)
        places = shape.places

        def select(shape: Shape, rows: Sequence[Row]) -> tuple[Sequence[Row], int]:
            if any(row[place] is None for row in rows for place in places):
                raise ArchiveSourceInvalid(f"a row of {self.table} has no {', '.join(shape.key)}")
            if covered:
                prints = access.prints(shape.columns, rows)
                rows = [row for row, each in zip(rows, prints, strict=True) if each not in covered]
            return rows, len(rows)

        yield Member(
            self.table,
            shape,
            lambda shape: access.rows(connection, shape, self.selection, span),
            select,
        )

    def cover(self, access: TableAccess, table: str, columns: Any, batch: Any) -> list[Any]:
        """Return what `members` will find of a file's rows in `covered`."""
        return access.prints_of(columns, batch)


@dataclass(frozen=True, slots=True)
class ChainSource:
    """Holdfast's chains that ended in some states, with everything they consist of; an item is a chain."""

    name: str
    states: tuple[str, ...]
    length: PeriodLength
    zone: ZoneInfo
    grace_ms: int
    keep_ms: int | None
    table: str = field(default="job")

    def prepare(self, access: TableAccess, database: Database) -> None:
        """See `TableSource`."""
        access.analyze_chains(database)

    def first(self, access: TableAccess, connection: Any, span: TimeSpan) -> Instant | None:
        """See `TableSource`."""
        ends = (to_instant(span[0]), to_instant(span[1]))
        return access.first_chain(connection, texts(self.states), ends)

    def count(self, access: TableAccess, connection: Any, period: Period) -> int:
        """See `TableSource`."""
        ends = (period.start_at, period.end_at)
        return access.count_chains(connection, texts(self.states), ends)

    def members(
        self, access: TableAccess, connection: Any, period: Period, covered: Seen
    ) -> Iterator[Member]:
        """See `TableSource`. The jobs come first: what is left out of them decides about the rest."""
        states, ends = texts(self.states), (period.start_at, period.end_at)
        for name in MEMBERS:
            shape = access.member(connection, name)
            shape = access.chain_shape(connection, shape, name, states, ends)
            rows = partial(access.chain_rows, connection, name=name, states=states, period=ends)
            select = partial(_select_jobs if name == "job" else _select_parts, covered)
            yield Member(name, shape, rows, select)

    def cover(self, access: TableAccess, table: str, columns: Any, batch: Any) -> list[Any]:
        """See `TableSource`."""
        chains = batch.column("chain_id").to_pylist() if table == "job" else []
        return [("chain", each) for each in chains]


Source: TypeAlias = TableSource | ChainSource
"""Rows by period: where they are, and what makes one file or several of them."""


def _select_jobs(covered: Seen, shape: Shape, rows: Sequence[Row]) -> tuple[Sequence[Row], int]:
    id, chain, index = shape.places_of("id", "chain_id", "chain_index")
    if covered:
        left_out = [row for row in rows if ("chain", row[chain]) in covered]
        covered.add(("job", row[id]) for row in left_out)
        rows = [row for row in rows if ("chain", row[chain]) not in covered]
    return rows, sum(str(row[index]) == "0" for row in rows)


def _select_parts(covered: Seen, shape: Shape, rows: Sequence[Row]) -> tuple[Sequence[Row], int]:
    if covered:
        (job, *_) = shape.places
        rows = [row for row in rows if ("job", row[job]) not in covered]
    return rows, 0


def closed_until(source: Source, now: Instant) -> datetime:
    """Return the start of the first period that may still get rows."""
    return period_of(now - source.grace_ms * 1000, source.length, source.zone).start


class Seen:
    """The digests of values, for one export: in a temporary file, as there may be more than fit into memory."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "seen.db"
        self._file: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        if self._file is not None:
            self._file.close()

    def __bool__(self) -> bool:
        return self._file is not None

    def add(self, values: Iterable[object]) -> None:
        """Add values."""
        if self._file is None:
            self._file = sqlite3.connect(self._path, isolation_level=None)
            self._file.execute("pragma journal_mode = off")
            self._file.execute("pragma synchronous = off")
            self._file.execute("create table seen (digest blob primary key) without rowid")
            self._file.execute("begin")
        rows = ((_digest(each),) for each in values)
        self._file.executemany("insert or ignore into seen values (?)", rows)

    def __contains__(self, value: object) -> bool:
        if self._file is None:
            return False
        found = self._file.execute("select 1 from seen where digest = ?", (_digest(value),))
        with closing(found):
            return found.fetchone() is not None


def _digest(value: object) -> bytes:
    return blake2b(repr(value).encode("utf-8", "surrogateescape"), digest_size=16).digest()


def tables_of(database: Database) -> TableAccess:
    """Return how the tables of a database are read and written."""
    if database.store.dialect == "sqlite":
        from holdfast_archive.sqlite_tables import SqliteTables

        return SqliteTables(database.schema)
    from holdfast_archive.postgres_tables import PostgresTables

    return PostgresTables(database.schema)

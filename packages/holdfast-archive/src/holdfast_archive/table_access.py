"""Tables that are archived, whichever database they are in: what they look like, and their rows in and out.

The statements are in `sql`; names of tables and columns, and the application's own conditions, are put in quoted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from string import Template
from typing import Any, Literal
from zoneinfo import ZoneInfo

import msgspec

from holdfast.core.instants import Instant
from holdfast.storage.database import Database
from holdfast.storage.operation import Row
from holdfast.storage.sql_loader import (
    Compiled,
    ParamStyle,
    compile_statement,
    load_statements,
    place_schema,
    quote,
    without_comments,
)
from holdfast_archive.errors import ArchiveSourceInvalid
from holdfast_archive.manifest import Period

Unit = Literal["us", "ms", "s"]
UNIT_US: Mapping[str, int] = {"us": 1, "ms": 1_000, "s": 1_000_000}

MEMBERS: Mapping[str, tuple[str, ...]] = {
    "job": ("id",),
    "outcome": ("job_id",),
    "attempt": ("job_id", "fence", "attempt"),
    "blocker": ("job_id", "position"),
    "progress": ("job_id",),
    "step": ("job_id", "name", "key", "nth"),
}
"""The tables that a chain consists of, with their keys; the job's own comes first."""


class TableColumn(msgspec.Struct, frozen=True):
    """A column of a table: its name, the database's type, the kind of its Arrow values, and if it is computed."""

    name: str
    type: str
    kind: str
    is_generated: bool = False


class Unfit(Exception):
    """A column holds a value that its kind cannot hold, such as a text that is not UTF-8."""

    def __init__(self, column: TableColumn) -> None:
        super().__init__(column.name)
        self.column = column


@dataclass(frozen=True, slots=True)
class Shape:
    """A table as it is: its name as SQL, its columns, and the key that identifies a row."""

    table: str
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]

    @property
    def places(self) -> list[int]:
        """Where the columns of the key are."""
        return self.places_of(*self.key)

    def places_of(self, *names: str) -> list[int]:
        """Return where columns are."""
        columns = [each.name for each in self.columns]
        return [columns.index(each) for each in names]

    def with_columns(self, columns: Sequence[TableColumn]) -> Shape:
        """Return the table with columns as a file has them. Raises: ArchiveSourceInvalid."""
        own = {each.name: each for each in self.columns}
        missing = [each.name for each in columns if each.name not in own]
        if missing or len(columns) != len(own):
            names = ", ".join(
                missing or [each for each in own if each not in {c.name for c in columns}]
            )
            raise ArchiveSourceInvalid(
                f"the file and {self.table} do not have the same columns: {names}"
            )
        found = (_mark_generated(each, own[each.name].is_generated) for each in columns)
        return replace(self, columns=tuple(found))


def _mark_generated(column: TableColumn, is_generated: bool) -> TableColumn:
    return msgspec.structs.replace(column, is_generated=is_generated)


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Which rows of a table belong to a period: by a column with their time, and a condition of the application's."""

    table: str
    key: tuple[str, ...]
    at: str
    where: str
    zone: ZoneInfo
    unit: Unit | None = None


Print = Hashable | None
"""Equal for two rows only where not a single bit differs."""

TimeSpan = tuple[datetime, datetime]
"""From, inclusive, and until, exclusive; in the zone of the source."""


class TableAccess(ABC):
    """Rows of tables through a connection of one driver."""

    dialect: str
    style: ParamStyle

    def __init__(self, schema: str) -> None:
        self._schema = schema

    @abstractmethod
    def prepare(self, connection: Any) -> None:
        """Have the session write values in one fixed way until the transaction ends."""

    @abstractmethod
    def shape(self, connection: Any, table: str, key: Sequence[str]) -> Shape:
        """Look at a table. Raises: ArchiveSourceInvalid when it is missing or the key does not identify a row."""

    def columns(self, connection: Any, table: str) -> tuple[TableColumn, ...]:
        """Return the columns of a table. Raises: ArchiveSourceInvalid when there is no such table."""
        return self._columns_of(self._describe_table(connection, table))

    @abstractmethod
    def member(self, connection: Any, name: str) -> Shape:
        """Return one of the tables that Holdfast's chains consist of."""

    @abstractmethod
    def first(self, connection: Any, selection: RowSelection, span: TimeSpan) -> Instant | None:
        """Return when the first row of a span is."""

    def count(self, connection: Any, selection: RowSelection, span: TimeSpan) -> int:
        """Count the rows of a span."""
        parts, params = self._range(connection, selection, span)
        return int(self._run(connection, self._statement("count", **parts), params)[0][0])

    def fit_kinds(
        self, connection: Any, shape: Shape, selection: RowSelection, span: TimeSpan
    ) -> Shape:
        """Return the shape with kinds that hold every value of a span."""
        return shape

    def rows(
        self, connection: Any, shape: Shape, selection: RowSelection, span: TimeSpan
    ) -> Batches:
        """Read the rows of a span in the order of their keys."""
        parts, params = self._range(connection, selection, span)
        order = ", ".join(map(quote, shape.key))
        statement = self._statement("rows", **parts, columns=self._columns(shape), key=order)
        return self._stream(connection, statement, params)

    @abstractmethod
    def lookup(
        self,
        connection: Any,
        shape: Shape,
        keys: Sequence[Sequence[Any]],
        locked_in: tuple[RowSelection, TimeSpan] | None = None,
    ) -> list[Row]:
        """Read rows by their keys; with a span only those in it, and nobody else changes them then."""

    @abstractmethod
    def delete(self, connection: Any, shape: Shape, keys: Sequence[Sequence[Any]]) -> None:
        """Delete rows by their keys."""

    @abstractmethod
    def insert(self, connection: Any, shape: Shape, rows: Sequence[Row]) -> None:
        """Insert rows; what the database computes is left to it."""

    @abstractmethod
    def prints(self, columns: Sequence[TableColumn], rows: Sequence[Row]) -> list[Print]:
        """Return what rows of the database are compared by; None for one that the columns cannot hold."""

    @abstractmethod
    def prints_of(self, columns: Sequence[TableColumn], batch: Any) -> list[Print]:
        """Return what rows of a file are compared by."""

    @abstractmethod
    def move(
        self,
        connection: Any,
        selection: RowSelection,
        target: str,
        columns: Sequence[str],
        until: datetime,
        limit: int,
    ) -> int:
        """Move rows that are older than a moment to another table; return how many."""

    @abstractmethod
    def loosen(self, column: TableColumn) -> TableColumn:
        """Return a column that can hold any value, as text."""

    @abstractmethod
    def _describe_table(
        self, connection: Any, table: str, wanted: Sequence[str] = ()
    ) -> list[Row]: ...

    @abstractmethod
    def _columns_of(self, described: Sequence[Row]) -> tuple[TableColumn, ...]: ...

    @abstractmethod
    def _range(
        self, connection: Any, selection: RowSelection, span: TimeSpan
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the parts and the parameters of a statement on the rows of a span."""

    @abstractmethod
    def _run(
        self, connection: Any, statement: Compiled, params: Mapping[str, Any]
    ) -> list[Row]: ...

    @abstractmethod
    def _stream(
        self, connection: Any, statement: Compiled, params: Mapping[str, Any]
    ) -> Batches: ...

    @abstractmethod
    def analyze_chains(self, database: Database) -> None:
        """Have the server look at the tables that chains consist of, if it plans by what it saw there last."""

    def first_chain(
        self, connection: Any, states: str, period: tuple[Instant, Instant]
    ) -> Instant | None:
        """Return when the first chain of a span ended."""
        found = self._chains(connection, "chains_first", states, period)[0][0]
        return None if found is None else int(found)

    def count_chains(self, connection: Any, states: str, period: tuple[Instant, Instant]) -> int:
        """Count the chains that ended in a span."""
        return int(self._chains(connection, "chains_count", states, period)[0][0])

    def chain_shape(
        self, connection: Any, shape: Shape, name: str, states: str, period: tuple[Instant, Instant]
    ) -> Shape:
        """Return the shape with kinds that hold every value of the chains of a span."""
        return shape

    def chain_rows(
        self, connection: Any, shape: Shape, name: str, states: str, period: tuple[Instant, Instant]
    ) -> Batches:
        """Read one table's rows of the chains that ended in a span, chain by chain."""
        params = {"states": states, "start": period[0], "until": period[1]}
        statement = self._statement("chains_rows", **self._member_parts(shape, name))
        return self._stream(connection, statement, params)

    def chain_lookup(self, connection: Any, shape: Shape, name: str, chains: str) -> list[Row]:
        """Read one table's rows of some chains, chain by chain."""
        statement = self._statement("chains_lookup", **self._member_parts(shape, name))
        return self._run(connection, statement, {"chains": chains})

    def _chains(
        self, connection: Any, name: str, states: str, period: tuple[Instant, Instant]
    ) -> list[Row]:
        params = {"states": states, "start": period[0], "until": period[1]}
        return self._run(connection, self._statement(name), params)

    def _member_parts(self, shape: Shape, name: str) -> dict[str, str]:
        return {
            "columns": self._columns(shape, "t."),
            "table": shape.table,
            "link": MEMBERS[name][0],
            "key": ", ".join(f"t.{quote(each)}" for each in shape.key),
        }

    def _columns(self, shape: Shape, prefix: str = "") -> str:
        return ", ".join(prefix + quote(each.name) for each in shape.columns)

    def _statement(self, name: str, **parts: str) -> Compiled:
        return _compile(self.dialect, self.style, self._schema, name, tuple(parts.items()))


class Batches(Iterator[list[Row]]):
    """Rows of a cursor; `expect` says how large a batch is, so that the next ones take about as much memory."""

    FIRST, MAX = 50, 500
    BYTES = 4 * 1024 * 1024

    def __init__(self, cursor: Any) -> None:
        self.size = self.FIRST
        self._cursor = cursor

    def __next__(self) -> list[Row]:
        rows: list[Row] = self._cursor.fetchmany(self.size)
        if not rows:
            raise StopIteration
        return rows

    def close(self) -> None:
        """Leave the rest unread."""
        self._cursor.close()

    def expect(self, rows: int, size: int) -> None:
        """Choose how many rows to read at a time, by the size of the last ones."""
        if rows:
            self.size = max(1, min(self.MAX, self.BYTES * rows // max(size, 1)))


@cache
def _compile(
    dialect: str, style: ParamStyle, schema: str, name: str, parts: tuple[tuple[str, str], ...]
) -> Compiled:
    text = without_comments(load_statements("holdfast_archive")[f"{dialect}_{name}"])
    if dialect == "postgres":
        text = place_schema(text, schema)
    return compile_statement(Template(text).substitute(dict(parts)), style)


def check_columns(table: str, columns: Sequence[str], wanted: Sequence[str]) -> None:
    """Raises: ArchiveSourceInvalid for a table or columns that do not exist."""
    if not columns:
        raise ArchiveSourceInvalid(f"there is no table {table}")
    missing = [each for each in wanted if each not in columns]
    if missing:
        raise ArchiveSourceInvalid(
            f"{table} has no column {missing[0]}", help=f"it has {', '.join(columns)}"
        )


def not_unique(table: str, key: Sequence[str]) -> ArchiveSourceInvalid:
    """Return the error for a key that may name several rows."""
    return ArchiveSourceInvalid(
        f"{', '.join(key)} does not identify a row of {table}",
        help="name the primary key, or columns with a unique index; none of them may be null",
    )


def span_of(period: Period) -> TimeSpan:
    """Return the span of a period."""
    return period.start, period.end

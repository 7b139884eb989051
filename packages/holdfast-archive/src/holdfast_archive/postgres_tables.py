"""Tables of a PostgreSQL database: every value as the text that the server writes, under settings that are fixed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec
import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.rows import tuple_row
from psycopg.types.none import NoneDumper
from psycopg.types.string import ByteaLoader, StrDumper, TextLoader

from holdfast.core.instants import Instant, to_instant
from holdfast.storage.database import Database
from holdfast.storage.operation import Row
from holdfast.storage.sql_loader import Compiled, quote, quote_table
from holdfast.storage.store.params import document, texts
from holdfast_archive.errors import ArchiveSourceInvalid
from holdfast_archive.table_access import (
    MEMBERS,
    UNIT_US,
    Batches,
    Print,
    RowSelection,
    Shape,
    TableAccess,
    TableColumn,
    TimeSpan,
    Unfit,
    check_columns,
    not_unique,
)

_KINDS: Mapping[str, str] = {
    "bool": "bool",
    "int2": "int16",
    "int4": "int32",
    "int8": "int64",
    "float4": "float32",
    "float8": "float64",
    "bytea": "bytes",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
}
_TIMES = {
    "timestamp with time zone": "timestamptz",
    "timestamp without time zone": "timestamp",
    "date": "date",
}
_PRECISION = re.compile(r"\(\d\)")
_NUMBERS = frozenset({"smallint", "integer", "bigint"})

# The instant of the smallest time, in microseconds; a time without a zone is one of the source's zone.
_INSTANTS: Mapping[str, str] = {
    "timestamptz": "(extract(epoch from at) * 1000000)::bigint",
    "timestamp": "(extract(epoch from at at time zone :zone) * 1000000)::bigint",
    "date": "(extract(epoch from at::timestamp at time zone :zone) * 1000000)::bigint",
    "bigint": "at::bigint * :unit::bigint",
}


class PostgresTables(TableAccess):
    """See `TableAccess`. Rows come from a cursor of the server's and go back with COPY."""

    dialect = "postgres"
    style = "pyformat"

    def prepare(self, connection: Any) -> None:
        self._run(connection, self._statement("prepare"), {})

    def shape(self, connection: Any, table: str, key: Sequence[str]) -> Shape:
        named = quote_table(table)
        rows = self._describe_table(connection, table, key)
        given = {"table": named, "key": texts(key)}
        is_unique = self._run(connection, self._statement("unique"), given)[0][0] == "t"
        if not is_unique or not all(row[4] == "t" for row in rows if row[0] in key):
            raise not_unique(table, key)
        return Shape(named, self._columns_of(rows), tuple(key))

    def member(self, connection: Any, name: str) -> Shape:
        return self.shape(connection, f"{self._schema}.{name}", MEMBERS[name])

    def first(self, connection: Any, selection: RowSelection, span: TimeSpan) -> Instant | None:
        parts, params = self._range(connection, selection, span)
        params |= {"zone": selection.zone.key, "unit": UNIT_US[selection.unit or "us"]}
        instant = _INSTANTS[parts["at_type"]]
        found = self._run(connection, self._statement("first", **parts, instant=instant), params)
        return None if found[0][0] is None else int(found[0][0])

    def analyze_chains(self, database: Database) -> None:
        with database.transaction() as tx:
            self.prepare(tx.connection)
            self._run(tx.connection, self._statement("chains_analyze"), {})

    def lookup(
        self,
        connection: Any,
        shape: Shape,
        keys: Sequence[Sequence[Any]],
        locked_in: tuple[RowSelection, TimeSpan] | None = None,
    ) -> list[Row]:
        parts, params = self._keys(shape, keys)
        if locked_in is not None:
            # So that the server looks only into the partitions of the span.
            ranged, more = self._range(connection, *locked_in)
            parts["range"] = "and {at} >= :start::{type} and {at} < :until::{type}".format(
                at=ranged["at"], type=ranged["at_type"]
            )
            params |= more
        name = "lookup" if locked_in is None else "lock"
        statement = self._statement(name, **parts, columns=self._columns(shape))
        return self._run(connection, statement, params)

    def delete(self, connection: Any, shape: Shape, keys: Sequence[Sequence[Any]]) -> None:
        parts, params = self._keys(shape, keys)
        self._run(connection, self._statement("delete", **parts), params)

    def insert(self, connection: Any, shape: Shape, rows: Sequence[Row]) -> None:
        places = [place for place, each in enumerate(shape.columns) if not each.is_generated]
        columns = ", ".join(quote(shape.columns[place].name) for place in places)
        statement = self._statement("copy", table=shape.table, columns=columns)
        with connection.cursor() as cursor, cursor.copy(statement.text.encode()) as copy:
            for row in rows:
                copy.write_row([row[place] for place in places])

    def prints(self, columns: Sequence[TableColumn], rows: Sequence[Row]) -> list[Print]:
        from holdfast_archive.parquet_file import batch_of

        try:
            return self.prints_of(columns, batch_of(columns, rows))
        except Unfit:
            if len(rows) == 1:
                return [None]
        return [each for row in rows for each in self.prints(columns, [row])]

    def prints_of(self, columns: Sequence[TableColumn], batch: Any) -> list[Print]:
        from holdfast_archive.parquet_file import comparable_rows

        return list(comparable_rows(columns, batch))

    def loosen(self, column: TableColumn) -> TableColumn:
        return msgspec.structs.replace(column, kind="text")

    def move(
        self,
        connection: Any,
        selection: RowSelection,
        target: str,
        columns: Sequence[str],
        until: datetime,
        limit: int,
    ) -> int:
        parts, params = self._range(connection, selection, (until, until))
        del parts["table"], params["start"]
        names = ", ".join(map(quote, columns))
        returned = ", ".join(f"t.{quote(each)}" for each in columns)
        statement = self._statement(
            "move",
            **parts,
            source=quote_table(selection.table),
            target=quote_table(target),
            columns=names,
            returned=returned,
        )
        with OwnTextCursor(connection) as cursor:
            cursor.execute(statement.data, _as_texts(params | {"limit": limit}))
            return cursor.rowcount

    def _keys(
        self, shape: Shape, keys: Sequence[Sequence[Any]]
    ) -> tuple[dict[str, str], dict[str, Any]]:
        types = {each.name: each.type for each in shape.columns}
        given = ", ".join(f"(k ->> {place})::{types[name]}" for place, name in enumerate(shape.key))
        parts = {
            "table": shape.table,
            "key": ", ".join(map(quote, shape.key)),
            "given": given,
            "range": "",
        }
        return parts, {"keys": document([[_key_text(each) for each in key] for key in keys])}

    def _range(
        self, connection: Any, selection: RowSelection, span: TimeSpan
    ) -> tuple[dict[str, str], dict[str, Any]]:
        at_type = self._at_type(connection, selection)
        parts = {
            "table": quote_table(selection.table),
            "at": quote(selection.at),
            "at_type": at_type,
            "filter": selection.where,
        }
        return parts, {
            "start": _bound(span[0], at_type, selection),
            "until": _bound(span[1], at_type, selection),
        }

    def _at_type(self, connection: Any, selection: RowSelection) -> str:
        rows = self._describe_table(connection, selection.table, [selection.at])
        declared = next(row[1] for row in rows if row[0] == selection.at)
        if declared in _NUMBERS:
            return "bigint"
        found = _TIMES.get(_PRECISION.sub("", declared))
        if found is None:
            raise ArchiveSourceInvalid(
                f"{selection.table}.{selection.at} is {declared}, not a time",
                help="use a column of type timestamptz, timestamp, date, or bigint with its unit",
            )
        return found

    def _describe_table(self, connection: Any, table: str, wanted: Sequence[str] = ()) -> list[Row]:
        given = {"table": quote_table(table)}
        rows = self._run(connection, self._statement("columns"), given)
        check_columns(table, [row[0] for row in rows], wanted)
        return rows

    def _run(self, connection: Any, statement: Compiled, params: Mapping[str, Any]) -> list[Row]:
        with OwnTextCursor(connection) as cursor:
            cursor.execute(statement.data, _as_texts(params))
            return cursor.fetchall() if cursor.description else []

    def _stream(self, connection: Any, statement: Compiled, params: Mapping[str, Any]) -> Batches:
        cursor = _OwnServerCursor(connection, f"holdfast_archive_{next(_numbers)}")
        return _ServerBatches(cursor.execute(statement.data, _as_texts(params)))

    def _columns_of(self, described: Sequence[Row]) -> tuple[TableColumn, ...]:
        return tuple(
            TableColumn(row[0], row[1], _KINDS.get(row[2], "text"), row[3] == "t")
            for row in described
        )


class OwnTextCursor(psycopg.Cursor[Row]):
    """A cursor that returns every value as the server's text, and bytes as bytes."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        return _ADAPTERS


class _OwnServerCursor(psycopg.ServerCursor[Row]):
    def __init__(self, connection: Any, name: str) -> None:
        super().__init__(connection, name, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        return _ADAPTERS


_numbers = count(1)


class _ServerBatches(Batches):
    def close(self) -> None:
        # After a failed statement the server takes no other, and has closed the cursor itself.
        with suppress(psycopg.Error):
            self._cursor.close()


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(types=psycopg.adapters.types)
    adapters.register_dumper(str, StrDumper)
    adapters.register_dumper(type(None), NoneDumper)
    adapters.register_loader(0, TextLoader)
    adapters.register_loader("bytea", ByteaLoader)
    return adapters


_ADAPTERS = _adapters()


def _as_texts(params: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: None if each is None else str(each) for name, each in params.items()}


def _key_text(value: Any) -> str:
    return f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)


def _bound(moment: datetime, at_type: str, selection: RowSelection) -> str:
    if at_type == "timestamptz":
        return moment.astimezone(UTC).isoformat()
    if at_type == "bigint":
        return str(to_instant(moment) // UNIT_US[selection.unit or "us"])
    local = moment.astimezone(selection.zone).replace(tzinfo=None)
    return (local.date() if at_type == "date" else local).isoformat()

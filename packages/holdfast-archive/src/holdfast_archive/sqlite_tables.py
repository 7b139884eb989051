"""Tables of a SQLite database, whose columns may hold values of several types."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from itertools import chain
from typing import Any

import msgspec

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
    check_columns,
    not_unique,
)

_TYPES: Mapping[str, str] = {"integer": "integer", "real": "real", "text": "text", "blob": "bytes"}
# A text is a time as SQLite's own functions read it, in UTC unless it says otherwise; they have milliseconds.
_FROM_TEXT = "(cast(round((julianday({at}) - 2440587.5) * 86400000) as integer) * 1000)"


class SqliteTables(TableAccess):
    """See `TableAccess`. Values come and go as Python has them; a text that is not UTF-8 keeps its bytes."""

    dialect = "sqlite"
    style = "named"

    def prepare(self, connection: Any) -> None:
        connection.text_factory = _text

    def analyze_chains(self, database: Database) -> None:
        pass  # SQLite plans without having looked.

    def shape(self, connection: Any, table: str, key: Sequence[str]) -> Shape:
        named = quote_table(table)
        given = {"table": table, "key": texts(key)}
        rows = self._describe_table(connection, table, key)
        kind = self._run(connection, self._statement("kind"), given)
        if kind and kind[0][0] != "table":
            raise ArchiveSourceInvalid(f"{table} is a {kind[0][0]}, not a table")
        primary = {row[0] for row in self._run(connection, self._statement("primary"), given)}
        is_unique = self._run(connection, self._statement("unique"), given)[0][0]
        if not (primary and primary <= set(key)) and not is_unique:
            raise not_unique(table, key)
        if not all(row[3] for row in rows if row[0] in key):
            raise not_unique(table, key)
        return Shape(named, self._columns_of(rows), tuple(key))

    def member(self, connection: Any, name: str) -> Shape:
        return self.shape(connection, f"holdfast_{name}", MEMBERS[name])

    def first(self, connection: Any, selection: RowSelection, span: TimeSpan) -> Instant | None:
        parts, params = self._range(connection, selection, span)
        found = self._run(connection, self._statement("first", **parts), params)[0][0]
        return None if found is None else found * int(parts["factor"])

    def fit_kinds(
        self, connection: Any, shape: Shape, selection: RowSelection, span: TimeSpan
    ) -> Shape:
        parts, params = self._range(connection, selection, span)
        statement = self._statement("types", **parts, types=_types(shape))
        return _with_kinds(shape, self._run(connection, statement, params)[0])

    def chain_shape(
        self, connection: Any, shape: Shape, name: str, states: str, period: tuple[Instant, Instant]
    ) -> Shape:
        params = {"states": states, "start": period[0], "until": period[1]}
        parts = self._member_parts(shape, name)
        statement = self._statement(
            "chains_types", types=_types(shape, "t."), table=parts["table"], link=parts["link"]
        )
        return _with_kinds(shape, self._run(connection, statement, params)[0])

    def lookup(
        self,
        connection: Any,
        shape: Shape,
        keys: Sequence[Sequence[Any]],
        locked_in: tuple[RowSelection, TimeSpan] | None = None,
    ) -> list[Row]:
        match, columns = _match(shape), self._columns(shape)
        text = self._statement("lookup", table=shape.table, columns=columns, match=match).text
        cursor = _cursor(connection)
        return list(
            chain.from_iterable(
                cursor.execute(text, key).fetchall() for key in map(_key_params, keys)
            )
        )

    def delete(self, connection: Any, shape: Shape, keys: Sequence[Sequence[Any]]) -> None:
        text = self._statement("delete", table=shape.table, match=_match(shape)).text
        _cursor(connection).executemany(text, map(_key_params, keys))

    def insert(self, connection: Any, shape: Shape, rows: Sequence[Row]) -> None:
        places = [place for place, each in enumerate(shape.columns) if not each.is_generated]
        columns = ", ".join(quote(shape.columns[place].name) for place in places)
        loose = {place for place in places if shape.columns[place].kind == "mixed"}
        # A text that is not UTF-8 comes as its bytes, and becomes a text again.
        given = ", ".join(
            f"iif(:t{n}, cast(:v{n} as text), :v{n})" if n in loose else f":v{n}" for n in places
        )
        text = self._statement("insert", table=shape.table, columns=columns, given=given).text
        _cursor(connection).executemany(text, (_insertable(row, places, loose) for row in rows))

    def prints(self, columns: Sequence[TableColumn], rows: Sequence[Row]) -> list[Print]:
        # Unlike the values, their texts tell 1 from 1.0 and 0.0 from -0.0.
        return [repr(row) for row in rows]

    def prints_of(self, columns: Sequence[TableColumn], batch: Any) -> list[Print]:
        from holdfast_archive.parquet_file import rows_of

        return self.prints(columns, rows_of(columns, batch))

    def loosen(self, column: TableColumn) -> TableColumn:
        return msgspec.structs.replace(column, kind="mixed")

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
        source, names = parts.pop("table"), ", ".join(map(quote, columns))
        del params["start"]
        statement = self._statement("moved_rows", **parts, source=source)
        found = self._run(connection, statement, params | {"limit": limit})
        given = {"rows": document([row[0] for row in found])}
        statement = self._statement(
            "move_in", source=source, target=quote_table(target), columns=names
        )
        self._run(connection, statement, given)
        self._run(connection, self._statement("move_out", source=source), given)
        return len(found)

    def _range(
        self, connection: Any, selection: RowSelection, span: TimeSpan
    ) -> tuple[dict[str, str], dict[str, Any]]:
        table, at = quote_table(selection.table), quote(selection.at)
        self._describe_table(connection, selection.table, [selection.at])
        sample = self._run(connection, self._statement("sample", table=table, at=at), {})
        is_text = bool(sample) and sample[0][0] == "text" and selection.unit is None
        factor = 1 if is_text else UNIT_US[selection.unit or "us"]
        parts = {
            "table": table,
            "instant": _FROM_TEXT.format(at=at) if is_text else at,
            "filter": selection.where,
            "factor": str(factor),
        }
        bounds = [to_instant(each) // factor for each in span]
        return parts, {"start": bounds[0], "until": bounds[1]}

    def _describe_table(self, connection: Any, table: str, wanted: Sequence[str] = ()) -> list[Row]:
        rows = self._run(connection, self._statement("columns"), {"table": table})
        check_columns(table, [row[0] for row in rows], wanted)
        return rows

    def _run(self, connection: Any, statement: Compiled, params: Mapping[str, Any]) -> list[Row]:
        return _cursor(connection).execute(statement.text, params).fetchall()

    def _stream(self, connection: Any, statement: Compiled, params: Mapping[str, Any]) -> Batches:
        return Batches(_cursor(connection).execute(statement.text, params))

    def _columns_of(self, described: Sequence[Row]) -> tuple[TableColumn, ...]:
        return tuple(TableColumn(row[0], row[1], "mixed", bool(row[2])) for row in described)


def _cursor(connection: Any) -> sqlite3.Cursor:
    """Return a plain cursor, whatever the connection's owner has set."""
    cursor = sqlite3.Cursor(connection)
    cursor.row_factory = None
    return cursor


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _match(shape: Shape) -> str:
    return " and ".join(f"{quote(name)} = :k{place}" for place, name in enumerate(shape.key))


def _key_params(key: Sequence[Any]) -> dict[str, Any]:
    return {f"k{place}": value for place, value in enumerate(key)}


def _insertable(row: Row, places: Sequence[int], loose: Set[int]) -> dict[str, Any]:
    found = {f"v{place}": row[place] for place in places}
    for place in loose:
        raw = _raw(row[place])
        found[f"t{place}"] = raw is not None
        if raw is not None:
            found[f"v{place}"] = raw
    return found


def _raw(value: Any) -> bytes | None:
    """Return the bytes of a text that is not UTF-8."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogateescape")
    return None


def _types(shape: Shape, prefix: str = "") -> str:
    return ", ".join(
        f"coalesce(max(typeof({prefix}{quote(each.name)}) = '{kind}'), 0)"
        for each in shape.columns
        for kind in _TYPES
    )


def _with_kinds(shape: Shape, found: Row) -> Shape:
    columns = []
    for place, column in enumerate(shape.columns):
        flags = found[place * len(_TYPES) : (place + 1) * len(_TYPES)]
        kinds = [kind for kind, flag in zip(_TYPES.values(), flags, strict=True) if flag]
        kind = kinds[0] if len(kinds) == 1 else "text" if not kinds else "mixed"
        columns.append(msgspec.structs.replace(column, kind=kind))
    return Shape(shape.table, tuple(columns), shape.key)

"""How lists and records travel to and from a statement: as one text each, so that no driver's codecs matter.

Most operations are one statement and one way of reading what it returns; those ways are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, get_origin

import msgspec

from holdfast.core.instants import Instant
from holdfast.storage.operation import Op, Row, Statement, Value

R = TypeVar("R", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder()
_lists = msgspec.json.Decoder(list[Any])


def document(rows: Sequence[Any] | Mapping[str, Any]) -> str:
    """Encode records or values as one JSON array, values by id as one JSON object."""
    return _encoder.encode(rows).decode()


def texts(values: Iterable[str]) -> str:
    """Encode a collection of ids, tokens or names as one JSON array."""
    return _encoder.encode(list(values)).decode()


def lists(text: str) -> list[Any]:
    """Read rows that came as one JSON array of arrays."""
    return _lists.decode(text)


def array(values: Sequence[str]) -> str:
    """Write ids or numbers as the text of a PostgreSQL array."""
    return "{" + ",".join(values) + "}"


def items(array: str) -> list[str]:
    """Read the text of a PostgreSQL array of ids."""
    return array[1:-1].split(",")


def record_of(kind: type[R], row: Row) -> R:
    """Read a row whose columns are the fields of a record, in their order.

    SQLite has no booleans, and what is no plain value comes as a JSON text.
    """
    values = list(row)
    for place, convert in _converters(kind):
        values[place] = convert(values[place])
    return kind(*values)


def records_of(kind: type[R], rows: Iterable[Row]) -> list[R]:
    """Read rows as records."""
    return [record_of(kind, row) for row in rows]


@cache
def _converters(kind: type[msgspec.Struct]) -> list[tuple[int, Callable[[Any], Any]]]:
    found: list[tuple[int, Callable[[Any], Any]]] = []
    for place, field in enumerate(msgspec.structs.fields(kind)):
        if field.type in (bool, float):
            found.append((place, field.type))
        elif get_origin(field.type) in (list, dict):
            found.append((place, msgspec.json.Decoder(field.type).decode))
    return found


def fetch(kind: type[R], name: str, /, **params: Value) -> Op[list[R]]:
    """Run a statement and return its rows as records."""
    return records_of(kind, (yield Statement(name, params)))


def fetch_one(kind: type[R], name: str, /, **params: Value) -> Op[R | None]:
    """Run a statement and return its first row as a record, None without one."""
    rows = yield Statement(name, params)
    return record_of(kind, rows[0]) if rows else None


def fetch_column(name: str, /, **params: Value) -> Op[list[str]]:
    """Run a statement and return the first column of its rows."""
    return [row[0] for row in (yield Statement(name, params))]


def fetch_set(name: str, /, **params: Value) -> Op[set[str]]:
    """Run a statement and return the first column of its rows as a set."""
    return {row[0] for row in (yield Statement(name, params))}


def fetch_value(name: str, /, **params: Value) -> Op[Any]:
    """Run a statement and return the only value it gives, None without a row."""
    rows = yield Statement(name, params)
    return rows[0][0] if rows else None


def count_rows(name: str, /, **params: Value) -> Op[int]:
    """Run a statement and count the rows that it returns."""
    return len((yield Statement(name, params)))


def has_rows(name: str, /, **params: Value) -> Op[bool]:
    """Run a statement and say whether it returned anything."""
    return bool((yield Statement(name, params)))


def resolve_now(now: Instant | None) -> Op[Instant]:
    """Return the instant that was given, or the database's clock."""
    if now is not None:
        return now
    instant: Instant = (yield Statement("clock", {}))[0][0]
    return instant

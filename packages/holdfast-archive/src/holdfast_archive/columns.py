"""Columns of archived tables: how values of a database become values of Arrow and come back bit for bit.

A kind that Arrow has without loss is native, so that DuckDB and others read it as what it is. Everything else is the
text that the database itself writes and reads. The kind and the database's own type are kept with each column.

Infinite times are the largest and the smallest number, as in PostgreSQL and DuckDB.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.core.errors import MissingExtra
from holdfast_archive.errors import ArchiveSourceInvalid
from holdfast_archive.table_access import TableColumn, Unfit

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise MissingExtra(
        "the archive needs pyarrow", help='pip install "holdfast-jobs[archive]"'
    ) from error

KIND, TYPE = b"holdfast.kind", b"holdfast.type"

Values = Sequence[Any]


def field_of(column: TableColumn) -> pa.Field:
    """Return the column as a field of an Arrow schema."""
    metadata = {KIND: column.kind.encode(), TYPE: column.type.encode()}
    return pa.field(column.name, _ARROW[column.kind], metadata=metadata)


def column_of(field: pa.Field) -> TableColumn:
    """Return the column that a field was made of."""
    metadata = field.metadata or {}
    if metadata.get(KIND, b"").decode() not in _ARROW:
        raise ArchiveSourceInvalid(f"the column {field.name} was not written by Holdfast")
    return TableColumn(field.name, metadata[TYPE].decode(), metadata[KIND].decode())


def to_arrow(column: TableColumn, values: Values) -> pa.Array:
    """Return values as they come from the database as an Arrow array. Raises: Unfit."""
    try:
        return _ENCODERS[column.kind](values)
    except (pa.ArrowException, OverflowError, TypeError, UnicodeError) as error:
        raise Unfit(column) from error


def from_arrow(column: TableColumn, array: pa.Array) -> list[Any]:
    """Return values as the database takes them back."""
    return _DECODERS[column.kind](array)


def comparable(column: TableColumn, array: pa.Array) -> list[Any]:
    """Return values that are equal only where not a single bit differs: a NaN equals itself, -0.0 is not 0.0."""
    bits = _BITS.get(column.kind)
    found: list[Any] = (array if bits is None else array.view(bits)).to_pylist()
    return found


_TIMESTAMP, _TIMESTAMPTZ = pa.timestamp("us"), pa.timestamp("us", "UTC")

_ARROW: Mapping[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "timestamp": _TIMESTAMP,
    "timestamptz": _TIMESTAMPTZ,
    # Numbers of SQLite come as numbers, those of PostgreSQL as text.
    "integer": pa.int64(),
    "real": pa.float64(),
    "mixed": pa.string(),
}

_BITS: Mapping[str, pa.DataType] = {
    "float32": pa.int32(),
    "float64": pa.int64(),
    "real": pa.int64(),
    "date": pa.int32(),
    "timestamp": pa.int64(),
    "timestamptz": pa.int64(),
}

_DAY_US = 86_400_000_000
_SECOND_US = 1_000_000
_ENDLESS_US, _ENDLESS_DAYS = 2**63 - 1, 2**31 - 1
# What Arrow and PostgreSQL write alike: the years 1 to 9999, whose text needs no era.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_MOMENT = re.compile(
    r"(\d+)-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?(?:\+00)?( BC)?", re.ASCII
)


def _cast(kind: str) -> Callable[[Values], pa.Array]:
    target = _ARROW[kind]
    return lambda values: pc.cast(pa.array(values, pa.string()), target)


def _as_is(kind: str, python: type) -> Callable[[Values], pa.Array]:
    target, allowed = _ARROW[kind], {python, type(None)}

    def encode(values: Values) -> pa.Array:
        # Arrow would take 1 for 1.0 and the other way round.
        if not set(map(type, values)) <= allowed:
            raise TypeError(f"not only {python.__name__}")
        return pa.array(values, target)

    return encode


def _booleans(values: Values) -> pa.Array:
    texts = pa.array(values, pa.string())
    # As PostgreSQL writes it, and as Arrow does.
    return pc.or_(pc.equal(texts, "t"), pc.equal(texts, "true"))


def _times(kind: str, parse: Callable[[str], int]) -> Callable[[Values], pa.Array]:
    target, bits = _ARROW[kind], _BITS[kind]

    def encode(values: Values) -> pa.Array:
        try:
            return pc.cast(pa.array(values, pa.string()), target)
        except pa.ArrowInvalid:
            numbers = [None if each is None else parse(each) for each in values]
            return pa.array(numbers, bits).view(target)

    return encode


def _parse_us(text: str) -> int:
    if text.endswith("infinity"):
        return -_ENDLESS_US if text.startswith("-") else _ENDLESS_US
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ArchiveSourceInvalid(f"{text[:60]!r} is not a time as PostgreSQL writes it")
    _, _, _, hour, minute, second, fraction, _ = found.groups()
    of_day = (int(hour) * 60 + int(minute)) * 60 + int(second)
    return _days(found) * _DAY_US + of_day * _SECOND_US + int((fraction or "0").ljust(6, "0"))


def _parse_day(text: str) -> int:
    if text.endswith("infinity"):
        return -_ENDLESS_DAYS if text.startswith("-") else _ENDLESS_DAYS
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ArchiveSourceInvalid(f"{text[:60]!r} is not a date as PostgreSQL writes it")
    return _days(found)


def _days(found: re.Match[str]) -> int:
    """Return the days from 1970 to a date of the proleptic Gregorian calendar, which has a year 0 inside."""
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    if found[8]:
        year = 1 - year
    # March comes first, so that the leap day is the last of its year.
    year, month = (year - 1, month + 9) if month < 3 else (year, month - 3)
    era, of_era = divmod(year, 400)
    of_year = (153 * month + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _date_text(days: int) -> tuple[str, str]:
    """Return a date as PostgreSQL reads it, and its era."""
    era, of_era = divmod(days + 719_468, 146_097)
    years = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * years + years // 4 - years // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    year = years + era * 400 + (month > 9)
    month = month - 9 if month > 9 else month + 3
    shown, suffix = (year, "") if year > 0 else (1 - year, " BC")
    return f"{shown:04}-{month:02}-{day:02}", suffix


def _day_text(days: int | None) -> str | None:
    if days is None:
        return None
    if abs(days) == _ENDLESS_DAYS:
        return "infinity" if days > 0 else "-infinity"
    return "".join(_date_text(days))


def _moment_text(us: int | None) -> str | None:
    if us is None:
        return None
    if abs(us) == _ENDLESS_US:
        return "infinity" if us > 0 else "-infinity"
    days, of_day = divmod(us, _DAY_US)
    seconds, fraction = divmod(of_day, _SECOND_US)
    hours, rest = divmod(seconds, 3_600)
    date, era = _date_text(days)
    return f"{date} {hours:02}:{rest // 60:02}:{rest % 60:02}.{fraction:06}+00{era}"


def _from_times(kind: str) -> Callable[[pa.Array], list[Any]]:
    bits = _BITS[kind]
    per_day, write = (1, _day_text) if kind == "date" else (_DAY_US, _moment_text)
    low, high = _FIRST_DAY * per_day, (_LAST_DAY + 1) * per_day

    def decode(array: pa.Array) -> list[Any]:
        numbers = array.view(bits)
        extremes = pc.min_max(numbers)
        lowest, highest = extremes["min"].as_py(), extremes["max"].as_py()
        if lowest is None or (low <= lowest and highest < high):
            return _texts(array)
        return [write(each) for each in numbers.to_pylist()]

    return decode


def _texts(array: pa.Array) -> list[Any]:
    found: list[Any] = pc.cast(array, pa.string()).to_pylist()
    return found


def _plain(array: pa.Array) -> list[Any]:
    found: list[Any] = array.to_pylist()
    return found


def _tag(value: Any) -> str | None:
    """Write a value of a column that holds several of SQLite's types."""
    if value is None:
        return None
    if isinstance(value, int):
        return f"i:{value}"
    if isinstance(value, float):
        return f"r:{struct.pack('>d', value).hex()}"
    if isinstance(value, bytes):
        return f"b:{value.hex()}"
    text: str = value
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"x:{text.encode('utf-8', 'surrogateescape').hex()}"
    return f"t:{text}"


def _untag(text: str | None) -> Any:
    if text is None:
        return None
    tag, rest = text[0], text[2:]
    if tag == "i":
        return int(rest)
    if tag == "r":
        return struct.unpack(">d", bytes.fromhex(rest))[0]
    if tag == "b":
        return bytes.fromhex(rest)
    if tag == "x":
        return bytes.fromhex(rest).decode("utf-8", "surrogateescape")
    return rest


_ENCODERS: Mapping[str, Callable[[Values], pa.Array]] = {
    "bool": _booleans,
    **{kind: _cast(kind) for kind in ("int16", "int32", "int64", "float32", "float64")},
    "text": _as_is("text", str),
    "bytes": _as_is("bytes", bytes),
    "integer": _as_is("integer", int),
    "real": _as_is("real", float),
    "date": _times("date", _parse_day),
    "timestamp": _times("timestamp", _parse_us),
    "timestamptz": _times("timestamptz", _parse_us),
    "mixed": lambda values: pa.array([_tag(each) for each in values], pa.string()),
}

_DECODERS: Mapping[str, Callable[[pa.Array], list[Any]]] = {
    **dict.fromkeys(("bool", "int16", "int32", "int64", "float32", "float64"), _texts),
    **dict.fromkeys(("text", "bytes", "integer", "real"), _plain),
    **{kind: _from_times(kind) for kind in ("date", "timestamp", "timestamptz")},
    "mixed": lambda array: [_untag(each) for each in array.to_pylist()],
}

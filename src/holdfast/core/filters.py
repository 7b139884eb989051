"""The filter language of lists: `state:failed type:mail.* age>5m attempt>=3 error:"timed out"`.

A filter is a list of terms that must all hold; commas in a value mean any of. Stores turn terms
into statements, so nothing here knows of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from holdfast.core.duration import format_duration, milliseconds
from holdfast.core.errors import FilterError, InvalidDuration, InvalidId
from holdfast.core.ids import parse_id
from holdfast.core.records import STATES
from holdfast.core.suggestions import nearest

LONGEST_FILTER = 1_000
MOST_TERMS = 20
LARGEST_NUMBER = 2**31 - 1

Operator: TypeAlias = Literal[":", ">", ">=", "<", "<="]
Value: TypeAlias = str | int

_COMPARISONS = (">", ">=", "<", "<=")
_TERM = re.compile(r"(?P<field>[^\s:<>\",]+)(?P<operator>:|>=|<=|>|<)")
_VALUE = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s",]+)')
_SPACES = re.compile(r"\s*")
_UNSTORABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Term:
    """One condition on a field: `:` means any of the values, the others compare with one.

    Ages are milliseconds, attempts are ints, everything else is text. In the values of type and key
    a `*` stands for any text; an error matches when it contains the value.
    """

    field: str
    operator: Operator
    values: tuple[Value, ...]


def parse_filter(text: str) -> tuple[Term, ...]:
    """Return the terms of a filter, or raise FilterError with the nearest name that exists."""
    if len(text) > LONGEST_FILTER:
        raise FilterError(f"the filter has {len(text)} characters, the limit is {LONGEST_FILTER}")
    if _UNSTORABLE.search(text):
        raise FilterError("the filter contains a control character")
    terms = tuple(_terms(text))
    if len(terms) > MOST_TERMS:
        raise FilterError(f"the filter has {len(terms)} terms, the limit is {MOST_TERMS}")
    return terms


def format_filter(terms: Iterable[Term]) -> str:
    """Return the text that `parse_filter` reads as the same terms."""
    return " ".join(
        f"{term.field}{term.operator}{','.join(_written(term.field, each) for each in term.values)}"
        for term in terms
    )


def _terms(text: str) -> Iterator[Term]:
    position = _after_spaces(text, 0)
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None:
            word = text[position:].split()[0]
            raise FilterError(f"{word[:40]!r} is not a term", help=f"write key:value, {_KEYS}")
        values, position = _values(text, match.end())
        yield _term(match["field"], cast(Operator, match["operator"]), values)
        position = _after_spaces(text, position)


def _values(text: str, position: int) -> tuple[list[str], int]:
    values = []
    while match := _VALUE.match(text, position):
        quoted = match["quoted"]
        values.append(match["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        position = match.end()
        if text[position : position + 1] != ",":
            break
        position += 1
    else:
        raise FilterError(f"a value is missing after {text[max(0, position - 40) : position]!r}")
    if position < len(text) and not text[position].isspace():
        raise FilterError(f"{text[position : position + 40]!r} does not belong to the value before")
    return values, position


def _term(name: str, operator: Operator, values: list[str]) -> Term:
    field = _FIELDS.get(name)
    if field is None:
        raise FilterError(f"{name[:40]!r} is not a key of filters", help=_help_with(name, _FIELDS))
    if operator not in field.operators:
        allowed = " ".join(field.operators)
        raise FilterError(
            f"{name!r} cannot be combined with {operator!r}", help=f"use one of {allowed}"
        )
    if operator in _COMPARISONS and len(values) > 1:
        raise FilterError(f"{name!r} can be compared with one value only", help="repeat the term")
    return Term(name, operator, tuple(field.read(each) for each in values))


def _state(text: str) -> Value:
    if text not in STATES:
        raise FilterError(f"{text[:40]!r} is not a state", help=_help_with(text, STATES))
    return text


def _text(text: str) -> Value:
    if not text:
        raise FilterError("a value is empty")
    return text


def _id(text: str) -> Value:
    try:
        return str(parse_id(text))
    except InvalidId as error:
        raise FilterError(error.message, help=error.help) from error


def _age(text: str) -> Value:
    try:
        return milliseconds(text)
    except InvalidDuration as error:
        raise FilterError(error.message, help=error.help) from error


def _number(text: str) -> Value:
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > LARGEST_NUMBER:
        raise FilterError(f"{text[:40]!r} is not a whole number", help="write one like 3")
    return int(text)


@dataclass(frozen=True, slots=True)
class _Field:
    read: Callable[[str], Value]
    operators: tuple[str, ...] = (":",)


_FIELDS = {
    "state": _Field(_state),
    "type": _Field(_text),
    "age": _Field(_age, _COMPARISONS),
    "attempt": _Field(_number, (":", *_COMPARISONS)),
    "error": _Field(_text),
    "fingerprint": _Field(_text),
    "chain": _Field(_id),
    "blocker": _Field(_id),
    "key": _Field(_text),
    "worker": _Field(_text),
    "id": _Field(_id),
}
_KEYS = f"with a key of {', '.join(_FIELDS)}"


def _help_with(name: str, known: Iterable[str]) -> str:
    names = list(known)
    return nearest(name.lower(), names) or f"use one of {', '.join(names)}"


def _written(field: str, value: Value) -> str:
    if isinstance(value, int):
        return format_duration(value) if field == "age" else str(value)
    if _VALUE.fullmatch(value) and '"' not in value:
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _after_spaces(text: str, position: int) -> int:
    match = _SPACES.match(text, position)
    return match.end() if match else position

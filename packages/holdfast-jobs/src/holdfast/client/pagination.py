"""Pages of jobs and chains: a filter becomes a query, and an opaque cursor marks where the next page begins."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from holdfast.client.views import Page
from holdfast.core.errors import FilterError, InvalidCursor, InvalidId, InvalidOption
from holdfast.core.filters import CONTEXT, Operator, Term, Value, field_of, parse_filter
from holdfast.core.ids import parse_id
from holdfast.storage.operation import Op
from holdfast.storage.store.pagination import JobQuery, Listed, Walk

MAX_PAGE = 1_000

QueryTerms: TypeAlias = dict[str, Any]


def query_of(filter: str, limit: int, before: str | None) -> JobQuery:
    """Return the query of one page. Raises: FilterError, InvalidOption."""
    check_length(limit)
    conditions: QueryTerms = {}
    for term in parse_filter(filter):
        for name, value in _conditions(term).items():
            if field_of(term.field).match == "words":
                value = (*conditions.pop(name, ()), *value)
            if name == "context" and not value.keys() & conditions.get(name, {}).keys():
                value |= conditions.pop(name, {})
            if name in conditions:
                raise FilterError(f"the filter has two conditions on {term.field}")
            conditions[name] = value
    return JobQuery(limit=limit, before=before, **conditions)


def check_length(limit: object, name: str = "limit") -> int:
    """Return how many a page may hold. Raises: InvalidOption."""
    if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
        raise InvalidOption(f"{name}={repr(limit)[:60]} is not a whole number from 1 to {MAX_PAGE}")
    return limit


def _conditions(term: Term) -> QueryTerms:
    """Return the query's parameters that a term sets, by how its field matches."""
    field = field_of(term.field)
    match field.match:
        case "any":
            return {field.params[0]: term.values}
        case "equal":
            return {field.params[0]: _single(term)}
        case "any or pattern":
            return _pattern(term, *field.params) or {field.params[0]: term.values}
        case "equal or pattern":
            return _pattern(term, *field.params) or {field.params[0]: _single(term)}
        case "contains":
            return {field.params[0]: f"%{_like(str(_single(term)), '*')}%"}
        case "words":
            return {field.params[0]: (f"%{_like(str(_single(term)), '%')}%",)}
        case "context":
            return {field.params[0]: {term.field.removeprefix(CONTEXT): _single(term)}}
        case "range":
            # To the millisecond of a moving clock > is the same as >=.
            step = 0 if field.kind == "duration" else 1
            return _range(term.operator, int(_single(term)), *field.params, step=step)


def _pattern(term: Term, _: str, like: str) -> QueryTerms | None:
    if not any("*" in str(each) for each in term.values):
        return None
    if len(term.values) > 1:
        raise FilterError(f"{term.field} takes one pattern", help="remove the others")
    return {like: _like(str(term.values[0]), "%")}


def _range(operator: Operator, value: int, lowest: str, highest: str, *, step: int) -> QueryTerms:
    match operator:
        case ":":
            return {lowest: value, highest: value}
        case ">":
            return {lowest: value + step}
        case ">=":
            return {lowest: value}
        case "<":
            return {highest: value - step}
        case "<=":
            return {highest: value}


def _single(term: Term) -> Value:
    if len(term.values) > 1:
        raise FilterError(f"{term.field} takes one value", help="remove the others")
    return term.values[0]


def _like(text: str, star: str) -> str:
    """Write a text as a LIKE pattern, with `star` in place of every `*`."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", star)


_DIGEST_BYTES = 8


def make_cursor(subject: str, filter: str, last_id: str) -> str:
    """Return the cursor behind the item with this id."""
    raw = _digest(subject, filter) + parse_id(last_id).bytes
    return base64.urlsafe_b64encode(raw).decode()


def read_cursor(subject: str, filter: str, cursor: str) -> str:
    """Return the id at which the previous page ended. Raises: InvalidCursor."""
    try:
        raw = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        digest, id = raw[:_DIGEST_BYTES], parse_id(str(UUID(bytes=raw[_DIGEST_BYTES:])))
    except (AttributeError, ValueError, InvalidId):
        raise InvalidCursor("the cursor is invalid") from None
    if digest != _digest(subject, filter):
        raise InvalidCursor(
            f"the cursor belongs to a different list or filter than these {subject}"
        )
    return str(id)


def _digest(subject: str, filter: str) -> bytes:
    text = f"{subject}\0{' '.join(filter.split())}"
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


PAGE_LENGTH = 50

LOOK = 10_000
"""A page scans at most this many rows; the next page continues where it stopped."""

Subject: TypeAlias = Literal["jobs", "chains"]


T = TypeVar("T")


def read_page(
    subject: Subject,
    filter: str,
    limit: int,
    after: str | None,
    read: Callable[[JobQuery, int], Op[Walk[Listed]]],
    show: Callable[[Listed], T],
) -> Op[Page[T]]:
    """Read one page, looking at a bounded number of rows. Raises: FilterError, InvalidOption, InvalidCursor."""
    before = None if after is None else read_cursor(subject, filter, after)
    query = query_of(filter, limit, before)
    # One more than the limit shows whether more follow.
    found = yield from read(msgspec.structs.replace(query, limit=limit + 1), LOOK)
    shown = tuple(show(each) for each in found.records[:limit])
    if len(found.records) > limit:
        return Page(shown, make_cursor(subject, filter, found.records[limit - 1].id))
    if found.end is None:
        return Page(shown, None)
    return Page(shown, make_cursor(subject, filter, found.end), cut=True)

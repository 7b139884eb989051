"""The filter language as the store's query: terms that must all hold become its optional conditions."""

from __future__ import annotations

from typing import Any, TypeAlias

from holdfast.core.errors import FilterError, InvalidOption
from holdfast.core.filters import FIELDS, Operator, Term, Value, parse_filter
from holdfast.storage.query import JobQuery

LONGEST_PAGE = 1_000

Conditions: TypeAlias = dict[str, Any]


def query_of(filter: str, limit: int, before: str | None) -> JobQuery:
    """Return the query of one page. Raises: FilterError, InvalidOption."""
    check_length(limit)
    conditions: Conditions = {}
    for term in parse_filter(filter):
        for name, value in _conditions(term).items():
            if name in conditions:
                raise FilterError(f"the filter has two conditions on {term.field}")
            conditions[name] = value
    return JobQuery(limit=limit, before=before, **conditions)


def check_length(limit: object) -> int:
    """Return how many a page may hold. Raises: InvalidOption."""
    if type(limit) is not int or not 1 <= limit <= LONGEST_PAGE:
        raise InvalidOption(
            f"limit={repr(limit)[:60]} is not a whole number from 1 to {LONGEST_PAGE}"
        )
    return limit


def _conditions(term: Term) -> Conditions:
    """Return the query's parameters that a term sets, by how its field matches."""
    field = FIELDS[term.field]
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
        case "range":
            # To the millisecond of a moving clock > is the same as >=.
            step = 0 if field.kind == "duration" else 1
            return _range(term.operator, int(_single(term)), *field.params, step=step)


def _pattern(term: Term, _: str, like: str) -> Conditions | None:
    if not any("*" in str(each) for each in term.values):
        return None
    if len(term.values) > 1:
        raise FilterError(f"{term.field} takes one pattern", help="leave the others out")
    return {like: _like(str(term.values[0]), "%")}


def _range(operator: Operator, value: int, least: str, most: str, *, step: int) -> Conditions:
    match operator:
        case ":":
            return {least: value, most: value}
        case ">":
            return {least: value + step}
        case ">=":
            return {least: value}
        case "<":
            return {most: value - step}
        case "<=":
            return {most: value}


def _single(term: Term) -> Value:
    if len(term.values) > 1:
        raise FilterError(f"{term.field} takes one value", help="leave the others out")
    return term.values[0]


def _like(text: str, star: str) -> str:
    """Write a text as a LIKE pattern, with `star` in place of every `*`."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", star)

"""The filter language as the store's query: terms that must all hold become its optional conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from holdfast.core.errors import FilterError, InvalidOption
from holdfast.core.filters import Term, parse_filter
from holdfast.storage.query import JobQuery

LONGEST_PAGE = 1_000

Conditions: TypeAlias = dict[str, Any]


def query_of(filter: str, limit: int, before: str | None) -> JobQuery:
    """Return the query of one page. Raises: FilterError, InvalidOption."""
    check_length(limit)
    conditions: Conditions = {}
    for term in parse_filter(filter):
        for name, value in _READERS[term.field](term).items():
            if name in conditions:
                raise FilterError(f"the filter says twice what {term.field} has to be")
            conditions[name] = value
    return JobQuery(limit=limit, before=before, **conditions)


def check_length(limit: object) -> int:
    """Return how many a page may hold. Raises: InvalidOption."""
    if type(limit) is not int or not 1 <= limit <= LONGEST_PAGE:
        raise InvalidOption(
            f"limit={repr(limit)[:60]} is not a whole number from 1 to {LONGEST_PAGE}"
        )
    return limit


def _state(term: Term) -> Conditions:
    return {"states": term.values}


def _type(term: Term) -> Conditions:
    patterns = [str(each) for each in term.values if "*" in str(each)]
    if not patterns:
        return {"types": term.values}
    if len(term.values) > 1:
        raise FilterError(
            "a pattern of types stands alone",
            help="write several names, or one pattern like mail.*",
        )
    return {"type_like": _like(patterns[0], "%")}


def _key(term: Term) -> Conditions:
    key = _single(term)
    return {"key_like": _like(key, "%")} if "*" in key else {"key": key}


def _error(term: Term) -> Conditions:
    return {"error_like": f"%{_like(_single(term), '*')}%"}


def _attempt(term: Term) -> Conditions:
    return _bounds(term, "attempt_min", "attempt_max", 1)


def _age(term: Term) -> Conditions:
    # Ages are told in milliseconds of a moving clock; to the millisecond nobody can tell > from >=.
    return _bounds(term, "age_min_ms", "age_max_ms", 0)


def _bounds(term: Term, least: str, most: str, step: int) -> Conditions:
    value = int(_only(term))
    match term.operator:
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


def _single(term: Term) -> str:
    return str(_only(term))


def _only(term: Term) -> str | int:
    if len(term.values) > 1:
        raise FilterError(f"{term.field} takes one value", help="leave the others out")
    return term.values[0]


def _like(text: str, star: str) -> str:
    """Write a text as a LIKE pattern, with `star` in place of every `*`."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", star)


_READERS: dict[str, Callable[[Term], Conditions]] = {
    "state": _state,
    "type": _type,
    "age": _age,
    "attempt": _attempt,
    "error": _error,
    "fingerprint": lambda term: {"fingerprint": _single(term)},
    "chain": lambda term: {"chain": _single(term)},
    "blocker": lambda term: {"blocker": _single(term)},
    "key": _key,
    "worker": lambda term: {"worker": _single(term)},
    "id": lambda term: {"ids": term.values},
}

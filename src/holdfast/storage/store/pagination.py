"""Lists as walks: the newest first, a bounded number looked at, those kept that fit. No filter reads a whole table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from holdfast.core.ids import uuid7_text
from holdfast.core.records import Instant
from holdfast.storage.operation import Op, Statement
from holdfast.storage.query import JobQuery, Walk

FIRST_LOOK = 250
LONGEST_LOOK = 2_500

_SKEW_US = 60_000_000
"""Ids carry their producer's clock, ages are told by the database's; they should not differ by more than this."""


class Listed(Protocol):
    """Anything a list is ordered by the id of."""

    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=Listed)

Step = Callable[[str | None, int], Op[list[str]]]
"""Gives the next ids before one."""

Match = Callable[[JobQuery], Op[list[R]]]
"""Reads those of the query's ids that fit."""


def walk(
    query: JobQuery, look: int | None, step: Step, match: Match[R], now: Instant | None
) -> Op[Walk[R]]:
    """Take steps until the page is full, all was seen, or `look` ids were looked at."""
    if not (yield from _is_known(query)):
        return Walk([], None)
    before, oldest = yield from _bounds(query, now)
    found: list[R] = []
    left, size = look, query.limit if query.is_bare else max(query.limit, FIRST_LOOK)
    while True:
        size = size if left is None else min(size, left)
        ids = yield from step(before, size)
        if ids:
            wanted = msgspec.structs.replace(query, ids=tuple(ids), limit=query.limit - len(found))
            found += yield from match(wanted)
        if len(found) >= query.limit:
            return Walk(found, found[-1].id)
        if len(ids) < size or (yield from _is_past(ids[-1], oldest)):
            return Walk(found, None)
        before = ids[-1]
        left = None if left is None else left - size
        if left == 0:
            return Walk(found, before)
        size = max(min(size * 4, LONGEST_LOOK), query.limit)


def among(ids: Sequence[str]) -> Step:
    """Step through ids that are known beforehand."""
    ordered = sorted(set(ids), reverse=True)

    def step(before: str | None, limit: int) -> Op[list[str]]:
        yield from ()
        return [each for each in ordered if before is None or each < before][:limit]

    return step


def along(name: str, **given: str) -> Step:
    """Step through what a statement gives."""

    def step(before: str | None, limit: int) -> Op[list[str]]:
        rows = yield Statement(name, {**given, "before": before, "limit": limit})
        return [row[0] for row in rows]

    return step


def _is_known(query: JobQuery) -> Op[bool]:
    """Say whether anything of the types asked for was ever started."""
    if query.types is None and query.type_like is None:
        return True
    return bool((yield Statement("job_type_known", query.type_params())))


def _bounds(query: JobQuery, now: Instant | None) -> Op[tuple[str | None, Instant | None]]:
    """Return where the walk begins, and the creation of a job before which nothing can fit any more."""
    least, most = query.age_min_ms, query.age_max_ms
    if least is None and most is None:
        return query.before, None
    instant = now if now is not None else (yield Statement("clock", {}))[0][0]
    before = query.before
    if least is not None:
        first = uuid7_text(max(0, instant - least * 1000 + _SKEW_US) // 1000, 0, bytes(6))
        before = first if before is None else min(before, first)
    return before, None if most is None else instant - most * 1000 - _SKEW_US


def _is_past(id: str, oldest: Instant | None) -> Op[bool]:
    if oldest is None:
        return False
    rows = yield Statement("job_made", {"id": id})
    return bool(rows) and rows[0][0] < oldest

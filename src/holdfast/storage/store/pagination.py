"""Lists as walks over what a query asks for: the newest first, a bounded number looked at, those kept that fit.

No filter reads a whole table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from holdfast.core.ids import uuid7_text
from holdfast.core.instants import Instant
from holdfast.core.records import ChainRecord, JobRecord
from holdfast.storage.operation import Op, Statement, Value
from holdfast.storage.store.params import records_of

_RUNNING = frozenset(("running",))
_BLOCKED = frozenset(("blocked",))
_LIVE = frozenset(("blocked", "pending", "running"))
_NOT_COMPLETED = frozenset(("failed", "cancelled"))


class JobQuery(msgspec.Struct, frozen=True):
    """Optional conditions, all of which must hold. `before` is the id where the previous page ended."""

    limit: int = 50
    before: str | None = None
    ids: tuple[str, ...] | None = None
    states: tuple[str, ...] | None = None
    types: tuple[str, ...] | None = None
    type_like: str | None = None
    chain: str | None = None
    blocker: str | None = None
    key: str | None = None
    key_like: str | None = None
    error_like: str | None = None
    fingerprint: str | None = None
    worker: str | None = None
    attempt_min: int | None = None
    attempt_max: int | None = None
    age_min_ms: int | None = None
    age_max_ms: int | None = None
    words: tuple[str, ...] | None = None

    @property
    def is_bare(self) -> bool:
        """Whether every row fits."""
        return self == JobQuery(self.limit, self.before)

    @property
    def source(self) -> str:
        """The statement that walks the fewest jobs among which all that fit must be."""
        states = None if self.states is None else frozenset(self.states)
        if states == _RUNNING:
            return "job_walk_running"
        if states == _BLOCKED:
            return "job_walk_blocked"
        if states is not None and states <= _LIVE:
            return "job_walk_live"
        has_error = self.error_like is not None or self.fingerprint is not None
        if has_error or (states is not None and states <= _NOT_COMPLETED):
            return "job_walk_not_completed"
        return "job_walk"

    def params(self) -> dict[str, Value]:
        """The statement's parameters; lists travel as JSON."""
        return {name: _wire(getattr(self, name)) for name in self.__struct_fields__}

    def type_params(self) -> dict[str, Value]:
        """The parameters that choose types."""
        return {"types": _wire(self.types), "type_like": self.type_like}


class Listed(Protocol):
    """Anything a list is ordered by the id of."""

    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=Listed)
S = TypeVar("S", JobRecord, ChainRecord)


class Walk(msgspec.Struct, Generic[R], frozen=True):
    """What a walk found, the newest first. `end` is where it stopped before all was seen; None when nothing is left."""

    records: list[R]
    end: str | None


def _wire(value: Value | tuple[str, ...]) -> Value:
    return msgspec.json.encode(value).decode() if isinstance(value, tuple) else value


FIRST_LOOK = 250
LONGEST_LOOK = 2_500

_SKEW_US = 60_000_000
"""Ids carry their producer's clock, ages are measured by the database's; they should not differ by more than this."""


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


class Lists(Generic[S]):
    """Lists of the records of one store, which names its record, the statement that reads a list, and its steps."""

    _record: type[S]
    _listing: str

    def walk(
        self, query: JobQuery, look: int | None = None, now: Instant | None = None
    ) -> Op[Walk[S]]:
        """Read a page, newest first, looking at no more than `look` records. Small statements."""

        def match(wanted: JobQuery) -> Op[list[S]]:
            rows = yield Statement(self._listing, {**self._page_params(wanted), "now": now})
            return records_of(self._record, rows)

        return walk(query, look, self._step(query), match, now)

    def page(self, query: JobQuery, now: Instant | None = None) -> Op[list[S]]:
        """Read a page, newest first, however many have to be looked at. Small statements."""
        return (yield from self.walk(query, now=now)).records

    def _step(self, query: JobQuery) -> Step:
        raise NotImplementedError

    def _page_params(self, query: JobQuery) -> dict[str, Value]:
        return query.params()


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

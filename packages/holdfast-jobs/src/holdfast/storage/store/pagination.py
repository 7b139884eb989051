"""Lists as walks over what a query asks for: the newest first, a bounded number looked at, those kept that fit.

No filter reads a whole table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from holdfast.core.errors import FilterError, nearest
from holdfast.core.ids import id_at
from holdfast.core.instants import Instant
from holdfast.core.records import ChainRecord, JobRecord, JobRef
from holdfast.core.statistics import TypeTotals
from holdfast.storage.operation import Op, Value
from holdfast.storage.store.params import (
    document,
    fetch,
    fetch_column,
    fetch_value,
    has_rows,
    resolve_now,
)

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
    step: str | None = None
    waiting: str | None = None
    attempt_min: int | None = None
    attempt_max: int | None = None
    age_min_ms: int | None = None
    age_max_ms: int | None = None
    words: tuple[str, ...] | None = None
    context: dict[str, str] | None = None

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
        if self.waiting is not None or (states is not None and states <= _LIVE):
            return "job_walk_live"
        has_error = self.error_like is not None or self.fingerprint is not None
        if has_error or (states is not None and states <= _NOT_COMPLETED):
            return "job_walk_not_completed"
        return "job_walk"

    def count_among(self, types: Sequence[TypeTotals]) -> int | None:
        """Return how many jobs have the types and states asked for; None when that does not follow from totals."""
        if self.states is None or self.type_like is not None or not types:
            return None
        asked = [each for each in types if self.types is None or each.type in self.types]
        columns = {"live" if each in _LIVE else each for each in self.states}
        count: int = sum(getattr(each, name) for each in asked for name in columns)
        return count

    def params(self) -> dict[str, Value]:
        """The statement's parameters; lists travel as JSON."""
        return {name: _wire(getattr(self, name)) for name in self.__struct_fields__}

    def type_params(self) -> dict[str, Value]:
        """The parameters that choose types."""
        return {"types": _wire(self.types), "type_like": self.type_like}


Listed = TypeVar("Listed", bound=JobRecord | ChainRecord | JobRef)
S = TypeVar("S", JobRecord, ChainRecord)


class Walk(msgspec.Struct, Generic[Listed], frozen=True):
    """What a walk found, the newest first. `end` is where it stopped before all was seen; None when nothing is left."""

    records: list[Listed]
    end: str | None


def _wire(value: Value | tuple[str, ...] | dict[str, str]) -> Value:
    return document(value) if isinstance(value, tuple | dict) else value


FIRST_LOOK = 250
MAX_LOOK = 2_500

_SKEW_US = 60_000_000
"""Ids carry their producer's clock, ages are measured by the database's; they should not differ by more than this."""


Step = Callable[[str | None, int], Op[list[str]]]
"""Gives the next ids before one."""


class Lists(Generic[S]):
    """Lists of the records of one store, which names its record, the statement that reads a list, and its steps."""

    _record: type[S]
    _listing: str

    def walk(
        self, query: JobQuery, look: int | None = None, now: Instant | None = None
    ) -> Op[Walk[S]]:
        """Read a page, newest first, looking at no more than `look` records. Small statements."""
        return self._walk(self._record, self._listing, query, look, now)

    def page(self, query: JobQuery, now: Instant | None = None) -> Op[list[S]]:
        """Read a page, newest first, however many have to be looked at. Small statements."""
        return (yield from self.walk(query, now=now)).records

    def _walk(
        self, kind: type[Listed], name: str, query: JobQuery, look: int | None, now: Instant | None
    ) -> Op[Walk[Listed]]:
        """Take steps until the page is full, all was seen, or `look` ids were looked at."""
        if not (yield from _is_known(query)):
            return Walk([], None)
        before, oldest = yield from _bounds(query, now)
        step = self._step(query)
        found: list[Listed] = []
        left, size = look, query.limit if query.is_bare else max(query.limit, FIRST_LOOK)
        while True:
            size = size if left is None else min(size, left)
            ids = yield from step(before, size)
            if ids:
                room = query.limit - len(found)
                wanted = msgspec.structs.replace(query, ids=tuple(ids), limit=room)
                found += yield from fetch(kind, name, **self._page_params(wanted), now=now)
            if len(found) >= query.limit:
                return Walk(found, found[-1].id)
            if len(ids) < size or (yield from _is_past(ids[-1], oldest)):
                return Walk(found, None)
            before = ids[-1]
            left = None if left is None else left - size
            if left == 0:
                may_follow = bool(found) or (yield from self._may_match(query, now))
                return Walk(found, before if may_follow else None)
            size = max(min(size * 4, MAX_LOOK), query.limit)

    def _may_match(self, query: JobQuery, now: Instant | None) -> Op[bool]:
        """Say whether anything can match at all; asked where a walk found nothing as far as it went."""
        yield from ()
        return True

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
    return lambda before, limit: fetch_column(name, **given, before=before, limit=limit)


def within(context: dict[str, str]) -> Step:
    """Step through what was started in a context with the first of these values."""
    name, value = next(iter(context.items()))
    return along("job_walk_context", context_name=name, context_value=value)


def _is_known(query: JobQuery) -> Op[bool]:
    """Say whether anything of the types and contexts asked for was ever started. Raises: FilterError."""
    if query.context is not None:
        names = yield from fetch_column("job_context_names")
        if not names:
            return False
        for each in query.context.keys() - set(names):
            near = nearest(each, names) or f"use one of {', '.join(names)}"
            raise FilterError(f"no job has a context with the name {each!r}", help=near)
    if query.types is None and query.type_like is None:
        return True
    return (yield from has_rows("job_type_known", **query.type_params()))


def _bounds(query: JobQuery, now: Instant | None) -> Op[tuple[str | None, Instant | None]]:
    """Return where the walk begins, and the creation of a job before which nothing can fit any more."""
    youngest, oldest = query.age_min_ms, query.age_max_ms
    if youngest is None and oldest is None:
        return query.before, None
    instant = yield from resolve_now(now)
    before = query.before
    if youngest is not None:
        first = id_at(instant - youngest * 1000 + _SKEW_US)
        before = first if before is None else min(before, first)
    return before, None if oldest is None else instant - oldest * 1000 - _SKEW_US


def _is_past(id: str, oldest: Instant | None) -> Op[bool]:
    if oldest is None:
        return False
    made_at: Instant | None = yield from fetch_value("job_made", id=id)
    return made_at is not None and made_at < oldest

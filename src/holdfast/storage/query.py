"""A page of jobs or chains as every surface asks for it: the filter language's terms as optional parameters."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from holdfast.storage.operation import Value

R = TypeVar("R")

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


class Walk(msgspec.Struct, Generic[R], frozen=True):
    """What a walk found, the newest first. `end` is where it stopped before all was seen; None when nothing is left."""

    records: list[R]
    end: str | None


def _wire(value: Value | tuple[str, ...]) -> Value:
    return msgspec.json.encode(value).decode() if isinstance(value, tuple) else value

"""Gates: how they are named, and the records of limits that pass between stores, workers and surfaces.

A gate is the state of one limit and key. The jobs of a key wait at `type#key`, those without a key at `type#`; what
holds for a whole type is `type`, what several types share `@name`, and what was set for every key of a type `*type`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.core.instants import Instant
from holdfast.core.records import ClaimCommit, ClaimedJob, LeaseClass

EXACT_STARTS = 64
STEPS = 32
"""The starts of a rate are remembered one by one while there are few, otherwise in so many steps of the period: a step
counts until all of it lies outside."""

AHEAD_US = 60_000_000
"""Starts that are dated further ahead are of a clock that was set back since, and do not count."""


def gate_id(type: str, key: str) -> str:
    """Return the gate where jobs of a key wait."""
    return f"{type}#{key}"


def named_gate(name: str) -> str:
    """Return the gate of a limit that several types share."""
    return f"@{name}"


def every_key(type: str) -> str:
    """Return the id under which settings for every key of a type are kept."""
    return f"*{type}"


def split_gate(id: str) -> tuple[str, str | None]:
    """Return the type or name of a gate and its key, None where it has none."""
    owner, mark, key = id.partition("#")
    return owner.lstrip("@*"), key if mark else None


def step_us(rate: int, period_ms: int) -> int:
    """Return how exactly the starts of a rate are remembered, in microseconds."""
    return 1 if rate <= EXACT_STARTS else max(1, period_ms * 1000 // STEPS)


class GateRule(msgspec.Struct, frozen=True):
    """What a gate lets through: so many at once, and so many starts in a period. None is no bound."""

    id: str
    allowed: int | None = None
    rate: int | None = None
    period_ms: int | None = None


class BatchRule(msgspec.Struct, frozen=True):
    """Jobs of one line are handled together, so many in a call, and a call waits so long for more of them."""

    size: int
    wait_ms: int = 0


class WakeupMark(msgspec.Struct, frozen=True):
    """Before which wakeup of a priority nothing is expected any more."""

    priority: int
    at: Instant = 0
    n: int = 0


class LimitedClaim(msgspec.Struct, frozen=True):
    """One look of a claimer at the gates of a type.

    It reads at most `window` wakeups, looks at `gates` gates and takes `limit` jobs, `turn` of a gate before the next.
    With a `batch` it takes jobs for at most `calls` calls.
    """

    worker: str
    type: str
    limit: int
    lease: LeaseClass
    line: GateRule
    shared: tuple[GateRule, ...] = ()
    ordered: bool = False
    holds: bool = False
    weights: dict[str, int] = {}
    marks: tuple[WakeupMark, ...] = ()
    window: int = 200
    gates: int = 100
    allow_crashed: bool = True
    commit: ClaimCommit = "auto"
    turn: int = 1
    batch: BatchRule | None = None
    calls: int = 1


class LimitedAnswer(msgspec.Struct, frozen=True):
    """What a look brought; `next_us` is in how many microseconds the next wakeup is due, None without one.

    `called` wakeups were read, of `gates` gates, and some were `left` for another look. `held_back` says that a limit
    of all keys let nothing through, `busy` that another claimer was looking at it.
    """

    jobs: list[ClaimedJob]
    called: int = 0
    gates: int = 0
    left: int = 0
    next_us: int | None = None
    held_back: bool = False
    busy: bool = False
    marks: tuple[WakeupMark, ...] = ()


class UngatedJob(msgspec.Struct, frozen=True):
    """A job of a limited type that waits at no gate yet: it was started by code that does not know of the limit."""

    id: str
    input: str
    available_at: Instant


class LinedUp(msgspec.Struct, frozen=True):
    """Where a job is to wait, unless it has been moved since."""

    id: str
    gate: str
    available_at: Instant


class GateRecord(msgspec.Struct, frozen=True):
    """A gate as people see it. `allowed`, `rate` and `period_ms` are what was set for it at run time.

    `waiting` and `running` count at most as far as was asked; `started` counts within the last `period_ms` asked for.
    """

    id: str
    running: int
    started: int
    waiting: int
    oldest_at: Instant | None
    rests_until: Instant | None
    reason: str | None
    allowed: int | None
    rate: int | None
    period_ms: int | None


class LimitSetting(msgspec.Struct, frozen=True):
    """What was set for a gate, or for every key of a type, at run time; None is the code's own."""

    id: str
    allowed: int | None = None
    rate: int | None = None
    period_ms: int | None = None
    rests_until: Instant | None = None
    reason: str | None = None
    changed_by: str | None = None
    changed_at: Instant | None = None


def by_id(settings: Iterable[LimitSetting]) -> dict[str, LimitSetting]:
    """Return what was set, by its gate."""
    return {each.id: each for each in settings}


def unused_gate(setting: LimitSetting) -> GateRecord:
    """Return a gate that nothing has come to yet."""
    return GateRecord(
        setting.id,
        0,
        0,
        0,
        None,
        setting.rests_until,
        setting.reason,
        setting.allowed,
        setting.rate,
        setting.period_ms,
    )


class GatePlace(msgspec.Struct, frozen=True):
    """Where a job waits: its gate, how many are before it, and the wakeup that is on record.

    `held_by` is the failed job that an ordered line waits for.
    """

    job_id: str
    gate: str
    gate_at: Instant | None
    ahead: int
    next_at: Instant | None = None
    held_by: str | None = None


class GateState(msgspec.Struct, frozen=True):
    """What a gate lets in and remembers.

    `holders` are the first few of the `running` jobs; `starts` of a rate are pairs of when and how many.
    """

    id: str
    running: int = 0
    holders: list[str] = []
    starts: list[list[int]] = []
    rests_until: Instant | None = None
    reason: str | None = None

    def is_resting(self, now: Instant) -> bool:
        """Whether it lets nothing through for a while."""
        return self.rests_until is not None and self.rests_until > now

    def next_start_at(self, rule: GateRule, now: Instant) -> Instant | None:
        """Return when the rate of a rule lets the next one start; None if it does so now."""
        if rule.rate is None or rule.period_ms is None:
            return None
        period_us = rule.period_ms * 1000
        counted = sorted(
            each for each in self.starts if now - period_us < each[0] <= now + AHEAD_US
        )
        left = sum(number for _, number in counted)
        if left < rule.rate:
            return None
        for at, number in counted:
            left -= number
            if left < rule.rate:
                return at + period_us
        return None


class HeldLine(msgspec.Struct, frozen=True):
    """An ordered key that waits for a dead letter."""

    gate: str
    job_id: str
    since: Instant

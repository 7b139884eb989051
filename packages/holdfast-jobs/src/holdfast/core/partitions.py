"""Partitions: how they are named, and the records of limits that pass between stores, workers and surfaces.

A partition is the state of one limit and key. The jobs of a key wait in the queue of `type#key`, those without a key in
that of `type#`; what holds for a whole type is `type`, what several types share `@name`, and what was set for every key
of a type `*type`.
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


def partition_id(type: str, key: str) -> str:
    """Return the partition where jobs of a key wait."""
    return f"{type}#{key}"


def shared_partition(name: str) -> str:
    """Return the partition of a limit that several types share."""
    return f"@{name}"


def every_key(type: str) -> str:
    """Return the id under which settings for every key of a type are kept."""
    return f"*{type}"


def split_partition(id: str) -> tuple[str, str | None]:
    """Return the type or name of a partition and its key, None where it has none."""
    owner, mark, key = id.partition("#")
    return owner.lstrip("@*"), key if mark else None


def step_us(rate: int, period_ms: int) -> int:
    """Return how exactly the starts of a rate are remembered, in microseconds."""
    return 1 if rate <= EXACT_STARTS else max(1, period_ms * 1000 // STEPS)


class PartitionRule(msgspec.Struct, frozen=True):
    """What a partition lets through: so many at once, and so many starts in a period. None is no bound.

    The other three are the same of what jobs cost.
    """

    id: str
    allowed: int | None = None
    rate: int | None = None
    period_ms: int | None = None
    cost_allowed: int | None = None
    cost_rate: int | None = None
    cost_period_ms: int | None = None


class BatchRule(msgspec.Struct, frozen=True):
    """Jobs of one queue are handled together, so many in a call, and a call waits so long for more of them."""

    size: int
    wait_ms: int = 0


class SignalMark(msgspec.Struct, frozen=True):
    """Before which signal of a priority nothing is expected any more."""

    priority: int
    at: Instant = 0
    n: int = 0


class LimitedClaim(msgspec.Struct, frozen=True):
    """One poll of the partitions of a type.

    It reads at most `window` signals, polls so many `partitions` and takes `limit` jobs, `per_round` of one before the
    next. With a `batch` it takes jobs for at most `calls` calls. With a `max_cost` what jobs cost counts, up to that.
    Versions above `reads` are left alone.
    """

    worker: str
    type: str
    limit: int
    lease: LeaseClass
    per_key: PartitionRule
    shared: tuple[PartitionRule, ...] = ()
    ordered: bool = False
    holds: bool = False
    weights: dict[str, int] = {}
    marks: tuple[SignalMark, ...] = ()
    window: int = 200
    partitions: int = 100
    allow_crashed: bool = True
    commit: ClaimCommit = "auto"
    per_round: int = 1
    batch: BatchRule | None = None
    calls: int = 1
    max_cost: int | None = None
    reads: int | None = None


class LimitedAnswer(msgspec.Struct, frozen=True):
    """What a poll brought; `next_us` is in how many microseconds the next signal is due, None without one.

    `signals` were read of so many `partitions`, and some were `left` for another poll. `held_back` says that a limit of
    all keys let nothing through, `busy` that another claimer was polling it.
    """

    jobs: list[ClaimedJob]
    signals: int = 0
    partitions: int = 0
    left: int = 0
    next_us: int | None = None
    held_back: bool = False
    busy: bool = False
    marks: tuple[SignalMark, ...] = ()


class UnqueuedJob(msgspec.Struct, frozen=True):
    """A job of a limited type in no partition yet: it was started by code that does not know of the limit."""

    id: str
    input: str
    available_at: Instant


class QueuedJob(msgspec.Struct, frozen=True):
    """Where a job is to wait, unless it has been moved since."""

    id: str
    gate: str
    available_at: Instant
    cost: int | None = None


class PartitionRecord(msgspec.Struct, frozen=True):
    """A partition as people see it. `allowed`, `rate` and `period_ms` are what was set for it at run time.

    `waiting` and `running` count at most as far as was asked; `started` counts within the last `period_ms` asked for.
    """

    id: str
    running: int
    started: int
    waiting: int
    oldest_at: Instant | None
    paused_until: Instant | None
    reason: str | None
    allowed: int | None
    rate: int | None
    period_ms: int | None


class LimitSetting(msgspec.Struct, frozen=True):
    """What was set for a partition, or for every key of a type, at run time; None is the code's own."""

    id: str
    allowed: int | None = None
    rate: int | None = None
    period_ms: int | None = None
    paused_until: Instant | None = None
    reason: str | None = None
    changed_by: str | None = None
    changed_at: Instant | None = None


def by_id(settings: Iterable[LimitSetting]) -> dict[str, LimitSetting]:
    """Return what was set, by its partition."""
    return {each.id: each for each in settings}


def unused_partition(setting: LimitSetting) -> PartitionRecord:
    """Return a partition that nothing has come to yet."""
    pause = (setting.paused_until, setting.reason)
    numbers = (setting.allowed, setting.rate, setting.period_ms)
    return PartitionRecord(setting.id, 0, 0, 0, None, *pause, *numbers)


class PartitionPlace(msgspec.Struct, frozen=True):
    """Where a job waits: its partition, how many are before it, and the signal that is on record.

    `held_by` is the failed job that an ordered queue waits for.
    """

    job_id: str
    gate: str
    gate_at: Instant | None
    ahead: int
    next_at: Instant | None = None
    held_by: str | None = None


class PartitionState(msgspec.Struct, frozen=True):
    """What a partition lets in and remembers.

    `holders` are the first few of the `running` jobs; `starts` of a rate are pairs of when and how many.
    """

    id: str
    running: int = 0
    holders: list[str] = []
    starts: list[list[int]] = []
    paused_until: Instant | None = None
    reason: str | None = None

    def is_paused(self, now: Instant) -> bool:
        """Whether it lets nothing through for a while."""
        return self.paused_until is not None and self.paused_until > now

    def next_start_at(self, rule: PartitionRule, now: Instant) -> Instant | None:
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


class HeldQueue(msgspec.Struct, frozen=True):
    """An ordered key that waits for a dead letter."""

    gate: str
    job_id: str
    since: Instant

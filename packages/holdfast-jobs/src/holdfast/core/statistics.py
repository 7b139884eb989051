"""Figures about jobs: totals, groups of dead letters, charts and their windows, how long jobs waited and ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.core.instants import Instant
from holdfast.core.lifecycle import TerminalState


class QueueTotals(msgspec.Struct, frozen=True):
    """Counts for status and statistics, cheap at any size."""

    live: int
    blocked: int
    running: int
    due: int
    oldest_due_at: Instant | None
    stuck: int
    completed: int
    failed: int
    cancelled: int
    bounded: bool


class TypeTotals(msgspec.Struct, frozen=True):
    """Totals of one job type."""

    type: str
    live: int
    completed: int
    failed: int
    cancelled: int
    oldest_due_at: Instant | None


class DeadGroup(msgspec.Struct, frozen=True):
    """Dead letters of one type that failed alike, with the newest of them."""

    type: str
    fingerprint: str | None
    count: int
    oldest_at: Instant
    newest_at: Instant
    newest_id: str
    error: str | None


class SeriesPoint(msgspec.Struct, frozen=True):
    """What happened in one step of time that began at `at`."""

    at: Instant
    started: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    reaped: int


class WaitStep(msgspec.Struct, frozen=True):
    """A step of time that began at `at`, as the ids that were made in it: from `first` on and before `last`."""

    at: Instant
    first: str
    last: str


class Wait(msgspec.Struct, frozen=True):
    """How long a job of one step waited from due to started."""

    at: Instant
    us: int


class FinishedJob(msgspec.Struct, frozen=True):
    """An ended job by its times; how long it waited says something of the queue only at its first attempt.

    `was_tried` says that there were earlier attempts, before a redrive too: `due_at` is when the first was due.
    """

    id: str
    state: TerminalState
    attempts: int
    due_at: Instant
    started_at: Instant | None
    finished_at: Instant
    was_blocked: bool
    was_tried: bool

    @property
    def ran_us(self) -> int | None:
        """How long its last attempt ran."""
        return None if self.started_at is None else max(0, self.finished_at - self.started_at)

    @property
    def waited_us(self) -> int | None:
        """How long it waited from due to started; None unless its first attempt ended it."""
        if self.started_at is None or self.attempts != 1 or self.was_blocked or self.was_tried:
            return None
        return max(0, self.started_at - self.due_at)


class TypePace(msgspec.Struct, frozen=True):
    """How much of a type ended within a span, and how many run now."""

    type: str
    ended: int
    running: int


class Timeouts(msgspec.Struct, frozen=True):
    """How many attempts of a type were stopped by its timeout."""

    type: str
    count: int


class RetentionProgress(msgspec.Struct, frozen=True):
    """How many ended jobs are past their retention and still stored, and how many were removed per second lately."""

    backlog: int
    per_second: float

    @property
    def seconds_left(self) -> float | None:
        """How long removing them takes at this rate; None while nothing is removed."""
        return self.backlog / self.per_second if self.per_second else None


Window = Literal["1h", "6h", "24h"]

STEPS_MS: dict[Window, tuple[int, int]] = {
    "1h": (3_600_000, 60_000),
    "6h": (21_600_000, 360_000),
    "24h": (86_400_000, 1_440_000),
}
"""The span of each window and the step that its charts are drawn in: sixty of them."""


def quantile(ordered: Sequence[int], share: float) -> int | None:
    """Return the value below which a share of the ordered ones lies, never below zero; None of nothing."""
    if not ordered:
        return None
    return max(0, ordered[min(len(ordered) - 1, int(len(ordered) * share))])

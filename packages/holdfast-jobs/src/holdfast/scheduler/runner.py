"""Runners, the steps of a tick: their budgets, what they are given, what they report, and the summary of a tick."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec

from holdfast.core.events import Observer, event
from holdfast.core.instants import Instant
from holdfast.storage.database import Link
from holdfast.worker.clock import Clock
from holdfast.worker.counters import Counters


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on items and on time since `started_ms`; None means no limit."""

    started_ms: int
    items: int | None = None
    milliseconds: int | None = None

    def after(self, count: int) -> Budget:
        """Return what is left after `count` more items."""
        if self.items is None:
            return self
        return replace(self, items=max(0, self.items - count))

    def room(self, wanted: int) -> int:
        """Return how many of the wanted items still fit."""
        return wanted if self.items is None else min(wanted, self.items)

    def remaining_ms(self, now_ms: int) -> int | None:
        """Return the time that is left, never below zero; None when it is not limited."""
        if self.milliseconds is None:
            return None
        return max(0, self.started_ms + self.milliseconds - now_ms)

    def is_exhausted(self, now_ms: int) -> bool:
        """Say whether items or time are used up."""
        return self.items == 0 or self.remaining_ms(now_ms) == 0

    def within(self, other: Budget, now_ms: int) -> Budget:
        """Return the tighter of both from now on, as a runner's budget within its tick's."""
        times = [
            left
            for left in (self.remaining_ms(now_ms), other.remaining_ms(now_ms))
            if left is not None
        ]
        counts = [count for count in (self.items, other.items) if count is not None]
        return Budget(now_ms, min(counts, default=None), min(times, default=None))


Mode = Literal["tick", "background"]

TICK = "tick"
"""The name of ticks among the recorded runs of cycles."""

_SINGLE = "-tick-"

Concurrency = Literal["sequential", "lingering", "concurrent", "continuous", "leading"]
"""What the runners after this one wait for: its end, the end of its budget, or nothing.

A lingering one starts nothing new after its budget, but what it started may use the rest of the tick's. A concurrent
one keeps to its budget by itself, because each of its steps has the whole of it. A continuous or leading one has no
budget in a worker and runs until `stopping` is set; in a tick it is concurrent, or comes first, and all wait for it.
"""

Now = Callable[[], Instant | None]
"""The instant given to every statement; None means the database's clock."""


def single_tick_id(name: str, suffix: str) -> str:
    """Return the worker id of a process, or a part of one, that ticks once; `is_single_tick` recognizes it."""
    return f"{name}{_SINGLE}{suffix}"


def is_single_tick(worker: str | None) -> bool:
    """Return whether a run's worker only ticked once."""
    return worker is not None and _SINGLE in worker


def database_time() -> None:
    """Use the database's clock."""


class RunnerReport(msgspec.Struct):
    """What one runner did in one tick, counted while it runs."""

    processed: int = 0
    updated: int = 0
    skipped: int = 0
    errors: int = 0

    def add(self, other: RunnerReport) -> None:
        """Add another report to this one."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class RunnerContext:
    """What a tick hands to a runner; `stopping` is set when it must start nothing new.

    `budget` is the runner's own, `tick_budget` what the tick has left. The runner is not run again in this process
    before everything in `abandoned`, which it could not stop, has ended.
    """

    run_id: str
    worker: str
    mode: Mode
    link: Link
    clock: Clock
    budget: Budget
    tick_budget: Budget
    observer: Observer | None = None
    now: Now = database_time
    counts: RunnerReport = field(default_factory=RunnerReport)
    next_in_ms: int | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    worker_counters: Counters = field(default_factory=Counters)
    worker_error: str | None = None
    abandoned: list[asyncio.Future[Any]] = field(default_factory=list)

    def wake_in(self, ms: int) -> None:
        """Ask for another tick within this time; the soonest request counts."""
        ms = max(0, ms)
        self.next_in_ms = ms if self.next_in_ms is None else min(self.next_in_ms, ms)

    def renew_budget(self) -> bool:
        """Begin the runner's time again, for its next step; False when the tick has not so much left."""
        now_ms = self.now_ms()
        renewed = replace(self.budget, started_ms=now_ms)
        if renewed.within(self.tick_budget, now_ms) != renewed:
            return False
        self.budget = renewed
        return True

    def is_spent(self) -> bool:
        """Return whether the items or the time of this runner are used up."""
        return self.budget.after(self.counts.processed).is_exhausted(self.now_ms())

    def room(self, wanted: int) -> int:
        """Return how many of the wanted items the budget still allows."""
        return self.budget.after(self.counts.processed).room(wanted)

    def now_ms(self) -> int:
        """Return the local clock as budgets count it."""
        return int(self.clock.monotonic() * 1000)

    def emit(self, name: str, **fields: Any) -> None:
        """Emit an event of the catalogue."""
        if self.observer is not None:
            self.observer.observe(event(name, **fields))


class Runner(Protocol):
    """One step of a tick."""

    @property
    def name(self) -> str:
        """Its name in WORKER_TICK_RUNNERS."""

    @property
    def max_ms(self) -> int | None:
        """Its own time limit instead of the tick's, if it has one."""

    async def run(self, context: RunnerContext) -> RunnerReport:
        """Do what is due, within the budget; cancelled when it takes longer."""


def concurrency_of(runner: Runner) -> Concurrency:
    """Return a runner's `concurrency`; one that has none is sequential."""
    found: Concurrency = getattr(runner, "concurrency", "sequential")
    return found


class RunnerFailed(Exception):
    """A runner did not do everything it should; what it did is in its context's counts."""


class RunnerResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One runner's part of a tick; `note` says why it was skipped or failed."""

    processed: int
    updated: int
    skipped: int
    errors: int
    duration_ms: int
    note: str | None = None
    failed: bool = False

    @property
    def numbers(self) -> dict[str, int]:
        """What was counted, and the duration."""
        return {
            name: getattr(self, name) for name in (*RunnerReport.__struct_fields__, "duration_ms")
        }


class TickSummary(msgspec.Struct, frozen=True, rename="camel"):
    """What one tick did, as commands print it, the API returns it and runs record it."""

    run_id: str
    started_at: datetime
    finished_at: datetime
    duration_ms: int
    runner_results: dict[str, RunnerResult]
    total_processed: int
    total_errors: int

    @property
    def failed_runners(self) -> list[str]:
        """The runners that raised or were cancelled; errors of single items do not count."""
        return [name for name, each in self.runner_results.items() if each.failed]

    @property
    def exit_code(self) -> int:
        """The exit code of a process that ran only this tick."""
        return 1 if self.failed_runners else 0

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as JSON types."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class TickSkipped(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a request for a tick while one is running."""

    skipped: bool = True
    reason: str = "tick_already_in_progress"


def result_of(
    report: RunnerReport, duration_ms: int, note: str | None = None, failed: bool = False
) -> RunnerResult:
    """Return a runner's result, made from its report."""
    counts = msgspec.structs.asdict(report)
    return RunnerResult(**counts, duration_ms=duration_ms, note=note, failed=failed)


def skipped_result(reason: str) -> RunnerResult:
    """Return the result of a runner that did not run."""
    return RunnerResult(0, 0, 1, 0, 0, reason)

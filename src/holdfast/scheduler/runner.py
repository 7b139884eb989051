"""Runners: the ordered steps of a tick, what they are given and what they report."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from holdfast.core.budget import Budget
from holdfast.core.events import Observer, event
from holdfast.core.records import Instant
from holdfast.storage.database import Link
from holdfast.worker.clock import Clock
from holdfast.worker.counters import Counters

Mode = Literal["tick", "background"]

TICK = "tick"
"""The name under which ticks are recorded beside the runs of cycles."""

_SINGLE = "-tick-"

Manner = Literal["in_turn", "lingering", "beside"]
"""How a runner goes with those after it: they wait for its end, for the end of its budget, or not at all.

One that lingers takes nothing new after its budget, and lets what it began go on for as long as the tick may take.
"""

Now = Callable[[], Instant | None]
"""The instant given to every statement; None means the database's clock."""


def single_tick_id(name: str, suffix: str) -> str:
    """Return the worker id of a process, or a part of one, that ticks once; it is told from others by its form."""
    return f"{name}{_SINGLE}{suffix}"


def is_single_tick(worker: str | None) -> bool:
    """Say whether a run's worker is one of those."""
    return worker is not None and _SINGLE in worker


def database_time() -> None:
    """Leave the time to the database."""


class RunnerReport(msgspec.Struct, frozen=True):
    """What one runner did in one tick."""

    processed: int = 0
    updated: int = 0
    skipped: int = 0
    errors: int = 0


@dataclass(slots=True)
class Counts:
    """The same while it is still being counted."""

    processed: int = 0
    updated: int = 0
    skipped: int = 0
    errors: int = 0

    def add(self, report: RunnerReport) -> None:
        """Count a report in."""
        self.processed += report.processed
        self.updated += report.updated
        self.skipped += report.skipped
        self.errors += report.errors

    def report(self) -> RunnerReport:
        """Return what was counted so far."""
        return RunnerReport(self.processed, self.updated, self.skipped, self.errors)


@dataclass(slots=True)
class RunnerContext:
    """What a tick hands to its runners; `stopping` is set when they are to take nothing new.

    `budget` is the runner's own, `whole` what the tick has left. What a runner could not end is left behind, and it
    is not run again in this process before that ended.
    """

    run_id: str
    worker: str
    mode: Mode
    link: Link
    clock: Clock
    budget: Budget
    whole: Budget
    observer: Observer | None = None
    now: Now = database_time
    counts: Counts = field(default_factory=Counts)
    again_in_ms: int | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    tally: Counters = field(default_factory=Counters)
    left_behind: list[asyncio.Future[Any]] = field(default_factory=list)

    def wake_in(self, ms: int) -> None:
        """Ask for another tick within so long; the soonest of all wishes counts."""
        ms = max(0, ms)
        self.again_in_ms = ms if self.again_in_ms is None else min(self.again_in_ms, ms)

    def is_spent(self) -> bool:
        """Say whether items or time of this runner are used up."""
        return self.budget.after(self.counts.processed).exhausted(self.now_ms())

    def room(self, wanted: int) -> int:
        """Return how many of the wanted items the budget still allows."""
        return self.budget.after(self.counts.processed).room(wanted)

    def now_ms(self) -> int:
        """Return the local clock as budgets count it."""
        return int(self.clock.monotonic() * 1000)

    def tell(self, name: str, **fields: Any) -> None:
        """Emit an event of the catalogue."""
        if self.observer is not None:
            self.observer.observe(event(name, **fields))


class Runner(Protocol):
    """One step of a tick."""

    @property
    def name(self) -> str:
        """How WORKER_TICK_RUNNERS calls it."""

    @property
    def max_ms(self) -> int | None:
        """Its own limit of time in place of the tick's, if it has one."""

    async def run(self, context: RunnerContext) -> RunnerReport:
        """Do what is due, within the budget; cancelled when it takes longer."""


def manner_of(runner: Runner) -> Manner:
    """Return how a runner goes with others; one that does not say so takes its turn."""
    manner: Manner = getattr(runner, "manner", "in_turn")
    return manner


class RunnerFailed(Exception):
    """A runner did not do all it should; what it did is in its context's counts."""


@dataclass(frozen=True, slots=True)
class FunctionRunner:
    """A runner made of a function."""

    name: str
    function: Callable[[RunnerContext], Awaitable[RunnerReport]]
    max_ms: int | None = None

    async def run(self, context: RunnerContext) -> RunnerReport:
        return await self.function(context)

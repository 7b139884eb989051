"""What a runner of streams is given that runs at a later time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.core.events import Observer
from holdfast.core.instants import to_instant
from holdfast.scheduler.runner import Budget, Mode, RunnerContext
from holdfast.worker.clock import SystemClock


def later(observer: Observer, by: timedelta, mode: Mode = "background") -> RunnerContext:
    """The context of a run, as it would be so much later."""
    now = to_instant(datetime.now(UTC) + by)
    budget = Budget(0)
    return RunnerContext(
        "run",
        "worker",
        mode,
        None,  # type: ignore[arg-type]
        SystemClock(),
        budget,
        budget,
        observer=observer,
        now=lambda: now,
    )

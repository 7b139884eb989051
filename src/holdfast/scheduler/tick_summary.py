"""What a tick did, in the form that commands print, the API returns and runs record."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.scheduler.runner import RunnerReport


class RunnerResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One runner's part; `note` says why it was skipped or failed."""

    processed: int
    updated: int
    skipped: int
    errors: int
    duration_ms: int
    note: str | None = None
    failed: bool = False


class TickSummary(msgspec.Struct, frozen=True, rename="camel"):
    """One tick from beginning to end."""

    run_id: str
    started_at: datetime
    finished_at: datetime
    duration_ms: int
    runner_results: dict[str, RunnerResult]
    total_processed: int
    total_errors: int

    @property
    def failed_runners(self) -> list[str]:
        """The runners that raised or were cancelled; errors of single items are not among them."""
        return [name for name, each in self.runner_results.items() if each.failed]

    @property
    def exit_code(self) -> int:
        """How a process that ran just this tick ends."""
        return 1 if self.failed_runners else 0

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class TickSkipped(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to a wish for a tick while one runs."""

    skipped: bool = True
    reason: str = "tick_already_in_progress"


def result(
    report: RunnerReport, duration_ms: int, note: str | None = None, failed: bool = False
) -> RunnerResult:
    """Make a runner's result of its report."""
    return RunnerResult(
        report.processed,
        report.updated,
        report.skipped,
        report.errors,
        duration_ms,
        note,
        failed,
    )


def joined(earlier: RunnerResult | None, later: RunnerResult) -> RunnerResult:
    """Tell two runs of a runner as one."""
    if earlier is None:
        return later
    return RunnerResult(
        earlier.processed + later.processed,
        earlier.updated + later.updated,
        earlier.skipped + later.skipped,
        earlier.errors + later.errors,
        earlier.duration_ms + later.duration_ms,
        "; ".join(each for each in (earlier.note, later.note) if each) or None,
        earlier.failed or later.failed,
    )


def skipped(reason: str) -> RunnerResult:
    """Make the result of a runner that did not run."""
    return RunnerResult(0, 0, 1, 0, 0, reason)

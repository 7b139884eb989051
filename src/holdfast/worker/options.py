"""What a worker is told at its start; every number has the default that the documentation states."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.lease import (
    DEFAULT,
    Lease,
    Timing,
    check_timing,
    default_reaper_interval_ms,
    default_shutdown_ms,
)
from holdfast.core.retry import EVENT_RETRY, JOB_RETRY, Retry

LARGEST_CLAIM = 500
"""Larger claims are no cheaper by the job."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Limits and timings of one worker. A timing that is None follows the smallest lease.

    A claim takes as much as there are free slots and quick jobs that ended a moment ago, `batch` at most.

    With `stop_when_idle` it ends when nothing is due and nothing runs, after `max_items` claimed jobs it claims no more
    and ends with the last of them, after `deadline_s` it stops as if asked to. With `handlers_s` a handler that runs so
    long after the worker's start has run out of time, and until then no deadline cuts it short. Without `reaps` it
    leaves the leases of others alone, because something else in its process takes them back.
    """

    name: str = "worker"
    slots: int = 10
    batch: int | None = None
    lease: Lease = DEFAULT
    retry: Retry = JOB_RETRY
    event_retry: Retry = EVENT_RETRY
    heartbeat_ms: int | None = None
    shutdown_ms: int | None = None
    reaper_interval_ms: int | None = None
    reaper_batch: int = 100
    reaps: bool = True
    poison_limit: int = 3
    poll_ms: int = 60_000
    idle_min_ms: int = 1_000
    idle_max_ms: int = 30_000
    idle_jitter_ms: int = 500
    next_job_delay_ms: int = 0
    statement_timeout_ms: int = 10_000
    stuck_after_ms: int = 10_000
    stop_when_idle: bool = False
    max_items: int | None = None
    deadline_s: float | None = None
    handlers_s: float | None = None

    def timing(self, leases: list[Lease]) -> Timings:
        """Fit the timings to the leases in use, or refuse those that do not. Raises: HF017, HF018, HF019."""
        leases = leases or [self.lease]
        smallest = min(lease.duration_ms for lease in leases)
        # One heartbeat renews everything, so it is as quick as the quickest that was asked for.
        beats = [each.heartbeat_ms for each in leases if not self.heartbeat_ms or each.is_beaten]
        heartbeat = min([*beats, *([self.heartbeat_ms] if self.heartbeat_ms else [])])
        shutdown = (
            self.shutdown_ms if self.shutdown_ms is not None else default_shutdown_ms(smallest)
        )
        reaper = self.reaper_interval_ms or default_reaper_interval_ms(smallest)
        check_timing(
            [Timing("lease", smallest)],
            Timing("heartbeat", heartbeat),
            Timing("shutdown timeout", shutdown),
            Timing("reaper interval", reaper),
        )
        return Timings(heartbeat, shutdown, reaper)


@dataclass(frozen=True, slots=True)
class Timings:
    """The timings a worker runs with, in milliseconds."""

    heartbeat_ms: int
    shutdown_ms: int
    reaper_interval_ms: int

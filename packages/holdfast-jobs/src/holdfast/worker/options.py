"""A worker's options with their documented defaults, and what follows from them: timings, polling, type policies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from holdfast.core.lease import (
    DEFAULT,
    TIMEOUT_IN_LEASES,
    Lease,
    Timing,
    check_timing,
    default_reaper_interval_ms,
    default_shutdown_ms,
)
from holdfast.core.records import ClaimCommit, LeaseClass, TypeSetting
from holdfast.core.registry import JobType
from holdfast.core.retry import CRASH_BASE_MS, CRASH_CAP_MS, EVENT_RETRY, JOB_RETRY, Retry
from holdfast.settings import Settings, event_retry, job_retry, timing_if_set
from holdfast.worker.attempt import EffectivePolicy

LARGEST_CLAIM = 500
"""Larger claims cost no less per job."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Limits and timings of one worker. A timing that is None follows the smallest lease.

    A claim takes as many jobs as there are free slots and quick jobs that ended a moment ago, at most `batch`.

    With `stop_when_idle` the worker ends when nothing is due and nothing runs, but waits for rates with periods of at
    most `rate_wait_ms`; after `max_items` claimed jobs it claims no more and ends with the last of them; after
    `deadline_s` it stops as if asked to. With `handlers_s` a handler that still runs so long after the worker's start
    times out, and until then no deadline cuts it short. Without `reaps` it leaves the leases of others alone, because
    something else in its process reaps them. A job whose input no code can read waits for `unhandled_after_ms`,
    forever without it.
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
    unhandled_after_ms: int | None = None
    poll_ms: int = 60_000
    idle_min_ms: int = 1_000
    idle_max_ms: int = 30_000
    idle_jitter_ms: int = 500
    next_job_delay_ms: int = 0
    claims: ClaimCommit = "auto"
    statement_timeout_ms: int = 10_000
    stuck_after_ms: int = 10_000
    stop_when_idle: bool = False
    rate_wait_ms: int = 0
    max_items: int | None = None
    deadline_s: float | None = None
    handlers_s: float | None = None

    def fit_timings(self, leases: list[Lease]) -> Timings:
        """Fit the timings to the leases in use, or refuse those that do not. Raises: HF017, HF018, HF019."""
        leases = leases or [self.lease]
        smallest = min(lease.duration_ms for lease in leases)
        # One heartbeat renews every lease, so it beats as often as the shortest of them needs.
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


def worker_options(settings: Settings) -> WorkerOptions:
    """Return the options of a dedicated worker."""
    outbox, worker, own = settings.outbox, settings.worker, settings.holdfast
    return WorkerOptions(
        name=own.worker_name,
        slots=own.slots,
        batch=outbox.batch_size,
        lease=Lease(outbox.lease_duration_ms / 1000),
        retry=job_retry(settings),
        event_retry=event_retry(settings),
        heartbeat_ms=timing_if_set(settings, "OUTBOX_LEASE_HEARTBEAT_MS"),
        shutdown_ms=timing_if_set(settings, "WORKER_SHUTDOWN_TIMEOUT_MS"),
        reaper_interval_ms=timing_if_set(settings, "OUTBOX_REAPER_INTERVAL_MS"),
        reaper_batch=own.reaper_batch,
        poison_limit=own.poison_limit,
        unhandled_after_ms=own.unhandled_after_ms,
        poll_ms=own.poll_ms,
        idle_min_ms=worker.idle_backoff_min_ms,
        idle_max_ms=worker.idle_backoff_max_ms,
        idle_jitter_ms=worker.idle_backoff_jitter_ms,
        next_job_delay_ms=own.next_job_delay_ms,
        statement_timeout_ms=own.statement_timeout_ms,
        claims=own.claims,
    )


def embedded_options(settings: Settings) -> WorkerOptions:
    """Return the options of the worker inside a web application."""
    embedded = settings.embedded
    return replace(
        worker_options(settings),
        name=f"{settings.holdfast.worker_name}-embedded",
        batch=embedded.batch_size,
        lease=Lease(embedded.processing_timeout_ms / 1000),
        event_retry=event_retry(settings, embedded=True),
        idle_min_ms=embedded.poll_ms,
    )


class Timings(msgspec.Struct, frozen=True):
    """The timings a worker runs with, in milliseconds."""

    heartbeat_ms: int
    shutdown_ms: int
    reaper_interval_ms: int


ERROR_MIN_S = 0.1
ERROR_MAX_S = 5.0


class PollBackoff:
    """Idle waits double from a second to half a minute; while hints are proven alive one poll a minute is enough."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._idle_ms = options.idle_min_ms
        self._error_s = ERROR_MIN_S
        self.hints_alive = False

    def note_found(self, count: int) -> None:
        """Note a query that reached the database; one that found something ends the idle stretch."""
        self._error_s = ERROR_MIN_S
        if count:
            self._idle_ms = self._options.idle_min_ms

    def poll_s(self, random: float) -> float:
        """How long to sleep without a hint."""
        if self.hints_alive:
            return self._options.poll_ms / 1000
        wait = self._idle_ms + self._options.idle_jitter_ms * random
        self._idle_ms = min(self._idle_ms * 2, self._options.idle_max_ms)
        return wait / 1000

    def error_s(self, random: float) -> float:
        """How long to wait before the database is tried again."""
        wait = self._error_s * (0.5 + random / 2)
        self._error_s = min(self._error_s * 2, ERROR_MAX_S)
        return wait


_NOTHING_SET = TypeSetting("")


class TypePolicies:
    """The policy of every type of a worker; recomputed when a heartbeat brings other settings."""

    def __init__(self, types: Mapping[str, JobType], options: WorkerOptions) -> None:
        self._types = types
        self._options = options
        self._settings: dict[str, TypeSetting] = {}
        self._policies: dict[str, EffectivePolicy] = {}
        self._limits: dict[str, int] = {}
        self.is_all_paused = False
        self.configure({}, False)

    def configure(self, settings: Mapping[str, TypeSetting], is_paused: bool) -> set[str]:
        """Apply what was set at run time; return the types of which more may run than before."""
        before = {name: self._max(name) for name in self._types}
        self._settings = {name: each for name, each in settings.items() if name in self._types}
        self.is_all_paused = is_paused
        self._policies = {name: self._policy_of(each) for name, each in self._types.items()}
        self._leases = {name: _lease_class(each) for name, each in self._policies.items()}
        limits = {name: self._limit_of(each) for name, each in self._types.items()}
        self._limits = {name: limit for name, limit in limits.items() if limit is not None}
        return {name for name, max in before.items() if max < self._max(name)}

    def is_paused(self, name: str) -> bool:
        """Whether a type is not to be claimed."""
        return self.is_all_paused or self._setting(name).paused

    def get(self, name: str) -> EffectivePolicy:
        """The policy of attempts that are claimed now."""
        return self._policies[name]

    def limit(self, name: str) -> int | None:
        """How many calls of a type's handler may run at once in this process; None without a limit."""
        return self._limits.get(name)

    def lease_class(self, name: str) -> LeaseClass:
        """The lease a claim takes for a type, still without a token."""
        return self._leases[name]

    def _max(self, name: str) -> float:
        return 0 if self.is_paused(name) else self._limits.get(name, math.inf)

    def _setting(self, name: str) -> TypeSetting:
        return self._settings.get(name, _NOTHING_SET)

    def _policy_of(self, type: JobType) -> EffectivePolicy:
        setting = self._setting(type.name)
        lease_ms = setting.lease_ms or (type.lease or self._options.lease).duration_ms
        timeout_ms = setting.timeout_ms or type.timeout_ms or TIMEOUT_IN_LEASES * lease_ms
        options = self._options
        retry = type.retry or (options.retry if type.event is None else options.event_retry)
        limit = retry.max_attempts
        if setting.max_attempts is not None:
            limit = setting.max_attempts or None
        return EffectivePolicy(lease_ms, timeout_ms, retry, limit)

    def _limit_of(self, type: JobType) -> int | None:
        limit = self._setting(type.name).concurrency
        return type.concurrency if limit is None else limit


def _lease_class(policy: EffectivePolicy) -> LeaseClass:
    return LeaseClass(
        token="",
        lease_ms=policy.lease_ms,
        max_attempts=policy.max_attempts or 0,
        backoff_base_ms=min(CRASH_BASE_MS, policy.retry.base_ms),
        backoff_cap_ms=min(CRASH_CAP_MS, policy.retry.cap_ms),
    )

"""A worker's options and the retry policies that the settings describe, as plain values."""

from __future__ import annotations

from typing import TypedDict

from holdfast.core.lease import Lease
from holdfast.core.retry import Retry
from holdfast.settings.definitions import Settings
from holdfast.settings.rules import timing


class WorkerValues(TypedDict):
    """The keyword arguments of a worker's options; None leaves a timing to follow the smallest lease."""

    name: str
    slots: int
    batch: int | None
    lease: Lease
    retry: Retry
    event_retry: Retry
    heartbeat_ms: int | None
    shutdown_ms: int | None
    reaper_interval_ms: int | None
    reaper_batch: int
    poison_limit: int
    poll_ms: int
    idle_min_ms: int
    idle_max_ms: int
    idle_jitter_ms: int
    next_job_delay_ms: int
    statement_timeout_ms: int


def worker_options(settings: Settings) -> WorkerValues:
    """Return the options of a dedicated worker."""
    outbox, worker, own = settings.outbox, settings.worker, settings.holdfast
    return WorkerValues(
        name=own.worker_name,
        slots=own.slots,
        batch=outbox.batch_size,
        lease=Lease(outbox.lease_duration_ms / 1000),
        retry=job_retry(settings),
        event_retry=event_retry(settings),
        heartbeat_ms=_if_set(settings, "OUTBOX_LEASE_HEARTBEAT_MS"),
        shutdown_ms=_if_set(settings, "WORKER_SHUTDOWN_TIMEOUT_MS"),
        reaper_interval_ms=_if_set(settings, "OUTBOX_REAPER_INTERVAL_MS"),
        reaper_batch=own.reaper_batch,
        poison_limit=own.poison_limit,
        poll_ms=own.poll_ms,
        idle_min_ms=worker.idle_backoff_min_ms,
        idle_max_ms=worker.idle_backoff_max_ms,
        idle_jitter_ms=worker.idle_backoff_jitter_ms,
        next_job_delay_ms=own.next_job_delay_ms,
        statement_timeout_ms=own.statement_timeout_ms,
    )


def embedded_options(settings: Settings) -> WorkerValues:
    """Return the options of the worker inside a web application."""
    embedded = settings.embedded
    options = worker_options(settings)
    options["name"] = f"{settings.holdfast.worker_name}-embedded"
    options["batch"] = embedded.batch_size
    options["lease"] = Lease(embedded.processing_timeout_ms / 1000)
    options["event_retry"] = event_retry(settings, embedded=True)
    options["idle_min_ms"] = embedded.poll_ms
    return options


def job_retry(settings: Settings) -> Retry:
    """Return the policy of jobs whose type sets none."""
    own = settings.holdfast
    return Retry(
        base=own.retry_base_ms / 1000, cap=own.retry_max_ms / 1000, max_attempts=own.max_attempts
    )


def event_retry(settings: Settings, embedded: bool = False) -> Retry:
    """Return the policy of events' deliveries whose subscriber sets none."""
    policy = settings.embedded if embedded else settings.outbox
    return Retry(
        base=policy.retry_base_ms / 1000,
        cap=policy.retry_max_ms / 1000,
        jitter=settings.outbox.retry_jitter_ms / 1000,
        max_attempts=policy.max_attempts,
    )


def _if_set(settings: Settings, name: str) -> int | None:
    return timing(settings, name).ms if settings.is_set(name) else None

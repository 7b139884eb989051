"""What follows from settings: rules between them, and retry policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from holdfast.core.errors import ConfigError, ShardPairInvalid
from holdfast.core.lease import (
    Lease,
    Timing,
    check_timing,
    default_heartbeat_ms,
    default_reaper_interval_ms,
    default_shutdown_ms,
)
from holdfast.core.retry import Retry
from holdfast.settings.definitions import Settings
from holdfast.storage.sql_loader import check_identifier
from holdfast.storage.url import parse_url


def derive_timings(settings: Settings) -> Settings:
    """Derive the timings that are not set from the lease, and the longest idle pause from the first one."""
    lease_ms = settings.outbox.lease_duration_ms
    outbox, worker = settings.outbox, settings.worker
    if not settings.is_set("OUTBOX_LEASE_HEARTBEAT_MS"):
        outbox = replace(outbox, lease_heartbeat_ms=default_heartbeat_ms(lease_ms))
    if not settings.is_set("OUTBOX_REAPER_INTERVAL_MS"):
        outbox = replace(outbox, reaper_interval_ms=default_reaper_interval_ms(lease_ms))
    if not settings.is_set("WORKER_SHUTDOWN_TIMEOUT_MS"):
        worker = replace(worker, shutdown_timeout_ms=default_shutdown_ms(lease_ms))
    if not settings.is_set("WORKER_IDLE_BACKOFF_MAX_MS"):
        pauses = (worker.idle_backoff_max_ms, worker.idle_backoff_min_ms, settings.embedded.poll_ms)
        worker = replace(worker, idle_backoff_max_ms=max(pauses))
    return replace(settings, outbox=outbox, worker=worker)


def check_rules(settings: Settings) -> None:
    """Reject settings that contradict each other. Raises: HF010, HF011, HF013, HF014, HF017, HF018, HF019."""
    parse_url(settings.holdfast.url)
    check_identifier(settings.holdfast.schema)
    _check_lease(settings, [timing_of(settings, "OUTBOX_LEASE_DURATION_MS")])
    if settings.embedded.enabled:
        _check_lease(settings, [timing_of(settings, "OUTBOX_WORKER_PROCESSING_TIMEOUT_MS")])
    _check_shard(settings)
    for low, high in (
        ("WORKER_IDLE_BACKOFF_MIN_MS", "WORKER_IDLE_BACKOFF_MAX_MS"),
        ("OUTBOX_WORKER_POLL_MS", "WORKER_IDLE_BACKOFF_MAX_MS"),
        ("OUTBOX_RETRY_BASE_MS", "OUTBOX_RETRY_MAX_MS"),
        ("OUTBOX_WORKER_RETRY_BASE_MS", "OUTBOX_WORKER_RETRY_MAX_MS"),
        ("HOLDFAST_RETRY_BASE_MS", "HOLDFAST_RETRY_MAX_MS"),
    ):
        _check_order(timing_of(settings, low), timing_of(settings, high))


def check_leases(settings: Settings, leases: Mapping[str, Lease]) -> None:
    """Reject timings that do not fit the leases that job types set in code. Raises: HF017, HF018, HF019."""
    timings = [
        Timing(f"lease of {name}", lease.duration_ms, "code") for name, lease in leases.items()
    ]
    _check_lease(settings, [timing_of(settings, "OUTBOX_LEASE_DURATION_MS"), *timings])


def _check_lease(settings: Settings, leases: list[Timing]) -> None:
    """Reject heartbeat, shutdown timeout and reaper interval that do not fit the smallest of the leases."""
    check_timing(leases, *timings_under(settings, min(each.ms for each in leases)))


def timings_under(settings: Settings, lease_ms: int) -> tuple[Timing, Timing, Timing]:
    """Return heartbeat, shutdown timeout and reaper interval as they are under a smallest lease."""
    return (
        _timing_under(settings, "OUTBOX_LEASE_HEARTBEAT_MS", default_heartbeat_ms(lease_ms)),
        _timing_under(settings, "WORKER_SHUTDOWN_TIMEOUT_MS", default_shutdown_ms(lease_ms)),
        _timing_under(settings, "OUTBOX_REAPER_INTERVAL_MS", default_reaper_interval_ms(lease_ms)),
    )


def timing_of(settings: Settings, name: str) -> Timing:
    """Return a setting that is a time, with its name and origin."""
    for group in (settings.embedded, settings.outbox, settings.worker, settings.holdfast):
        if name.startswith(group.PREFIX):
            ms: int = getattr(group, name.removeprefix(group.PREFIX).lower())
            return Timing(name, ms, settings.origin(name))
    raise KeyError(name)


def _timing_under(settings: Settings, name: str, ms: int) -> Timing:
    found = timing_of(settings, name)
    return found if settings.is_set(name) else msgspec.structs.replace(found, ms=ms)


def _check_order(low: Timing, high: Timing) -> None:
    if low.ms > high.ms:
        raise ConfigError(
            f"{low.name} is above {high.name}",
            details=[f"{low}   {high}"],
            rule="the first pause must not be longer than the longest",
            help=f"set {high.name}={low.ms}, or a lower {low.name}",
        )


def _check_shard(settings: Settings) -> None:
    index, count = settings.worker.tick_shard_index, settings.worker.tick_shard_count
    if index is None and count is None:
        return
    if index is not None and count is not None and index < count:
        return
    given = [
        f"{name}={value} ({settings.origin(name)})"
        for name, value in (("WORKER_TICK_SHARD_INDEX", index), ("WORKER_TICK_SHARD_COUNT", count))
        if value is not None
    ]
    raise ShardPairInvalid(
        "shard index and shard count are inconsistent",
        details=["   ".join(given)],
        rule="both or neither, and index < count, so that every tenant is served",
        help="set both, with 0 <= index < count, or neither",
    )


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


def timing_if_set(settings: Settings, name: str) -> int | None:
    """Return a time that is set; None leaves it to follow the smallest lease."""
    return timing_of(settings, name).ms if settings.is_set(name) else None

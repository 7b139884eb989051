"""Every setting, by group. The names are the variables' own: PREFIX and field, in capitals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from holdfast.core.errors import UnknownVariable
from holdfast.settings.schema import (
    Address,
    Choice,
    Flag,
    Group,
    Names,
    Text,
    Whole,
    ZoneName,
    setting,
)

_HTTP = Address(("http", "https"))
_MS = Whole(0, in_ms=True)
_SOME_MS = Whole(1, in_ms=True)
_COUNT = Whole(1, 1_000_000)
_DAYS = Whole(0, 36_500)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Ticks, the loop that repeats them, and calls to an API."""

    PREFIX: ClassVar[str] = "WORKER_"

    tick_runners: tuple[str, ...] | None = setting(
        Names(), None, "Runners of a tick, in order; unset: outbox, every cycle, retention."
    )
    tick_overall_max_ms: int = setting(_SOME_MS, 480_000, "Longest time a tick may take.")
    tick_runner_max_ms: int = setting(_SOME_MS, 60_000, "Longest time one runner may take.")
    tick_runner_max_items: int = setting(
        _COUNT, 200, "Most items one runner may process; a cycle sees it as run.max_items."
    )
    tick_shard_index: int | None = setting(
        Whole(0, 9_999), None, "Which shard of the tenants this replica serves, from 0."
    )
    tick_shard_count: int | None = setting(
        Whole(1, 10_000), None, "How many shards the tenants are divided into."
    )
    time_zone: str = setting(ZoneName(), "UTC", "Zone of cron expressions that name none.")
    busy_loop_delay_ms: int = setting(_MS, 250, "Pause after a tick that processed something.")
    idle_backoff_min_ms: int = setting(_SOME_MS, 1_000, "First pause after a tick without work.")
    idle_backoff_max_ms: int = setting(_SOME_MS, 30_000, "Longest pause after idle ticks.")
    idle_backoff_jitter_ms: int = setting(_MS, 500, "Random part of busy and idle pauses.")
    tick_loop_error_backoff_ms: int = setting(_SOME_MS, 30_000, "Pause after a failed tick.")
    tick_loop_max_jitter_ms: int = setting(_MS, 2_000, "Random part of that pause.")
    shutdown_timeout_ms: int = setting(
        _MS, 30_000, "How long a stopping worker waits for its handlers; unset: at most the lease."
    )
    api_base_url: str | None = setting(_HTTP, None, "API that cycles call (service calls).")
    api_service_token: str | None = setting(
        Text(), None, "Token of service calls, sent as x-service-token.", secret=True
    )


@dataclass(frozen=True, slots=True)
class OutboxSettings:
    """Claiming, leases and retries."""

    PREFIX: ClassVar[str] = "OUTBOX_"

    batch_size: int | None = setting(
        Whole(1, 10_000),
        None,
        "Most jobs claimed at once; unset: as many as there are free slots and were just finished, 500 at most.",
    )
    concurrency: int = setting(Whole(1, 1_000), 10, "Most handlers that run at once.")
    lease_duration_ms: int = setting(Whole(100, in_ms=True), 60_000, "Lease of a claim.")
    lease_heartbeat_ms: int = setting(
        _SOME_MS, 15_000, "How often leases are renewed; unset: at most 0.3 of the smallest lease."
    )
    reaper_interval_ms: int = setting(
        _SOME_MS, 10_000, "How often expired leases are looked for; unset: at most half the lease."
    )
    max_attempts: int = setting(_COUNT, 3, "Attempts of an event's delivery before it fails.")
    retry_base_ms: int = setting(_MS, 5_000, "Pause after a delivery's first failed attempt.")
    retry_max_ms: int = setting(_MS, 120_000, "Longest pause between a delivery's attempts.")
    retry_jitter_ms: int = setting(_MS, 500, "Random part of that pause.")


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    """The worker inside a web application; what is unset follows the dedicated worker's settings."""

    PREFIX: ClassVar[str] = "OUTBOX_WORKER_"

    enabled: bool = setting(Flag(), False, "Whether a web application works jobs off itself.")
    poll_ms: int = setting(
        _SOME_MS, 1_000, "Shortest pause between polls.", fallback="WORKER_IDLE_BACKOFF_MIN_MS"
    )
    batch_size: int | None = setting(
        Whole(1, 10_000), None, "Most jobs claimed at once.", fallback="OUTBOX_BATCH_SIZE"
    )
    max_attempts: int = setting(
        _COUNT, 3, "Attempts of an event's delivery.", fallback="OUTBOX_MAX_ATTEMPTS"
    )
    processing_timeout_ms: int = setting(
        Whole(100, in_ms=True), 60_000, "Lease of a claim.", fallback="OUTBOX_LEASE_DURATION_MS"
    )
    retry_base_ms: int = setting(
        _MS, 5_000, "Pause after the first failed attempt.", fallback="OUTBOX_RETRY_BASE_MS"
    )
    retry_max_ms: int = setting(
        _MS, 120_000, "Longest pause between attempts.", fallback="OUTBOX_RETRY_MAX_MS"
    )


@dataclass(frozen=True, slots=True)
class HoldfastSettings:
    """The database, the process and how long things are kept."""

    PREFIX: ClassVar[str] = "HOLDFAST_"

    url: str = setting(Text(), "sqlite:///holdfast.db", "Database: sqlite:/// or postgresql://.")
    schema: str = setting(Text(), "holdfast", "PostgreSQL schema of Holdfast's tables.")
    config: str | None = setting(
        Text(), None, "File to read instead of holdfast.toml or pyproject.toml."
    )
    notifier: str | None = setting(
        Text(),
        None,
        "local, none, or a postgresql://, redis:// or nats:// URL; unset: the database.",
    )
    listen_url: str | None = setting(
        Text(), None, "PostgreSQL URL for LISTEN, where the other leads through a pooler."
    )
    hints: bool = setting(Flag(), True, "Whether starting a job sends a hint.")
    connections: int = setting(Whole(1, 1_000), 10, "Most pooled connections of a process.")
    prepare: bool = setting(Flag(), True, "Whether statements are prepared; no behind old poolers.")
    synchronous: str = setting(
        Choice(("FULL", "NORMAL")), "FULL", "SQLite: whether each commit waits for the disk."
    )
    statement_timeout_ms: int = setting(
        Whole(100, in_ms=True), 10_000, "Longest time of one statement of a worker."
    )
    worker_name: str = setting(Text(), "worker", "First part of a worker's id.")
    slots: int = setting(
        Whole(1, 1_000), 10, "Handlers that run at once.", fallback="OUTBOX_CONCURRENCY"
    )
    processes: int = setting(Whole(1, 256), 1, "Worker processes to supervise.")
    poll_ms: int = setting(_SOME_MS, 60_000, "Pause between polls while hints are proven alive.")
    next_job_delay_ms: int = setting(_MS, 0, "Pause between full batches.")
    poison_limit: int = setting(
        Whole(1, 1_000), 3, "How many workers may die with a job before it fails."
    )
    reaper_batch: int = setting(Whole(1, 10_000), 100, "Leases the reaper takes back at once.")
    max_attempts: int = setting(_COUNT, 25, "Attempts of a job whose type sets none.")
    retry_base_ms: int = setting(_MS, 10_000, "Pause after a job's first failed attempt.")
    retry_max_ms: int = setting(_MS, 300_000, "Longest pause between a job's attempts.")
    retention_days: int = setting(
        _DAYS, 30, "How long completed and cancelled chains are kept; 0: forever."
    )
    dead_letter_days: int = setting(
        Whole(90, 36_500), 90, "How long failed chains are kept, 90 at least."
    )
    key_days: int = setting(
        _DAYS, 0, 'How long a key of scope="any" outlives its chain; 0: forever.'
    )
    run_days: int = setting(Whole(1, 36_500), 30, "How long runs and slots of cycles are kept.")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a process, checked, with the origin of each and what was not understood."""

    worker: WorkerSettings
    outbox: OutboxSettings
    embedded: EmbeddedSettings
    holdfast: HoldfastSettings
    origins: Mapping[str, str]
    given: frozenset[str]
    warnings: tuple[UnknownVariable, ...]

    def origin(self, name: str) -> str:
        """Say where a variable's value comes from: argument, env, a file, another variable, or default."""
        return self.origins[name]

    def is_set(self, name: str) -> bool:
        """Say whether somebody set the variable itself."""
        return name in self.given


GROUPS: Mapping[str, type[Group]] = {
    "holdfast": HoldfastSettings,
    "worker": WorkerSettings,
    "outbox": OutboxSettings,
    "embedded": EmbeddedSettings,
}

"""Every setting, by group. A variable's name is PREFIX and field, in capitals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from holdfast.core.errors import UnknownVariable
from holdfast.core.schemes import POSTGRES_SCHEMES
from holdfast.settings.fields import (
    Boolean,
    Integer,
    Names,
    NotifierUrl,
    OneOf,
    SettingsGroup,
    Text,
    Url,
    UrlTemplate,
    ZoneName,
    setting,
)

_MS = Integer(0, in_ms=True)
_SOME_MS = Integer(1, in_ms=True)
_COUNT = Integer(1, 1_000_000)
_DAYS = Integer(0, 36_500)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Ticks, the loop that repeats them, and calls to an API."""

    PREFIX: ClassVar[str] = "WORKER_"

    tick_runners: tuple[str, ...] | None = setting(
        Names(), None, "Runners in a tick, in order; unset: outbox, all cycles, retention."
    )
    tick_overall_max_ms: int = setting(_SOME_MS, 480_000, "Maximum duration of a tick.")
    tick_runner_max_ms: int = setting(
        _SOME_MS,
        60_000,
        "Maximum duration of one runner: a cycle's run is stopped then; jobs that the outbox started may use the rest"
        " of the tick's.",
    )
    tick_runner_max_items: int = setting(
        _COUNT,
        200,
        "Maximum items per runner; a cycle sees it as run.max_items, retention removes so many chains at a time.",
    )
    tick_shard_index: int | None = setting(
        Integer(0, 9_999), None, "Index of the tenant shard this replica serves, from 0."
    )
    tick_shard_count: int | None = setting(
        Integer(1, 10_000), None, "Number of shards the tenants are divided into."
    )
    time_zone: str = setting(ZoneName(), "UTC", "Default time zone for cron expressions.")
    busy_loop_delay_ms: int = setting(_MS, 250, "Pause after a tick that processed something.")
    idle_backoff_min_ms: int = setting(_SOME_MS, 1_000, "First pause after a tick without work.")
    idle_backoff_max_ms: int = setting(
        _SOME_MS, 30_000, "Maximum pause after idle ticks; unset: at least the first."
    )
    idle_backoff_jitter_ms: int = setting(_MS, 500, "Jitter added to busy and idle pauses.")
    tick_loop_error_backoff_ms: int = setting(_SOME_MS, 30_000, "Pause after a failed tick.")
    tick_loop_max_jitter_ms: int = setting(_MS, 2_000, "Jitter added to that pause.")
    shutdown_timeout_ms: int = setting(
        _MS, 30_000, "How long a stopping worker waits for its handlers; unset: at most the lease."
    )


@dataclass(frozen=True, slots=True)
class OutboxSettings:
    """Claiming, leases and retries."""

    PREFIX: ClassVar[str] = "OUTBOX_"

    batch_size: int | None = setting(
        Integer(1, 10_000),
        None,
        "Maximum jobs per claim; unset: free slots plus recently finished jobs, up to 500. The outbox"
        " statistics show the number in force.",
    )
    concurrency: int = setting(Integer(1, 1_000), 10, "Maximum concurrent handlers.")
    lease_duration_ms: int = setting(Integer(100, in_ms=True), 60_000, "Lease of a claim.")
    lease_heartbeat_ms: int = setting(
        _SOME_MS, 15_000, "How often leases are renewed; unset: at most 0.3 of the smallest lease."
    )
    reaper_interval_ms: int = setting(
        _SOME_MS, 10_000, "How often the reaper runs; unset: at most half the lease."
    )
    max_attempts: int = setting(_COUNT, 3, "Maximum attempts per event delivery.")
    retry_base_ms: int = setting(_MS, 5_000, "Delay after a delivery's first failed attempt.")
    retry_max_ms: int = setting(_MS, 120_000, "Maximum delay between a delivery's attempts.")
    retry_jitter_ms: int = setting(_MS, 500, "Jitter added to that delay.")


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    """A worker embedded in a web application; unset values fall back to the dedicated worker's settings."""

    PREFIX: ClassVar[str] = "OUTBOX_WORKER_"

    enabled: bool = setting(
        Boolean(), False, "Whether a web application also runs jobs in its process."
    )
    poll_ms: int = setting(
        _SOME_MS, 1_000, "Minimum pause between polls.", fallback="WORKER_IDLE_BACKOFF_MIN_MS"
    )
    batch_size: int | None = setting(
        Integer(1, 10_000), None, "Maximum jobs per claim.", fallback="OUTBOX_BATCH_SIZE"
    )
    max_attempts: int = setting(
        _COUNT, 3, "Maximum attempts per event delivery.", fallback="OUTBOX_MAX_ATTEMPTS"
    )
    processing_timeout_ms: int = setting(
        Integer(100, in_ms=True), 60_000, "Lease of a claim.", fallback="OUTBOX_LEASE_DURATION_MS"
    )
    retry_base_ms: int = setting(
        _MS, 5_000, "Delay after the first failed attempt.", fallback="OUTBOX_RETRY_BASE_MS"
    )
    retry_max_ms: int = setting(
        _MS, 120_000, "Maximum delay between attempts.", fallback="OUTBOX_RETRY_MAX_MS"
    )


@dataclass(frozen=True, slots=True)
class HoldfastSettings:
    """The database, the process and how long things are kept."""

    PREFIX: ClassVar[str] = "HOLDFAST_"

    url: str = setting(Text(), "sqlite:///holdfast.db", "Database: sqlite:/// or postgresql://.")
    schema: str = setting(Text(), "holdfast", "PostgreSQL schema of Holdfast's tables.")
    environment: str | None = setting(
        Text(),
        None,
        "Name of this deployment, such as staging; workers refuse a database that was not created or"
        " adopted under it. Unset: a copy is recognised by its name, server and address.",
    )
    config: str | None = setting(
        Text(), None, "File to read instead of holdfast.toml or pyproject.toml."
    )
    notifier: str | None = setting(
        NotifierUrl(),
        None,
        "local, none, or a postgresql://, redis:// or nats:// URL; unset: the database.",
    )
    listen_url: str | None = setting(
        Url(POSTGRES_SCHEMES, "a postgresql:// URL"),
        None,
        "Direct PostgreSQL URL for LISTEN, if HOLDFAST_URL goes through a pooler.",
    )
    hints: bool = setting(Boolean(), True, "Whether starting a job sends a hint.")
    connections: int = setting(Integer(1, 1_000), 10, "Maximum pooled connections per process.")
    prepare: bool = setting(
        Boolean(), True, "Whether statements are prepared on direct connections."
    )
    prepare_pooled: bool = setting(
        Boolean(),
        False,
        "Whether workers prepare statements behind a pooler too (PgBouncer 1.21+ with max_prepared_statements).",
    )
    synchronous: str = setting(
        OneOf(("FULL", "NORMAL")), "FULL", "SQLite: whether each commit waits for the disk."
    )
    statement_timeout_ms: int = setting(
        Integer(100, in_ms=True), 10_000, "Statement timeout for workers."
    )
    claims: Literal["auto", "lazy", "durable"] = setting(
        OneOf(("auto", "lazy", "durable")),
        "auto",
        "PostgreSQL: whether a claim waits for its commit; auto waits only for a synchronous standby.",
    )
    seal_keys: str | None = setting(
        Text(),
        None,
        "Keys of sealed payloads, the current one first: id:base64,…, or @FILE with one a line;"
        " unset: nothing can be sealed or opened.",
        secret=True,
    )
    worker_name: str = setting(
        Text(), "worker", "Prefix of a worker's id; the rest is unique to each start."
    )
    slots: int = setting(
        Integer(1, 1_000), 10, "Maximum concurrent handlers.", fallback="OUTBOX_CONCURRENCY"
    )
    processes: int = setting(Integer(1, 256), 1, "Worker processes to supervise.")
    uvloop: bool = setting(
        Boolean(), True, "Whether `holdfast worker` runs on uvloop if that is installed."
    )
    poll_ms: int = setting(_SOME_MS, 60_000, "Poll interval while hints are known to arrive.")
    next_job_delay_ms: int = setting(_MS, 0, "Pause between full batches.")
    poison_limit: int = setting(
        Integer(1, 1_000), 3, "Worker crashes after which a job becomes a dead letter."
    )
    reaper_batch: int = setting(Integer(1, 10_000), 100, "Maximum leases reaped at once.")
    unhandled_after_ms: int | None = setting(
        _SOME_MS,
        None,
        "How long a due job that no worker handles, or whose input no worker can read, waits until it"
        " becomes a dead letter; unset: forever.",
    )
    max_attempts: int = setting(_COUNT, 25, "Default attempts per job.")
    retry_base_ms: int = setting(_MS, 10_000, "Delay after a job's first failed attempt.")
    retry_max_ms: int = setting(_MS, 300_000, "Maximum delay between a job's attempts.")
    retention_days: int = setting(
        _DAYS, 30, "How long completed and cancelled chains are kept; 0: forever."
    )
    dead_letter_days: int = setting(
        Integer(1, 36_500), 90, "How long failed chains are kept, as dead letters."
    )
    key_days: int = setting(
        _DAYS, 0, 'How long used keys, and those of scope="any", outlive their use; 0: forever.'
    )
    run_days: int = setting(Integer(1, 36_500), 30, "How long runs and slots of cycles are kept.")
    streams: int = setting(
        Integer(1, 100_000),
        500,
        "Maximum open event streams (live pages, tail) per server process.",
    )
    streams_per_principal: int = setting(
        Integer(1, 100_000), 50, "Maximum open event streams per user or token."
    )
    trace_url: str | None = setting(
        UrlTemplate(("trace_id", "span_id")),
        None,
        "Link to a job's trace, for the dashboard: a URL with {trace_id} and, if needed, {span_id};"
        " unset: no link.",
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a process, validated, with the origin of each and warnings about unknown variables."""

    worker: WorkerSettings
    outbox: OutboxSettings
    embedded: EmbeddedSettings
    holdfast: HoldfastSettings
    others: Mapping[type[SettingsGroup], Any]
    """The groups of extensions, by their classes."""

    origins: Mapping[str, str]
    given: frozenset[str]
    warnings: tuple[UnknownVariable, ...]

    def origin(self, name: str) -> str:
        """Return where a variable's value comes from: argument, env, a file, another variable, or default."""
        return self.origins[name]

    def is_set(self, name: str) -> bool:
        """Return whether the variable itself is set."""
        return name in self.given


GROUPS: Mapping[str, type[SettingsGroup]] = {
    "holdfast": HoldfastSettings,
    "worker": WorkerSettings,
    "outbox": OutboxSettings,
    "embedded": EmbeddedSettings,
}

"""The catalogue of all events. Observers turn them into logs, metrics and traces.

Levels: `debug` is routine, one event per job or more; `info` is about the process as a whole, at most a few lines per
ten seconds regardless of the number of jobs; `warning` is a problem that is being handled; `error` needs attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

Level = Literal["debug", "info", "warning", "error"]


class EventSpec(msgspec.Struct, frozen=True):
    """One kind of event: when it is emitted and which fields it carries.

    It is a warning if its `outcome` is one of `warning_outcomes`.
    """

    name: str
    level: Level
    text: str
    fields: tuple[str, ...]
    warning_outcomes: tuple[str, ...] = ()

    def __call__(self, **fields: Any) -> Event:
        """Create such an event; unknown fields are programming errors."""
        unknown = fields.keys() - set(self.fields)
        if unknown:
            raise ValueError(f"event {self.name} has no field {', '.join(sorted(unknown))}")
        return Event(self.name, fields)


class Event(msgspec.Struct, frozen=True):
    """Something that happened and was committed."""

    name: str
    fields: dict[str, Any]


MetricKind = Literal["counter", "histogram", "gauge"]


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric under OpenTelemetry's name. Labels are few: no id but that of a process's own worker.

    One `of_database` is a figure of the whole database, left out while that is away.
    """

    name: str
    kind: MetricKind
    text: str
    labels: tuple[str, ...] = ()
    unit: str = "1"
    of_database: bool = False

    @property
    def prometheus(self) -> str:
        """The name by Prometheus's rules: underscores, the unit, and `_total` for counters."""
        unit = "_seconds" if self.unit == "s" else ""
        total = "_total" if self.kind == "counter" else ""
        return f"{self.name.replace('.', '_')}{unit}{total}"


class Measured(NamedTuple):
    """A metric that an event of an extension measures: 1, or the number in one of its fields."""

    event: str
    metric: Metric
    value: str | int = 1


class Observer(Protocol):
    """Receives events, after commit. It must not block and must not raise.

    An optional `wants(name) -> bool` is called first: events that no observer wants are never created. An optional
    `expect(types, cycles)` gets the registered names before a worker starts.
    """

    def observe(self, event: Event) -> None: ...


Wants = Callable[[str], bool]
"""Whether events of a name are wanted now."""


def wants_of(observer: Observer | None) -> Wants:
    """Return how to ask an observer what it wants; one without `wants`, or whose `wants` fails, gets everything."""
    if observer is None:
        return lambda _: False
    wants: Wants | None = getattr(observer, "wants", None)
    if wants is None:
        return lambda _: True

    def is_wanted(name: str) -> bool:
        try:
            return wants(name)
        except Exception:
            return True

    return is_wanted


_JOB = ("job_id", "type", "chain_id")
_ATTEMPT = (*_JOB, "worker", "attempt", "fence")

CATALOGUE: dict[str, EventSpec] = {
    spec.name: spec
    for spec in (
        EventSpec("job_created", "debug", "A job was written and its transaction committed.", _JOB),
        EventSpec("job_started", "debug", "A handler was called.", (*_ATTEMPT, "wait_ms")),
        EventSpec("job_completed", "debug", "An attempt completed its job.", (*_ATTEMPT, "run_ms")),
        EventSpec(
            "job_continued",
            "debug",
            "An attempt completed its job and continued the chain.",
            (*_ATTEMPT, "run_ms", "next_type"),
        ),
        EventSpec(
            "job_retried",
            "warning",
            "An attempt failed; the job will be retried after a delay.",
            (*_ATTEMPT, "run_ms", "error", "delay_ms"),
        ),
        EventSpec(
            "job_snoozed",
            "debug",
            "A handler asked to run later; the attempt is not counted.",
            (*_ATTEMPT, "delay_ms"),
        ),
        EventSpec(
            "job_unreadable",
            "warning",
            "The code cannot read a job's input; the job waits for code that can.",
            (*_ATTEMPT, "error", "delay_ms"),
        ),
        EventSpec(
            "job_failed",
            "error",
            "A job became a dead letter.",
            (*_ATTEMPT, "run_ms", "error", "fingerprint"),
        ),
        EventSpec(
            "on_failed_gave_up",
            "warning",
            "A job failed although its `on_failed` could not be called to its end.",
            (*_ATTEMPT, "error"),
        ),
        EventSpec("job_cancelled", "debug", "A job was cancelled.", (*_JOB, "worker", "reason")),
        EventSpec(
            "job_released",
            "debug",
            "A claimed job was given back, and keeps its place.",
            (*_JOB, "worker"),
        ),
        EventSpec(
            "job_parked",
            "debug",
            "A function waits for a time, a signal or other chains; the attempt is not counted.",
            (*_ATTEMPT, "run_ms"),
        ),
        EventSpec(
            "steps_recorded",
            "debug",
            "An attempt of a function recorded steps, and took signals that it waited for.",
            (*_ATTEMPT, "recorded", "signals"),
        ),
        EventSpec(
            "step_failed",
            "warning",
            "A step of a function failed and will not be tried again; the function sees a StepFailed.",
            (*_ATTEMPT, "step", "error"),
        ),
        EventSpec(
            "records_unused",
            "warning",
            "A function ended without asking for some of its records: its code has changed since.",
            (*_ATTEMPT, "steps"),
        ),
        EventSpec(
            "signal_sent",
            "debug",
            "A signal was written and its transaction committed.",
            ("signal", "id"),
        ),
        EventSpec("job_unblocked", "debug", "The last blocker of a job finished.", _JOB),
        EventSpec(
            "job_reaped",
            "warning",
            "A job was recovered from an expired lease.",
            ("job_id", "type", "worker", "state", "crashes", "stale_ms"),
        ),
        EventSpec("job_redriven", "info", "A dead letter was re-queued.", _JOB),
        EventSpec(
            "lease_lost",
            "warning",
            "A worker no longer holds a job; its handler is aborted.",
            (*_ATTEMPT, "reason"),
        ),
        EventSpec(
            "write_refused",
            "warning",
            "A write without a valid token was rejected.",
            (*_ATTEMPT, "reason"),
        ),
        EventSpec(
            "slot_stuck",
            "error",
            "A handler ignores its abort signal.",
            (*_ATTEMPT, "reason", "stuck_ms"),
        ),
        EventSpec(
            "loop_lagged",
            "warning",
            "The event loop was blocked for a while.",
            ("worker", "lag_ms"),
        ),
        EventSpec(
            "type_unhandled",
            "warning",
            "Jobs are due that no live worker handles.",
            ("type", "worker"),
        ),
        EventSpec(
            "job_missing",
            "warning",
            "A job's row was deleted by SQL; what was left of it is removed from the queue.",
            ("worker", "job_id", "type"),
        ),
        EventSpec(
            "reaper_ran",
            "debug",
            "The reaper checked for expired leases.",
            ("worker", "recovered", "duration_ms"),
        ),
        EventSpec(
            "database_unreachable",
            "error",
            "A loop could not reach the database.",
            ("worker", "purpose", "error"),
        ),
        EventSpec(
            "database_refused",
            "error",
            "A loop's database role lacks a privilege (HF046).",
            ("worker", "purpose", "error"),
        ),
        EventSpec(
            "database_back", "info", "A loop's statements succeed again.", ("worker", "purpose")
        ),
        EventSpec(
            "connections_short",
            "warning",
            "The server has no connection left for the handlers' transactions; the worker shares those it has and "
            "claims jobs of these types only when it has a connection for them.",
            ("worker", "in_hand", "types", "error"),
        ),
        EventSpec(
            "connections_enough",
            "info",
            "The server has enough connections for the worker again.",
            ("worker",),
        ),
        EventSpec(
            "worker_started",
            "info",
            "A worker started claiming jobs.",
            ("worker", "slots", "types", "lease_ms", "heartbeat_ms"),
        ),
        EventSpec(
            "worker_summary",
            "info",
            "Totals of a worker's attempts in the last ten seconds, if any ended, and a last time before it stops.",
            (
                "worker",
                "seconds",
                "completed",
                "retried",
                "failed",
                "snoozed",
                "cancelled",
                "per_second",
                "wait_p50_ms",
                "wait_p95_ms",
                "run_p50_ms",
                "run_p95_ms",
                "running",
                "types",
            ),
        ),
        EventSpec(
            "worker_stopping",
            "info",
            "A worker stopped claiming jobs and is shutting down.",
            ("worker", "reason", "running"),
        ),
        EventSpec(
            "worker_stopped",
            "info",
            "A worker has stopped.",
            ("worker", "reason", "abandoned", "released"),
        ),
        EventSpec(
            "worker_vanished",
            "error",
            "A worker stopped sending heartbeats without shutting down.",
            ("worker", "by", "silent_ms"),
        ),
        EventSpec(
            "child_died", "error", "A supervised process exited unexpectedly.", ("pid", "exit_code")
        ),
        EventSpec(
            "child_not_started",
            "error",
            "A supervised process could not be started; it is tried again.",
            ("error",),
        ),
        EventSpec(
            "tick_finished",
            "debug",
            "A tick finished all its runners.",
            ("worker", "run_id", "processed", "errors", "duration_ms"),
        ),
        EventSpec("tick_failed", "error", "A tick could not run.", ("worker", "error")),
        EventSpec(
            "runner_finished",
            "debug",
            "A runner finished.",
            ("worker", "runner", "processed", "updated", "skipped", "errors", "duration_ms"),
        ),
        EventSpec(
            "runner_skipped", "warning", "A runner was skipped.", ("worker", "runner", "reason")
        ),
        EventSpec(
            "cycle_started", "info", "A run of a cycle's slot started.", ("worker", "cycle", "slot")
        ),
        EventSpec(
            "cycle_finished",
            "info",
            "A run of a cycle's slot finished.",
            ("worker", "cycle", "slot", "outcome", "duration_ms", "error", "counters"),
            warning_outcomes=("failed", "aborted"),
        ),
        EventSpec(
            "cycle_skipped",
            "debug",
            "A slot was due but another replica holds the cycle or the slot.",
            ("worker", "cycle", "reason"),
        ),
    )
}


def event(name: str, **fields: Any) -> Event:
    """Create an event of the catalogue; unknown names and fields are programming errors."""
    return CATALOGUE[name](**fields)

"""What each event measures, once for all metric backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from holdfast.core.events import Event
from holdfast.core.model import Instant, QueueTotals
from holdfast.observe import names
from holdfast.observe.names import Metric

Fields = Mapping[str, Any]
Rule = Callable[[Fields, float], "Measurement | None"]
"""From an event's fields and the Unix time."""


class Measurement(NamedTuple):
    """A value for a metric: to be added, recorded or set, as the metric's kind asks."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


def measure(event: Event, now: float) -> Iterator[Measurement]:
    """Return what an event measures at this Unix time."""
    for rule in RULES.get(event.name, ()):
        if measurement := rule(event.fields, now):
            yield measurement


def measure_fleet(workers: int, is_reaping: bool) -> list[Measurement]:
    """Turn what the database says of the fleet into gauges."""
    return [
        Measurement(names.FLEET_WORKERS, workers),
        Measurement(names.FLEET_REAPING, int(is_reaping)),
    ]


def measure_totals(totals: QueueTotals, now: Instant) -> Iterator[Measurement]:
    """Return the gauges of the whole database, at an instant of its clock."""
    pending = totals.live - totals.blocked - totals.running
    yield Measurement(names.QUEUE_DEPTH, totals.blocked, ("blocked",))
    yield Measurement(names.QUEUE_DEPTH, max(0, pending), ("pending",))
    yield Measurement(names.QUEUE_DEPTH, totals.running, ("running",))
    yield Measurement(names.QUEUE_DEPTH, totals.completed, ("completed",))
    yield Measurement(names.QUEUE_DEPTH, totals.failed, ("failed",))
    yield Measurement(names.QUEUE_DEPTH, totals.cancelled, ("cancelled",))
    yield Measurement(names.QUEUE_DUE, totals.due)
    oldest = now if totals.oldest_due_at is None else totals.oldest_due_at
    yield Measurement(names.QUEUE_OLDEST_AGE, max(0, now - oldest) / 1_000_000)


def _attempt(outcome: str) -> Rule:
    def rule(fields: Fields, _: float) -> Measurement | None:
        # What was ended from outside was nobody's attempt.
        if not fields.get("worker"):
            return None
        return Measurement(names.JOB_ATTEMPTS, 1, (_text(fields, "type"), outcome))

    return rule


def _one(metric: Metric) -> Rule:
    measurement = Measurement(metric, 1)
    return lambda *_: measurement


def _count(metric: Metric, field: str) -> Rule:
    return lambda fields, _: Measurement(metric, fields.get(field) or 0)


def _seconds(metric: Metric, field: str, *labels: str) -> Rule:
    """Measure a field of milliseconds; an event that lacks it measures nothing."""

    def rule(fields: Fields, _: float) -> Measurement | None:
        milliseconds = fields.get(field)
        if milliseconds is None:
            return None
        return Measurement(
            metric, milliseconds / 1000, tuple(_text(fields, each) for each in labels)
        )

    return rule


def _dead_letter(fields: Fields, _: float) -> Measurement:
    return Measurement(names.JOB_DEAD_LETTERS, 1, (_text(fields, "type"),))


def _reaped_dead_letter(fields: Fields, now: float) -> Measurement | None:
    return _dead_letter(fields, now) if fields.get("state") == "failed" else None


def _cycle_run(fields: Fields, _: float) -> Measurement:
    return Measurement(names.CYCLE_RUNS, 1, (_text(fields, "cycle"), _text(fields, "outcome")))


def _cycle_success(fields: Fields, now: float) -> Measurement | None:
    if fields.get("outcome") != "completed":
        return None
    return Measurement(names.CYCLE_LAST_SUCCESS, now, (_text(fields, "cycle"),))


def _running(value: int) -> Rule:
    return lambda fields, _: Measurement(names.WORKER_RUNNING, value, (_text(fields, "worker"),))


def _text(fields: Fields, field: str) -> str:
    return str(fields.get(field, ""))


RULES: Mapping[str, tuple[Rule, ...]] = {
    "job_started": (_seconds(names.JOB_WAIT, "wait_ms", "type"),),
    "job_completed": (_attempt("completed"),),
    "job_continued": (_attempt("continued"),),
    "job_retried": (_attempt("retried"),),
    "job_snoozed": (_attempt("snoozed"),),
    "job_failed": (_attempt("failed"), _dead_letter),
    "job_cancelled": (_attempt("cancelled"),),
    "job_reaped": (
        _attempt("reaped"),
        _seconds(names.REAPER_STALE, "stale_ms"),
        _reaped_dead_letter,
    ),
    "lease_lost": (_one(names.LEASES_LOST),),
    "write_refused": (_one(names.WRITES_REFUSED),),
    "reaper_ran": (_one(names.REAPER_RUNS), _count(names.REAPER_RECOVERED, "recovered")),
    "tick_finished": (
        _seconds(names.TICK_DURATION, "duration_ms"),
        _count(names.TICK_PROCESSED, "processed"),
    ),
    "worker_started": (_running(1),),
    "worker_stopped": (_running(0),),
    "worker_vanished": (_one(names.WORKERS_VANISHED),),
    "cycle_finished": (
        _cycle_run,
        _seconds(names.CYCLE_DURATION, "duration_ms", "cycle"),
        _cycle_success,
    ),
}

MEASURED = frozenset(RULES)
UNMEASURED = frozenset(
    {
        "job_created",
        "job_released",
        "job_unblocked",
        "job_redriven",
        "slot_stuck",
        "loop_lagged",
        "type_unhandled",
        "database_unreachable",
        "database_back",
        "worker_summary",
        "worker_stopping",
        "child_died",
        "tick_failed",
        "runner_finished",
        "runner_skipped",
        "cycle_started",
        "cycle_skipped",
    }
)

"""All metrics, and what each event measures, once for all metric backends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from holdfast.core.cycle import RunOutcome
from holdfast.core.events import Event, Metric
from holdfast.core.instants import Instant
from holdfast.core.lifecycle import EXPIRED
from holdfast.core.statistics import QueueTotals, RetentionProgress
from holdfast.extensions import rows

JOB_ATTEMPTS = Metric(
    "holdfast.job.attempts", "counter", "Attempts that ended, by outcome.", ("type", "outcome")
)
JOB_DEAD_LETTERS = Metric(
    "holdfast.job.dead_letters", "counter", "Jobs that became dead letters.", ("type",)
)
JOB_WAIT = Metric(
    "holdfast.job.wait_duration", "histogram", "Time from due to the handler call.", ("type",), "s"
)
JOB_RUN = Metric(
    "holdfast.job.run_duration",
    "histogram",
    "How long an attempt that completed, continued, was retried or failed ran.",
    ("type",),
    "s",
)
STEP_RECORDS = Metric(
    "holdfast.step.records", "counter", "Steps that durable functions recorded.", ("type",)
)
STEP_FAILURES = Metric(
    "holdfast.step.failures", "counter", "Steps that failed and will not be tried again.", ("type",)
)
SIGNALS_SENT = Metric("holdfast.signal.sent", "counter", "Signals that this process sent.")
SIGNALS_TAKEN = Metric(
    "holdfast.signal.taken", "counter", "Signals that functions waited for and took.", ("type",)
)
FUNCTION_WAITS = Metric(
    "holdfast.function.waits",
    "gauge",
    "What parked functions wait for: signals (wait), times (sleep) and chains they called (run), "
    "among the 10,000 oldest.",
    ("kind",),
    of_database=True,
)
LEASES_LOST = Metric(
    "holdfast.lease.lost", "counter", "Leases lost while their handler was running."
)
WRITES_REFUSED = Metric(
    "holdfast.write.refused", "counter", "Writes rejected because the token was invalid."
)
DATABASE_REFUSED = Metric(
    "holdfast.database.refused",
    "counter",
    "Loops that began to fail because the database role lacks a privilege.",
)
REAPER_RECOVERED = Metric(
    "holdfast.reaper.recovered_jobs", "counter", "Jobs recovered from expired leases."
)
REAPER_STALE = Metric(
    "holdfast.reaper.stale_duration",
    "histogram",
    "How long a lease had been expired when its job was recovered.",
    unit="s",
)
REAPER_RUNS = Metric("holdfast.reaper.runs", "counter", "Runs of the reaper.")
DATABASE_UP = Metric(
    "holdfast.database.up",
    "gauge",
    "1 if the database answered when these metrics were read. While it is 0, figures of the database are left out.",
)
QUEUE_DEPTH = Metric(
    "holdfast.queue.depth", "gauge", "Jobs in the database.", ("state",), of_database=True
)
QUEUE_DUE = Metric(
    "holdfast.queue.due_jobs",
    "gauge",
    "Jobs that are due, counted up to 10,000: see holdfast_queue_due_bounded.",
    of_database=True,
)
QUEUE_DUE_BOUNDED = Metric(
    "holdfast.queue.due_bounded",
    "gauge",
    "1 while due or blocked jobs are more than are counted, so that the figures are lower bounds.",
    of_database=True,
)
QUEUE_UNREADABLE = Metric(
    "holdfast.queue.unreadable_jobs",
    "gauge",
    "Jobs waiting for code that can read their input or records, counted up to 10,000.",
    of_database=True,
)
QUEUE_OLDEST_AGE = Metric(
    "holdfast.queue.oldest_age",
    "gauge",
    "How long the oldest due job has been due.",
    unit="s",
    of_database=True,
)
TYPE_DUE = Metric(
    "holdfast.type.due_jobs",
    "gauge",
    "Jobs of a type that are due, counted up to 1,000.",
    ("type",),
    of_database=True,
)
TYPE_OLDEST_AGE = Metric(
    "holdfast.type.oldest_age",
    "gauge",
    "How long the oldest due job of a type has been due.",
    ("type",),
    "s",
    of_database=True,
)
LIMIT_FULL = Metric(
    "holdfast.limit.full_keys",
    "gauge",
    "Limits that are holding jobs back, for up to 1,000 keys per type.",
    ("type",),
    of_database=True,
)
LIMIT_WAITING = Metric(
    "holdfast.limit.waiting_jobs",
    "gauge",
    "Due jobs that a limit holds back.",
    ("type",),
    of_database=True,
)
LIMIT_OLDEST_AGE = Metric(
    "holdfast.limit.oldest_age",
    "gauge",
    "How long the oldest job that a limit holds back has been due.",
    ("type",),
    "s",
    of_database=True,
)
RETENTION_BACKLOG = Metric(
    "holdfast.retention.backlog_jobs",
    "gauge",
    "Ended jobs past their retention that are still stored, estimated from daily counts.",
    of_database=True,
)
RETENTION_RATE = Metric(
    "holdfast.retention.removal_rate",
    "gauge",
    "Jobs removed per second, over the last ten minutes.",
    of_database=True,
)
TICK_DURATION = Metric("holdfast.tick.duration", "histogram", "How long a tick took.", unit="s")
TICK_PROCESSED = Metric("holdfast.tick.processed_jobs", "counter", "Items processed by ticks.")
CYCLE_RUNS = Metric(
    "holdfast.cycle.runs", "counter", "Runs of cycles, by outcome.", ("cycle", "outcome")
)
CYCLE_DURATION = Metric(
    "holdfast.cycle.duration", "histogram", "How long a cycle's run took.", ("cycle",), "s"
)
CYCLE_ITEMS = Metric(
    "holdfast.cycle.items",
    "counter",
    "Items counted by cycle runs: processed, updated, skipped, errors, and custom counters.",
    ("cycle", "counter"),
)
CYCLE_LAST_SUCCESS = Metric(
    "holdfast.cycle.last_success_time",
    "gauge",
    "When a cycle last succeeded, as Unix time.",
    ("cycle",),
    "s",
)
CYCLE_LATENESS = Metric(
    "holdfast.cycle.lateness",
    "gauge",
    "How long a cycle's next run has been due without having begun; 0 while it is paused.",
    ("cycle",),
    "s",
    of_database=True,
)
WORKER_RUNNING = Metric(
    "holdfast.worker.running", "gauge", "1 for each worker in this process.", ("worker",)
)
WORKERS_VANISHED = Metric(
    "holdfast.worker.vanished",
    "counter",
    "Workers that stopped sending heartbeats without shutting down.",
)
FLEET_WORKERS = Metric(
    "holdfast.fleet.workers",
    "gauge",
    "Workers with a heartbeat in the last minute.",
    of_database=True,
)
FLEET_REAPING = Metric(
    "holdfast.fleet.reaping",
    "gauge",
    "1 while a reaper is running, as in /readyz.",
    of_database=True,
)

METRICS: tuple[Metric, ...] = (
    *(each for each in tuple(globals().values()) if isinstance(each, Metric)),
    *dict.fromkeys(each.metric for each in rows("metrics")),
)


Fields = Mapping[str, Any]
Rule = Callable[[Fields, float], "Measurement | None"]
"""From an event's fields and the Unix time."""


MAX_SERIES = 40
"""Counters of one cycle with a label of their own; a run has at most 4 and 32 of its own."""

OTHER = "other"


class Measurement(NamedTuple):
    """A value for a metric: added, recorded or set, depending on its kind."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


def measure(event: Event, now: float) -> Iterator[Measurement]:
    """Return what an event measures at this Unix time."""
    for rule in RULES.get(event.name, ()):
        if measurement := rule(event.fields, now):
            yield measurement
    if event.name == "cycle_finished":
        yield from _cycle_items(event.fields)


def measure_totals(totals: QueueTotals, now: Instant, unreadable: int = 0) -> Iterator[Measurement]:
    """Return the gauges of the whole database, at an instant of its clock."""
    pending = totals.live - totals.blocked - totals.running
    yield Measurement(QUEUE_DEPTH, max(0, pending), ("pending",))
    for state in ("blocked", "running", "completed", "failed", "cancelled"):
        yield Measurement(QUEUE_DEPTH, getattr(totals, state), (state,))
    yield Measurement(QUEUE_DUE, totals.due)
    yield Measurement(QUEUE_DUE_BOUNDED, int(totals.bounded))
    yield Measurement(QUEUE_UNREADABLE, unreadable)
    oldest = now if totals.oldest_due_at is None else totals.oldest_due_at
    yield Measurement(QUEUE_OLDEST_AGE, max(0, now - oldest) / 1_000_000)


class LimitGauges(NamedTuple):
    """What the limits of a type hold back; never by key, because each would be a series for good."""

    type: str
    full_keys: int
    waiting: int
    oldest_us: int


class TypeGauges(NamedTuple):
    """What is due of a type, and for how long the oldest of it."""

    type: str
    due: int
    oldest_us: int


class MetricsObserver(ABC):
    """An observer that records what events measure; a backend says how one measurement is applied."""

    also_wanted: ClassVar[frozenset[str]] = frozenset()
    """Events that are wanted although no metric here measures them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counters: dict[str, set[str]] = {}
        self._limited: set[str] = set()

    def wants(self, name: str) -> bool:
        """See `core.events.Observer`."""
        return name in MEASURED or name in self.also_wanted

    def observe(self, event: Event) -> None:
        """See `core.events.Observer`."""
        for measurement in measure(event, self._clock()):
            self._apply(self._bound_counters(measurement))

    def _bound_counters(self, measurement: Measurement) -> Measurement:
        """Put counters that a cycle names beyond the limit under one label: each name is a series for good."""
        if measurement.metric is not CYCLE_ITEMS:
            return measurement
        cycle, counter = measurement.labels
        known = self._counters.setdefault(cycle, set())
        if counter not in known and len(known) >= MAX_SERIES:
            return measurement._replace(labels=(cycle, OTHER))
        known.add(counter)
        return measurement

    def expect(self, types: Iterable[str], cycles: Iterable[str]) -> None:
        """Start the counters of job types and cycles at 0: what appears with its first event shows no increase."""
        for type in types:
            self._apply(Measurement(JOB_DEAD_LETTERS, 0, (type,)))
            for outcome in OUTCOMES:
                self._apply(Measurement(JOB_ATTEMPTS, 0, (type, outcome)))
        for cycle in cycles:
            for outcome in RUN_OUTCOMES:
                self._apply(Measurement(CYCLE_RUNS, 0, (cycle, outcome)))
            for counter in RUN_COUNTERS:
                self._apply(self._bound_counters(Measurement(CYCLE_ITEMS, 0, (cycle, counter))))

    def set_totals(self, totals: QueueTotals, now: Instant, unreadable: int = 0) -> None:
        """Set the gauges of the whole database; one process of a fleet does this."""
        for measurement in measure_totals(totals, now, unreadable):
            self._apply(measurement)

    def set_fleet(self, workers: int, is_reaping: bool) -> None:
        """Set the gauges of the whole fleet; as with totals, one process does this."""
        self._apply(Measurement(FLEET_WORKERS, workers))
        self._apply(Measurement(FLEET_REAPING, int(is_reaping)))

    def set_limits(self, limits: Iterable[LimitGauges]) -> None:
        """Set the gauges of limits, to 0 where there are none any more; as with totals, one process does this."""
        told = list(limits)
        gone = self._limited - {each.type for each in told}
        self._limited |= {each.type for each in told}
        for each in (*told, *(LimitGauges(type, 0, 0, 0) for type in sorted(gone))):
            self._apply(Measurement(LIMIT_FULL, each.full_keys, (each.type,)))
            self._apply(Measurement(LIMIT_WAITING, each.waiting, (each.type,)))
            self._apply(Measurement(LIMIT_OLDEST_AGE, each.oldest_us / 1_000_000, (each.type,)))

    def set_types(self, types: Iterable[TypeGauges]) -> None:
        """Set the gauges of job types; as with totals, one process does this."""
        for each in types:
            self._apply(Measurement(TYPE_DUE, each.due, (each.type,)))
            self._apply(Measurement(TYPE_OLDEST_AGE, each.oldest_us / 1_000_000, (each.type,)))

    def set_waits(self, waits: Mapping[str, int]) -> None:
        """Set how much parked functions wait for; as with totals, one process does this."""
        for kind in ("wait", "sleep", "run"):
            self._apply(Measurement(FUNCTION_WAITS, waits.get(kind, 0), (kind,)))

    def set_lateness(self, late_us: Mapping[str, int]) -> None:
        """Set how late each cycle is; as with totals, one process does this."""
        for cycle, us in late_us.items():
            self._apply(Measurement(CYCLE_LATENESS, us / 1_000_000, (cycle,)))

    def set_retention(self, progress: RetentionProgress) -> None:
        """Set the gauges of retention; as with totals, one process does this."""
        self._apply(Measurement(RETENTION_BACKLOG, progress.backlog))
        self._apply(Measurement(RETENTION_RATE, progress.per_second))

    def set_up(self, is_up: bool) -> None:
        """Say whether the database answers."""
        self._apply(Measurement(DATABASE_UP, int(is_up)))

    @abstractmethod
    def _apply(self, measurement: Measurement) -> None: ...


def _attempt(outcome: str) -> Rule:
    def rule(fields: Fields, _: float) -> Measurement | None:
        # A job that was ended by a command has no attempt.
        if not fields.get("worker"):
            return None
        return Measurement(JOB_ATTEMPTS, 1, (_text(fields, "type"), outcome))

    return rule


def _count_cancelled(fields: Fields, value: float) -> Measurement | None:
    """A job expires without an attempt, too, where no worker takes it."""
    if fields.get("reason") == EXPIRED:
        return Measurement(JOB_ATTEMPTS, 1, (_text(fields, "type"), "expired"))
    return _attempt("cancelled")(fields, value)


def _measure(metric: Metric, value: str | int = 1) -> Rule:
    """Measure a number or a field, of milliseconds where the metric is in seconds; labels are fields of their names.

    An event that lacks the field measures nothing.
    """

    def rule(fields: Fields, _: float) -> Measurement | None:
        found = fields.get(value) if isinstance(value, str) else value
        if found is None:
            return None
        labels = tuple(_text(fields, each) for each in metric.labels)
        return Measurement(metric, found / 1000 if metric.unit == "s" else found, labels)

    return rule


_dead_letter = _measure(JOB_DEAD_LETTERS)


def _reaped_dead_letter(fields: Fields, now: float) -> Measurement | None:
    return _dead_letter(fields, now) if fields.get("state") == "failed" else None


def _cycle_success(fields: Fields, now: float) -> Measurement | None:
    if fields.get("outcome") != "completed":
        return None
    return Measurement(CYCLE_LAST_SUCCESS, now, (_text(fields, "cycle"),))


def _cycle_items(fields: Fields) -> Iterator[Measurement]:
    for counter, number in (fields.get("counters") or {}).items():
        # A handler may return numbers of any kind; only what grows is a counter.
        if number > 0:
            yield Measurement(CYCLE_ITEMS, number, (_text(fields, "cycle"), counter))


def _text(fields: Fields, field: str) -> str:
    return str(fields.get(field, ""))


_ENDED = ("completed", "continued", "failed", "cancelled", "expired")
OUTCOMES = (*_ENDED, "retried", "snoozed", "reaped")
RUN_OUTCOMES: tuple[RunOutcome, ...] = ("completed", "failed", "aborted", "crashed")
RUN_COUNTERS = ("processed", "updated", "skipped", "errors")

_run = _measure(JOB_RUN, "run_ms")

RULES: dict[str, tuple[Rule, ...]] = {
    "job_started": (_measure(JOB_WAIT, "wait_ms"),),
    "job_completed": (_attempt("completed"), _run),
    "job_continued": (_attempt("continued"), _run),
    "job_retried": (_attempt("retried"), _run),
    "job_snoozed": (_attempt("snoozed"),),
    "job_failed": (_attempt("failed"), _run, _dead_letter),
    "job_cancelled": (_count_cancelled,),
    "steps_recorded": (_measure(STEP_RECORDS, "recorded"), _measure(SIGNALS_TAKEN, "signals")),
    "step_failed": (_measure(STEP_FAILURES),),
    "signal_sent": (_measure(SIGNALS_SENT),),
    "job_reaped": (_attempt("reaped"), _measure(REAPER_STALE, "stale_ms"), _reaped_dead_letter),
    "lease_lost": (_measure(LEASES_LOST),),
    "write_refused": (_measure(WRITES_REFUSED),),
    "reaper_ran": (_measure(REAPER_RUNS), _measure(REAPER_RECOVERED, "recovered")),
    "tick_finished": (
        _measure(TICK_DURATION, "duration_ms"),
        _measure(TICK_PROCESSED, "processed"),
    ),
    "database_refused": (_measure(DATABASE_REFUSED),),
    "worker_started": (_measure(WORKER_RUNNING),),
    "worker_stopped": (_measure(WORKER_RUNNING, 0),),
    "worker_vanished": (_measure(WORKERS_VANISHED),),
    "cycle_finished": (
        _measure(CYCLE_RUNS),
        _measure(CYCLE_DURATION, "duration_ms"),
        _cycle_success,
    ),
}
for _each in rows("metrics"):
    RULES[_each.event] = (*RULES.get(_each.event, ()), _measure(_each.metric, _each.value))

MEASURED = frozenset(RULES)

"""The names of all metrics, and what became of the names that the seeds gave theirs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MetricKind = Literal["counter", "histogram", "gauge"]


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric under OpenTelemetry's name. Labels are few: no id but that of a process's own worker."""

    name: str
    kind: MetricKind
    text: str
    labels: tuple[str, ...] = ()
    unit: str = "1"

    @property
    def prometheus(self) -> str:
        """The same under Prometheus's rules: underscores, the unit, and `_total` for counters."""
        unit = "_seconds" if self.unit == "s" else ""
        total = "_total" if self.kind == "counter" else ""
        return f"{self.name.replace('.', '_')}{unit}{total}"


JOB_ATTEMPTS = Metric(
    "holdfast.job.attempts", "counter", "Attempts that ended, by outcome.", ("type", "outcome")
)
JOB_DEAD_LETTERS = Metric(
    "holdfast.job.dead_letters", "counter", "Jobs that became dead letters.", ("type",)
)
JOB_WAIT = Metric(
    "holdfast.job.wait_duration", "histogram", "From due to the call.", ("type",), "s"
)
LEASES_LOST = Metric(
    "holdfast.lease.lost", "counter", "Leases that ended before their handler did."
)
WRITES_REFUSED = Metric(
    "holdfast.write.refused", "counter", "Writes refused for want of a valid token."
)
REAPER_RECOVERED = Metric(
    "holdfast.reaper.recovered_jobs", "counter", "Jobs taken back from expired leases."
)
REAPER_STALE = Metric(
    "holdfast.reaper.stale_duration",
    "histogram",
    "How long a lease had been expired when its job was taken back.",
    unit="s",
)
REAPER_RUNS = Metric("holdfast.reaper.runs", "counter", "Runs of the reaper.")
QUEUE_DEPTH = Metric("holdfast.queue.depth", "gauge", "Jobs in the database.", ("state",))
QUEUE_DUE = Metric(
    "holdfast.queue.due_jobs", "gauge", "Jobs that could start now, counted up to 10,000."
)
QUEUE_OLDEST_AGE = Metric(
    "holdfast.queue.oldest_age", "gauge", "How long the oldest due job has been due.", unit="s"
)
TICK_DURATION = Metric("holdfast.tick.duration", "histogram", "How long a tick took.", unit="s")
TICK_PROCESSED = Metric("holdfast.tick.processed_jobs", "counter", "Items processed by ticks.")
CYCLE_RUNS = Metric(
    "holdfast.cycle.runs", "counter", "Runs of cycles, by outcome.", ("cycle", "outcome")
)
CYCLE_DURATION = Metric(
    "holdfast.cycle.duration", "histogram", "How long a cycle's run took.", ("cycle",), "s"
)
CYCLE_LAST_SUCCESS = Metric(
    "holdfast.cycle.last_success_time",
    "gauge",
    "When a cycle last succeeded, as Unix time.",
    ("cycle",),
    "s",
)
WORKER_RUNNING = Metric(
    "holdfast.worker.running", "gauge", "1 for a worker that runs in this process.", ("worker",)
)
WORKERS_VANISHED = Metric(
    "holdfast.worker.vanished", "counter", "Workers that fell silent without a goodbye."
)
FLEET_WORKERS = Metric(
    "holdfast.fleet.workers", "gauge", "Workers that gave a sign of life within the last minute."
)
FLEET_REAPING = Metric(
    "holdfast.fleet.reaping",
    "gauge",
    "1 while something takes back what dead workers held, as /readyz says.",
)

METRICS: tuple[Metric, ...] = (
    JOB_ATTEMPTS,
    JOB_DEAD_LETTERS,
    JOB_WAIT,
    LEASES_LOST,
    WRITES_REFUSED,
    REAPER_RECOVERED,
    REAPER_STALE,
    REAPER_RUNS,
    QUEUE_DEPTH,
    QUEUE_DUE,
    QUEUE_OLDEST_AGE,
    TICK_DURATION,
    TICK_PROCESSED,
    CYCLE_RUNS,
    CYCLE_DURATION,
    CYCLE_LAST_SUCCESS,
    WORKER_RUNNING,
    WORKERS_VANISHED,
    FLEET_WORKERS,
    FLEET_REAPING,
)


@dataclass(frozen=True, slots=True)
class SeedName:
    """A name of the seeds, the metric that tells the same, and Prometheus's expression for it."""

    seed: str
    metric: Metric
    query: str


SEED_NAMES: tuple[SeedName, ...] = (
    SeedName("reaper.recovered.count", REAPER_RECOVERED, REAPER_RECOVERED.prometheus),
    SeedName("reaper.stale.duration", REAPER_STALE, REAPER_STALE.prometheus),
    SeedName("reaper.runs.total", REAPER_RUNS, REAPER_RUNS.prometheus),
    SeedName("ticks_total", TICK_DURATION, f"{TICK_DURATION.prometheus}_count"),
    SeedName(
        "processed_total",
        JOB_ATTEMPTS,
        f'{JOB_ATTEMPTS.prometheus}{{outcome=~"completed|continued"}}',
    ),
    SeedName("retried_total", JOB_ATTEMPTS, f'{JOB_ATTEMPTS.prometheus}{{outcome="retried"}}'),
    SeedName("dead_letter_total", JOB_DEAD_LETTERS, JOB_DEAD_LETTERS.prometheus),
    SeedName("recovered_stuck_total", REAPER_RECOVERED, REAPER_RECOVERED.prometheus),
)

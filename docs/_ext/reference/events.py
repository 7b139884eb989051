"""The reference of events and metrics, from the catalogue and the names that observers use."""

from __future__ import annotations

from dataclasses import dataclass

from docs._ext.reference.markdown import code, table
from docs._ext.reference.undocumented import require

from holdfast.core.events import EventSpec, Metric
from holdfast.observe.logging import CATALOGUE
from holdfast.observe.metrics import (
    JOB_ATTEMPTS,
    JOB_DEAD_LETTERS,
    METRICS,
    REAPER_RECOVERED,
    REAPER_RUNS,
    REAPER_STALE,
    TICK_DURATION,
)


@dataclass(frozen=True, slots=True)
class SeedName:
    """A name of an earlier system, the metric that replaces it, and the Prometheus expression for it."""

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


def page() -> str:
    """Return every event. Raises: Undocumented."""
    require("events without text", (each.name for each in CATALOGUE.values() if not each.text))
    return table(
        ("event", "level", "when", "fields"),
        (
            (code(each.name), _level(each), each.text, ", ".join(map(code, each.fields)))
            for each in CATALOGUE.values()
        ),
    )


def _level(spec: EventSpec) -> str:
    if not spec.warning_outcomes:
        return spec.level
    return f"{spec.level}; warning if {' or '.join(map(code, spec.warning_outcomes))}"


def metrics() -> str:
    """Return every metric under both of its names. Raises: Undocumented."""
    require("metrics without text", (each.name for each in METRICS if not each.text))
    return table(
        ("Prometheus", "OpenTelemetry", "kind", "labels", "meaning"),
        (
            (
                code(each.prometheus),
                code(each.name),
                each.kind,
                ", ".join(map(code, each.labels)),
                each.text,
            )
            for each in METRICS
        ),
    )


def seed_names() -> str:
    """Return the names used elsewhere and their equivalents."""
    return table(
        ("other name", "metric", "in Prometheus"),
        ((code(each.seed), code(each.metric.name), code(each.query)) for each in SEED_NAMES),
    )

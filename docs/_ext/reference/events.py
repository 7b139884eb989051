"""The reference of events and metrics, from the catalogue and the names that observers use."""

from __future__ import annotations

from docs._ext.reference.markdown import code, table
from docs._ext.reference.undocumented import require

from holdfast.core.events import CATALOGUE
from holdfast.observe.metrics import METRICS, SEED_NAMES


def page() -> str:
    """Return every event. Raises: Undocumented."""
    require("events without text", (each.name for each in CATALOGUE.values() if not each.text))
    return table(
        ("event", "level", "when", "fields"),
        (
            (code(each.name), each.level, each.text, ", ".join(map(code, each.fields)))
            for each in CATALOGUE.values()
        ),
    )


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

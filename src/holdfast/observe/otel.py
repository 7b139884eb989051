"""Events as OpenTelemetry metrics: the standard ones of messaging, and our own. Spans are in `spans`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.errors import MissingExtra
from holdfast.core.events import Event
from holdfast.observe.metrics import (
    MEASURED,
    METRICS,
    UNMEASURED,
    Measurement,
    Metric,
    MetricsObserver,
)
from holdfast.version import VERSION

try:
    from opentelemetry.metrics import Meter, MeterProvider, get_meter
except ImportError as error:
    raise MissingExtra(
        "telemetry needs opentelemetry-api", help='pip install "holdfast-jobs[otel]"'
    ) from error

SYSTEM = "holdfast"
SCOPE = "holdfast"

HANDLED = MEASURED | {"job_created"}
IGNORED = UNMEASURED - {"job_created"}

# The conventions require a reason with few values, so not the error's text.
FAILED = {"job_retried": "retried", "job_failed": "failed"}
ENDINGS = frozenset({"job_completed", "job_continued", *FAILED})

_Record = Callable[[float, Mapping[str, str]], None]


class OtelObserver(MetricsObserver):
    """Records through the given meter provider, by default the global one."""

    handled = HANDLED

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(clock)
        meter = get_meter(SCOPE, VERSION, meter_provider)
        self._records = {metric: _recorder(meter, metric) for metric in METRICS}
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Jobs created."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Jobs handed to a handler."
        )
        self._duration = meter.create_histogram(
            "messaging.process.duration", "s", "How long a handler ran."
        )

    def observe(self, event: Event) -> None:
        """See `core.events.Observer`."""
        super().observe(event)
        self._apply_conventions(event)

    def _apply(self, measurement: Measurement) -> None:
        metric, value, labels = measurement
        self._records[metric](value, dict(zip(metric.labels, labels, strict=True)))

    def _apply_conventions(self, event: Event) -> None:
        type = str(event.fields.get("type", ""))
        if event.name == "job_created":
            self._sent.add(1, messaging_attributes("send", type))
        elif event.name == "job_started":
            self._consumed.add(1, messaging_attributes("process", type))
        elif event.name in ENDINGS and event.fields.get("run_ms") is not None:
            attributes = messaging_attributes("process", type)
            if event.name in FAILED:
                attributes["error.type"] = FAILED[event.name]
            self._duration.record(event.fields["run_ms"] / 1000, attributes)


def messaging_attributes(operation: str, type: str) -> dict[str, Any]:
    """Return the attributes that the messaging conventions require of metrics and spans."""
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.destination.name": type,
    }


def _recorder(meter: Meter, metric: Metric) -> _Record:
    match metric.kind:
        case "counter":
            return meter.create_counter(metric.name, metric.unit, metric.text).add
        case "histogram":
            return meter.create_histogram(metric.name, metric.unit, metric.text).record
        case "gauge":
            return meter.create_gauge(metric.name, metric.unit, metric.text).set

"""Events as Prometheus metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

from holdfast.core.errors import MissingExtra
from holdfast.core.events import Metric
from holdfast.observe.metrics import METRICS, WORKER_RUNNING, Measurement, MetricsObserver

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
except ImportError as error:
    raise MissingExtra(
        "metrics for Prometheus need prometheus-client",
        help='pip install "holdfast-jobs[prometheus]"',
    ) from error

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

Instrument: TypeAlias = Counter | Histogram | Gauge


class PrometheusObserver(MetricsObserver):
    """Counts in the registry it is given, by default the process's own; one per registry."""

    def __init__(
        self, registry: CollectorRegistry | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(clock)
        self._registry = REGISTRY if registry is None else registry
        # Gauges of the whole database appear only in the process that sets them.
        self._instruments: dict[Metric, Instrument] = {
            metric: self._instrument(metric)
            for metric in METRICS
            if metric.kind != "gauge" or (metric.labels and not metric.of_database)
        }
        self._children: dict[tuple[Metric, tuple[str, ...]], Instrument] = {}

    def forget_database(self) -> None:
        """Remove the gauges of the whole database, until they are set again."""
        for metric in [each for each in self._instruments if each.of_database]:
            self._registry.unregister(self._instruments.pop(metric))
        self._children = {
            key: child for key, child in self._children.items() if not key[0].of_database
        }

    def _apply(self, measurement: Measurement) -> None:
        metric, value, labels = measurement
        child = self._children.get((metric, labels)) or self._child(metric, labels)
        if isinstance(child, Counter):
            child.inc(value)
        elif isinstance(child, Histogram):
            child.observe(value)
        else:
            child.set(value)
            if metric is WORKER_RUNNING and not value:
                # Its id never comes back: a process that ticks for others has a new worker each time.
                del self._children[metric, labels]
                self._instruments[metric].remove(*labels)

    def _child(self, metric: Metric, labels: tuple[str, ...]) -> Instrument:
        parent = self._instruments.get(metric)
        if parent is None:
            parent = self._instruments[metric] = self._instrument(metric)
        child = parent.labels(*labels) if labels else parent
        self._children[metric, labels] = child
        return child

    def _instrument(self, metric: Metric) -> Instrument:
        name, text, labels = metric.prometheus, metric.text, metric.labels
        match metric.kind:
            case "counter":
                return Counter(name, text, labels, registry=self._registry)
            case "gauge":
                return Gauge(name, text, labels, registry=self._registry)
            case "histogram":
                return Histogram(name, text, labels, buckets=BUCKETS_S, registry=self._registry)

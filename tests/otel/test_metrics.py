"""Events as OpenTelemetry metrics, read back through the SDK."""

import importlib
import sys
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader

from holdfast.core.errors import MissingExtra
from holdfast.core.statistics import RetentionProgress
from holdfast.observe.logging import CATALOGUE
from holdfast.observe.metrics import MEASURED, METRICS, LimitGauges, TypeGauges
from holdfast_otel import OtelObserver
from tests.observe.samples import CANARY, UNMEASURED, all_samples, sample
from tests.observe.test_prometheus import TOTALS

HANDLED = MEASURED | {"job_created"}

Points = dict[str, list[tuple[dict[str, Any], float]]]


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def observer(reader: InMemoryMetricReader) -> OtelObserver:
    provider = MeterProvider([reader], shutdown_on_exit=False)
    return OtelObserver(provider, clock=lambda: 1_700_000_000.0)


def points(reader: InMemoryMetricReader) -> Points:
    """Return what was recorded: by name, attributes and value (a histogram's sum)."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
    return {
        metric.name: [(dict(p.attributes or {}), _value(p)) for p in metric.data.data_points]
        for metric in metrics
    }


def _value(point: Any) -> float:
    return float(point.sum if isinstance(point, HistogramDataPoint) else point.value)


def messaging(operation: str, **more: str) -> dict[str, str]:
    return {
        "messaging.system": "holdfast",
        "messaging.operation.name": operation,
        "messaging.destination.name": "mail",
    } | more


def test_every_metric_of_ours_is_told(observer: OtelObserver, reader: InMemoryMetricReader) -> None:
    for each in all_samples():
        observer.observe(each)
    observer.set_totals(TOTALS, now=4_500_000)
    observer.set_fleet(workers=2, is_reaping=True)
    observer.set_limits([LimitGauges("mail", 1, 2, 3_500_000)])
    observer.set_types([TypeGauges("mail", 2, 3_500_000)])
    observer.set_waits({"sleep": 1})
    observer.set_lateness({"cleanup": 60_000_000})
    observer.set_retention(RetentionProgress(10, 0.5))
    observer.set_up(True)
    found = points(reader)
    assert {metric.name for metric in METRICS} <= found.keys()
    assert found["holdfast.queue.oldest_age"] == [({}, 3.5)]
    assert CANARY not in repr(found)


def test_created_jobs_are_messages_sent(
    observer: OtelObserver, reader: InMemoryMetricReader
) -> None:
    observer.observe(sample("job_created"))
    assert points(reader)["messaging.client.sent.messages"] == [(messaging("send"), 1)]


def test_started_jobs_are_messages_consumed(
    observer: OtelObserver, reader: InMemoryMetricReader
) -> None:
    observer.observe(sample("job_started"))
    assert points(reader)["messaging.client.consumed.messages"] == [(messaging("process"), 1)]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("job_completed", {}),
        ("job_continued", {}),
        ("job_retried", {"error.type": "retried"}),
        ("job_failed", {"error.type": "failed"}),
    ],
)
def test_an_attempt_s_duration_is_the_convention_s_with_a_bounded_error(
    name: str, more: dict[str, str], observer: OtelObserver, reader: InMemoryMetricReader
) -> None:
    observer.observe(sample(name, run_ms=250))
    found = points(reader)["messaging.process.duration"]
    assert found == [(messaging("process", **more), 0.25)]


@pytest.mark.parametrize("name", sorted(HANDLED))
def test_a_handled_event_records_something(
    name: str, observer: OtelObserver, reader: InMemoryMetricReader
) -> None:
    observer.observe(sample(name))
    assert points(reader)


@pytest.mark.parametrize("name", sorted(UNMEASURED - HANDLED))
def test_an_ignored_event_records_nothing(
    name: str, observer: OtelObserver, reader: InMemoryMetricReader
) -> None:
    observer.observe(sample(name))
    assert points(reader) == {}


def test_an_event_with_few_fields_disturbs_nothing(observer: OtelObserver) -> None:
    for name in HANDLED:
        observer.observe(CATALOGUE[name]())


def test_without_the_sdk_observing_does_nothing() -> None:
    observer = OtelObserver()
    for each in all_samples():
        observer.observe(each)


@pytest.mark.parametrize("package", ["opentelemetry.metrics", "opentelemetry.trace"])
def test_a_missing_package_is_named_with_its_extra(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module("holdfast_otel.telemetry")
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "holdfast_otel.telemetry")
    with pytest.raises(MissingExtra, match=r'pip install "holdfast-jobs\[otel\]"'):
        importlib.import_module("holdfast_otel.telemetry")

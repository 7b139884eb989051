"""Spans of sending, processing and ticking, read back through the SDK."""

import asyncio
from collections.abc import Callable

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from holdfast.client.client import current_traceparent
from holdfast.core.errors import Busy
from holdfast_otel.telemetry import OtelSendSpan, attempt_span, tick_span
from tests.otel.test_metrics import messaging, points

SECRET = "password=hunter2"

Finished = Callable[[], dict[str, ReadableSpan]]


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.fixture
def finished(exporter: InMemorySpanExporter) -> Finished:
    return lambda: {span.name: span for span in exporter.get_finished_spans()}


def test_there_is_no_traceparent_outside_of_a_span() -> None:
    assert current_traceparent() is None


def test_the_traceparent_names_the_current_span(provider: TracerProvider) -> None:
    with provider.get_tracer("shop").start_as_current_span("request") as span:
        context = span.get_span_context()
        version, trace, parent, _ = (current_traceparent() or "").split("-")
    assert (version, trace, parent) == ("00", f"{context.trace_id:032x}", f"{context.span_id:016x}")


async def test_an_attempt_is_linked_to_the_creation_of_its_job(
    provider: TracerProvider, finished: Finished
) -> None:
    with provider.get_tracer("shop").start_as_current_span("request"):
        send = OtelSendSpan("mail", tracer_provider=provider)
    send.end("job-1")
    async with attempt_span("mail", "job-1", send.traceparent, tracer_provider=provider):
        pass
    request, sent, processed = (finished()[n] for n in ("request", "send mail", "process mail"))
    assert sent.kind is SpanKind.PRODUCER
    assert sent.parent == request.context
    assert processed.kind is SpanKind.CONSUMER
    assert processed.parent is None
    assert [link.context.span_id for link in processed.links] == [sent.context.span_id]
    assert dict(processed.attributes or {}) == messaging(
        "process", **{"messaging.operation.type": "process", "messaging.message.id": "job-1"}
    )
    assert (sent.attributes or {})["messaging.message.id"] == "job-1"


async def test_spans_of_the_handler_lie_within_the_attempt_also_in_threads(
    provider: TracerProvider, finished: Finished
) -> None:
    def query() -> None:
        with provider.get_tracer("shop").start_as_current_span("query"):
            pass

    async with attempt_span("mail", "job-1", None, tracer_provider=provider):
        await asyncio.to_thread(query)
    parent = finished()["query"].parent
    assert parent is not None
    assert parent.span_id == finished()["process mail"].context.span_id
    assert not get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("traceparent", [None, "", "nonsense", "00-" + "0" * 32 + "-x-01"])
async def test_a_job_without_a_valid_trace_has_no_link(
    traceparent: str | None, provider: TracerProvider, finished: Finished
) -> None:
    async with attempt_span("mail", "job-1", traceparent, tracer_provider=provider):
        pass
    assert list(finished()["process mail"].links) == []


@pytest.mark.parametrize("error", [ValueError(SECRET), asyncio.CancelledError(SECRET)])
async def test_a_failed_attempt_shows_the_error_s_class_and_not_its_text(
    error: BaseException, provider: TracerProvider, finished: Finished
) -> None:
    with pytest.raises(type(error)):
        async with attempt_span("mail", "job-1", None, tracer_provider=provider):
            raise error
    span = finished()["process mail"]
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == type(error).__name__
    assert SECRET not in span.to_json()


async def test_a_busy_handler_has_not_failed(provider: TracerProvider, finished: Finished) -> None:
    with pytest.raises(Busy):
        async with attempt_span("mail", "job-1", None, tracer_provider=provider):
            raise Busy("30s")
    assert finished()["process mail"].status.status_code is StatusCode.UNSET


def test_a_send_span_is_exported_only_after_the_commit(
    provider: TracerProvider, finished: Finished
) -> None:
    rolled_back = OtelSendSpan("mail", tracer_provider=provider)
    assert rolled_back.traceparent is not None
    del rolled_back
    assert finished() == {}


def test_a_send_s_duration_is_the_convention_s() -> None:
    reader = InMemoryMetricReader()
    times = iter((1.0, 1.25))
    span = OtelSendSpan(
        "mail",
        meter_provider=MeterProvider([reader], shutdown_on_exit=False),
        clock=lambda: next(times),
    )
    span.end()
    found = points(reader)["messaging.client.operation.duration"]
    assert found == [(messaging("send"), 0.25)]


def test_a_run_of_a_cycle_is_a_span(provider: TracerProvider, finished: Finished) -> None:
    tracer = provider.get_tracer("shop")
    slot = "2026-11-15T03:17:00Z"
    with tick_span("cleanup", slot, tracer_provider=provider):
        tracer.start_span("delete").end()
    span = finished()["tick cleanup"]
    assert dict(span.attributes or {}) == {"holdfast.cycle": "cleanup", "holdfast.slot": slot}
    assert finished()["delete"].parent == span.context


def test_a_failed_run_of_a_cycle_is_shown(provider: TracerProvider, finished: Finished) -> None:
    with pytest.raises(ValueError, match="hunter2"), tick_span("c", tracer_provider=provider):
        raise ValueError(SECRET)
    assert finished()["tick c"].status.status_code is StatusCode.ERROR


async def test_without_the_sdk_spans_do_nothing_and_pass_a_trace_on(
    provider: TracerProvider,
) -> None:
    assert OtelSendSpan("mail").traceparent is None
    with provider.get_tracer("shop").start_as_current_span("request"):
        assert OtelSendSpan("mail").traceparent == current_traceparent()
    async with attempt_span("mail", "job-1", None) as span:
        assert not span.is_recording()

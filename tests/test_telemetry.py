"""OpenTelemetry through the application: an attempt's span is linked to the span its job was started in."""

from __future__ import annotations

from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import Holdfast, Job
from holdfast.testing.kit import Kit


def test_an_attempt_is_linked_to_whoever_started_its_job(sqlite_url: str) -> None:
    exported = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    trace.set_tracer_provider(provider)
    app = Holdfast()
    app.use_opentelemetry()

    @app.job("report")
    async def report(job: Job[Any]) -> None: ...

    kit = Kit(app, sqlite_url)
    with trace.get_tracer("test").start_as_current_span("request"), app.transaction() as tx:
        app.start(tx, report)
    kit.run_until_idle()
    app.close()
    spans = {span.name: span for span in exported.get_finished_spans()}
    request, attempt = spans["request"], spans["process report"]
    assert request.context is not None
    assert [link.context.span_id for link in attempt.links] == [request.context.span_id]

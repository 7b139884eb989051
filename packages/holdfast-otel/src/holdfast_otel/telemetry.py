"""OpenTelemetry: events as metrics, those of messaging and our own; spans of sends, attempts, steps and ticks."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from holdfast.client.client import current_traceparent
from holdfast.core.errors import Busy, MissingExtra
from holdfast.core.events import Event, Metric
from holdfast.core.outcome import Snooze
from holdfast.observe.metrics import METRICS, Measurement, MetricsObserver
from holdfast.steps.current import StepInfo, step_wrapper
from holdfast.version import VERSION

try:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram, Meter, MeterProvider, get_meter
    from opentelemetry.trace import (
        Link,
        Span,
        SpanKind,
        StatusCode,
        Tracer,
        TracerProvider,
        get_current_span,
        get_tracer,
        set_span_in_context,
        use_span,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise MissingExtra(
        "telemetry needs opentelemetry-api", help='pip install "holdfast-jobs[otel]"'
    ) from error

if TYPE_CHECKING:
    from holdfast.app import Holdfast

SYSTEM = "holdfast"
SCOPE = "holdfast"

_W3C = TraceContextTextMapPropagator()
_KEY = re.compile(r"[\[#]")
"""What begins a step's key, or the number of its use."""

# The conventions require a reason with few values, so not the error's text.
FAILED = {"job_retried": "retried", "job_failed": "failed"}
ENDINGS = frozenset({"job_completed", "job_continued", *FAILED})

_Record = Callable[[float, Mapping[str, str]], None]


def use_opentelemetry(
    app: Holdfast,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Trace starts, attempts, steps and runs of cycles, and record metrics; by default with global providers."""

    async def trace_attempt(job: Any, next: Callable[[], Awaitable[Any]]) -> Any:
        first = job[0] if isinstance(job, list) else job
        async with attempt_span(
            first.type, str(first.id), first.trace, tracer_provider=tracer_provider
        ):
            token = step_wrapper.set(partial(step_span, tracer_provider=tracer_provider))
            try:
                return await next()
            finally:
                step_wrapper.reset(token)

    app.use_spans(
        partial(OtelSendSpans, tracer_provider, meter_provider),
        partial(tick_span, tracer_provider=tracer_provider),
    )
    app.middleware(trace_attempt)
    app.observe(OtelObserver(meter_provider))


class OtelObserver(MetricsObserver):
    """Records through the given meter provider, by default the global one."""

    also_wanted = frozenset({"job_created"})

    def __init__(
        self, meter_provider: MeterProvider | None = None, clock: Callable[[], float] = time.time
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


class OtelSendSpan:
    """A span for the creation of a job: started in its transaction, and exported only if that commits.

    Store `traceparent` with the job and call `end` after the commit; after a rollback, do nothing.
    """

    def __init__(
        self,
        type: str,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._started = clock()
        self._duration = _operation_duration(meter_provider)
        self._attributes = messaging_attributes("send", type)
        self._span = _tracer(tracer_provider).start_span(
            f"send {type}",
            kind=SpanKind.PRODUCER,
            attributes=self._attributes | {"messaging.operation.type": "send"},
        )
        own = current_traceparent(set_span_in_context(self._span))
        self.traceparent = own or current_traceparent()

    def end(self, job_id: str | None = None) -> None:
        """End the span after the commit."""
        if job_id is not None:
            self._span.set_attribute("messaging.message.id", job_id)
        self._duration.record(self._clock() - self._started, self._attributes)
        self._span.end()


class OtelSendSpans:
    """The spans of one command; see `client.client.SendSpans`."""

    def __init__(
        self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None
    ) -> None:
        self._begin = partial(
            OtelSendSpan, tracer_provider=tracer_provider, meter_provider=meter_provider
        )
        self._spans: dict[str, OtelSendSpan] = {}

    def trace(self, type: str) -> str | None:
        """Begin the span of a type; return the context to store with its jobs."""
        if type not in self._spans:
            self._spans[type] = self._begin(type)
        return self._spans[type].traceparent

    def end(self, job_id: str | None) -> None:
        """End the spans after the commit; `job_id` is the job if there was only one."""
        for span in self._spans.values():
            span.end(job_id)


@asynccontextmanager
async def attempt_span(
    type: str,
    job_id: str,
    traceparent: str | None,
    *,
    tracer_provider: TracerProvider | None = None,
) -> AsyncIterator[Span]:
    """Put a span around an attempt, linked to the job's creation; spans of the handler lie within it."""
    attributes = messaging_attributes("process", type) | {
        "messaging.operation.type": "process",
        "messaging.message.id": job_id,
    }
    span = _tracer(tracer_provider).start_span(
        f"process {type}",
        # Not a child: a job may wait for days, and its creator's trace is long complete by then.
        context=Context(),
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        links=_links(traceparent),
    )
    with _current(span):
        yield span


@contextmanager
def step_span(step: StepInfo, *, tracer_provider: TracerProvider | None = None) -> Iterator[Span]:
    """Put a span around a step that runs; what is replayed has none."""
    id = step.id.partition("/")[2]
    span = _tracer(tracer_provider).start_span(
        # Keys may be as many as there are customers.
        f"step {re.split(_KEY, id)[0]}",
        attributes={"holdfast.step": id, "holdfast.step.attempt": step.attempt},
    )
    with _current(span):
        yield span


@contextmanager
def tick_span(
    cycle: str, slot: str | None = None, *, tracer_provider: TracerProvider | None = None
) -> Iterator[Span]:
    """Put a span around a cycle's run."""
    attributes = {"holdfast.cycle": cycle} | ({} if slot is None else {"holdfast.slot": slot})
    span = _tracer(tracer_provider).start_span(f"tick {cycle}", attributes=attributes)
    with _current(span):
        yield span


@contextmanager
def _current(span: Span) -> Iterator[None]:
    """Make a span the current one and end it; of an error only the class is recorded.

    An error's text may hold secrets that are redacted elsewhere. Busy and Snooze are requests, not failures.
    """
    with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield
        except BaseException as error:
            if not isinstance(error, Busy | Snooze):
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(StatusCode.ERROR)
            raise


def _links(traceparent: str | None) -> Sequence[Link]:
    if traceparent is None:
        return ()
    creator = get_current_span(_W3C.extract({"traceparent": traceparent}, Context()))
    context = creator.get_span_context()
    return (Link(context),) if context.is_valid else ()


def _tracer(provider: TracerProvider | None) -> Tracer:
    return get_tracer(SCOPE, VERSION, provider)


@lru_cache(maxsize=4)
def _operation_duration(provider: MeterProvider | None) -> Histogram:
    return get_meter(SCOPE, VERSION, provider).create_histogram(
        "messaging.client.operation.duration", "s", "From a job's creation to its commit."
    )

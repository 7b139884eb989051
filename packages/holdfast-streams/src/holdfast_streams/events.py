"""What streams emit, and what they measure."""

from __future__ import annotations

from holdfast.core.events import EventSpec, Measured, Metric
from holdfast_streams.inbox import inbox_events

STREAM_CONSUMED = EventSpec(
    "stream_consumed",
    "debug",
    "A reader of the log took events, and committed its position.",
    ("reader", "line", "events", "run_ms"),
)
STREAM_RETRIED = EventSpec(
    "stream_retried",
    "warning",
    "A handler failed on events of the log; they are tried again after a delay.",
    ("reader", "line", "events", "error", "delay_ms"),
)
STREAM_PARKED = EventSpec(
    "stream_parked",
    "error",
    "A reader could not take an event, which is parked; its line goes on.",
    ("reader", "line", "event_name", "id", "error"),
)
STREAM_REFUSED = EventSpec(
    "stream_refused",
    "warning",
    "A write was rejected because another process reads the line now; it was rolled back.",
    ("reader", "line"),
)
STREAM_LAG = EventSpec(
    "stream_lag",
    "debug",
    "How far a reader is behind in a line that this process reads.",
    ("reader", "line", "lag", "lag_ms"),
)
STREAM_BLOCKED = EventSpec(
    "stream_blocked",
    "warning",
    "A line of a relay waits for its broker, or for a rebase; its events stay in the log.",
    ("reader", "line", "state", "error"),
)
STREAM_REFILLED = EventSpec(
    "stream_refilled",
    "warning",
    "A broker's stream has lost events; what the log still has of them is sent again.",
    ("reader", "line", "events", "gone"),
)
LOG_TRIMMED = EventSpec(
    "log_trimmed", "info", "Old events were removed from the log.", ("parts", "events")
)
EVENTS = (
    STREAM_CONSUMED,
    STREAM_RETRIED,
    STREAM_PARKED,
    STREAM_REFUSED,
    STREAM_LAG,
    STREAM_BLOCKED,
    STREAM_REFILLED,
    LOG_TRIMMED,
    *inbox_events.EVENTS,
)

_LINE = ("reader", "line")

METRICS = (
    Measured(
        "stream_consumed",
        Metric("holdfast.stream.events", "counter", "Events that readers took.", ("reader",)),
        "events",
    ),
    Measured(
        "stream_consumed",
        Metric(
            "holdfast.stream.run_duration",
            "histogram",
            "How long a handler took for its events.",
            ("reader",),
            "s",
        ),
        "run_ms",
    ),
    Measured(
        "stream_retried",
        Metric(
            "holdfast.stream.retries",
            "counter",
            "Failed calls of consumers' handlers.",
            ("reader",),
        ),
    ),
    Measured(
        "stream_parked",
        Metric(
            "holdfast.stream.parked", "counter", "Events that readers could not take.", ("reader",)
        ),
    ),
    Measured(
        "stream_refused",
        Metric(
            "holdfast.stream.refused",
            "counter",
            "Writes of readers rejected because the token was invalid.",
            ("reader",),
        ),
    ),
    Measured(
        "stream_blocked",
        Metric(
            "holdfast.stream.blocked",
            "counter",
            "Times that a line of a relay began to wait for its broker or for a rebase.",
            ("reader", "state"),
        ),
    ),
    Measured(
        "stream_refilled",
        Metric(
            "holdfast.stream.refilled",
            "counter",
            "Events that relays sent again because the stream had lost them.",
            ("reader",),
        ),
        "events",
    ),
    Measured(
        "stream_lag",
        Metric(
            "holdfast.stream.lag_events",
            "gauge",
            "Places between a reader and the end of a line, told by the process that reads it.",
            _LINE,
        ),
        "lag",
    ),
    Measured(
        "stream_lag",
        Metric(
            "holdfast.stream.lag",
            "gauge",
            "Age of the oldest event of a line that a reader has not taken.",
            _LINE,
            "s",
        ),
        "lag_ms",
    ),
    *inbox_events.METRICS,
)

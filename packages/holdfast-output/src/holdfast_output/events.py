"""What output emits, and what it measures."""

from __future__ import annotations

from holdfast.core.events import EventSpec, Measured, Metric

OUTPUT_WRITTEN = EventSpec(
    "output_written",
    "debug",
    "What a handler emitted was written.",
    ("type", "job_id", "items", "bytes"),
)
OUTPUT_REFUSED = EventSpec(
    "output_refused",
    "warning",
    "What an attempt emitted was refused: it no longer holds its job, or cannot seal.",
    ("type", "job_id", "error"),
)
EVENTS = (OUTPUT_WRITTEN, OUTPUT_REFUSED)

_TYPE = ("type",)

METRICS = (
    Measured(
        "output_written",
        Metric("holdfast.output.items", "counter", "Items that handlers emitted.", _TYPE),
        "items",
    ),
    Measured(
        "output_written",
        Metric("holdfast.output.bytes", "counter", "Bytes that handlers emitted.", _TYPE, "By"),
        "bytes",
    ),
    Measured(
        "output_refused",
        Metric(
            "holdfast.output.refused",
            "counter",
            "Attempts whose output was refused because they no longer held their job.",
            _TYPE,
        ),
    ),
)

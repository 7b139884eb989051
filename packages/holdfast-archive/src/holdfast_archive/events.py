"""What the archive emits, and what it measures."""

from __future__ import annotations

from holdfast.core.events import EventSpec, Measured, Metric

ARCHIVE_EXPORTED = EventSpec(
    "archive_exported",
    "info",
    "Rows of a period were archived, read back and compared.",
    ("source", "manifest", "rows", "bytes"),
)
ARCHIVE_DROPPED = EventSpec(
    "archive_dropped",
    "info",
    "Rows covered by a verified manifest were removed from the database.",
    ("source", "manifest", "items"),
)
ARCHIVE_FAILED = EventSpec(
    "archive_failed",
    "error",
    "A period could not be archived, or an archived object is not what was stored.",
    ("source", "manifest", "error"),
)
ARCHIVE_RESTORED = EventSpec(
    "archive_restored", "info", "Archived rows were inserted again.", ("source", "manifest", "rows")
)
EVENTS = (ARCHIVE_EXPORTED, ARCHIVE_DROPPED, ARCHIVE_FAILED, ARCHIVE_RESTORED)

METRICS = (
    Measured(
        "archive_exported",
        Metric("holdfast.archive.rows", "counter", "Rows archived and verified.", ("source",)),
        "rows",
    ),
    Measured(
        "archive_exported",
        Metric(
            "holdfast.archive.bytes",
            "counter",
            "Bytes of archived and verified objects.",
            ("source",),
        ),
        "bytes",
    ),
    Measured(
        "archive_dropped",
        Metric(
            "holdfast.archive.dropped_items",
            "counter",
            "Rows, or chains of jobs, removed after they were archived.",
            ("source",),
        ),
        "items",
    ),
    Measured(
        "archive_failed",
        Metric(
            "holdfast.archive.failures",
            "counter",
            "Periods that could not be archived.",
            ("source",),
        ),
    ),
)

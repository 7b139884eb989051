"""What inboxes emit, and what they measure."""

from __future__ import annotations

from holdfast.core.events import EventSpec, Measured, Metric

INBOX_RECEIVED = EventSpec(
    "inbox_received",
    "debug",
    "Messages were taken, and what their handler wrote was committed.",
    ("inbox", "messages"),
)
INBOX_DUPLICATE = EventSpec(
    "inbox_duplicate",
    "debug",
    "Messages came again that were received before; their handler was not called.",
    ("inbox", "messages"),
)
INBOX_REFUSED = EventSpec(
    "inbox_refused",
    "warning",
    "A webhook was refused: its signature, its size or its body.",
    ("inbox", "code", "error"),
)
INBOX_FAILED = EventSpec(
    "inbox_failed",
    "warning",
    "A handler failed on a message, which will come again.",
    ("inbox", "message_id", "error"),
)
INBOX_PARKED = EventSpec(
    "inbox_parked",
    "error",
    "A message could not be taken, and is parked; others go on.",
    ("inbox", "message_id", "error"),
)
INBOX_AWAY = EventSpec(
    "inbox_away",
    "warning",
    "The broker of an inbox cannot be reached; it is tried again with backoff.",
    ("inbox", "error", "delay_ms"),
)
INBOX_BACK = EventSpec(
    "inbox_back", "info", "The broker of an inbox is reached again.", ("inbox", "away_ms")
)
INBOX_LINE_LOST = EventSpec(
    "inbox_line_lost",
    "warning",
    "A write of an inbox was rejected because another process reads the line now; it was rolled back.",
    ("inbox", "line"),
)
INBOX_TRIMMED = EventSpec(
    "inbox_trimmed",
    "info",
    "Records of received messages were removed that had outlived their time.",
    ("messages",),
)
EVENTS = (
    INBOX_RECEIVED,
    INBOX_DUPLICATE,
    INBOX_REFUSED,
    INBOX_FAILED,
    INBOX_PARKED,
    INBOX_AWAY,
    INBOX_BACK,
    INBOX_LINE_LOST,
    INBOX_TRIMMED,
)

_INBOX = ("inbox",)

METRICS = (
    Measured(
        "inbox_received",
        Metric("holdfast.inbox.received", "counter", "Messages that inboxes took.", _INBOX),
        "messages",
    ),
    Measured(
        "inbox_duplicate",
        Metric(
            "holdfast.inbox.duplicates",
            "counter",
            "Messages that were received before and not handled again.",
            _INBOX,
        ),
        "messages",
    ),
    Measured(
        "inbox_refused",
        Metric(
            "holdfast.inbox.refused",
            "counter",
            "Webhooks that were refused, by the error's code.",
            ("inbox", "code"),
        ),
    ),
    Measured(
        "inbox_failed",
        Metric("holdfast.inbox.failed", "counter", "Failed calls of inboxes' handlers.", _INBOX),
    ),
    Measured(
        "inbox_parked",
        Metric("holdfast.inbox.parked", "counter", "Messages that were parked.", _INBOX),
    ),
    Measured(
        "inbox_line_lost",
        Metric(
            "holdfast.inbox.lines_lost",
            "counter",
            "Writes of inboxes rejected because another process read the line.",
            _INBOX,
        ),
    ),
)

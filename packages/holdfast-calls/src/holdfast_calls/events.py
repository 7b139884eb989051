"""What requests that wait emit, and what that measures."""

from __future__ import annotations

from holdfast.core.events import EventSpec, Measured, Metric

WAIT_STARTED = EventSpec(
    "wait_started", "debug", "A request began to wait in wait_or_accept.", ("waiting",)
)
WAIT_FINISHED = EventSpec(
    "wait_finished",
    "debug",
    "A request's wait ended: ready, pending, failed or rejected.",
    ("waiting", "state", "duration_ms"),
)
EVENTS = (WAIT_STARTED, WAIT_FINISHED)

_WAITING = Metric(
    "holdfast.request.waiting", "gauge", "Requests in this process waiting in wait_or_accept."
)
_WAIT = Metric(
    "holdfast.request.wait_duration",
    "histogram",
    "How long requests waited, by result.",
    ("state",),
    "s",
)
METRICS = (
    Measured("wait_started", _WAITING, "waiting"),
    Measured("wait_finished", _WAITING, "waiting"),
    Measured("wait_finished", _WAIT, "duration_ms"),
)

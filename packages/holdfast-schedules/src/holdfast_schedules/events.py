"""What schedules emit, and what they measure."""

from __future__ import annotations

from holdfast.core.events import EventSpec, Measured, Metric

SCHEDULE_FIRED = EventSpec(
    "schedule_fired",
    "debug",
    "Due schedules of a type were taken, and their jobs started.",
    ("type", "started", "skipped", "missed", "late_ms"),
)
SCHEDULE_REFUSED = EventSpec(
    "schedule_refused",
    "error",
    "No job could be started for a due time of a schedule, which goes on with the next one.",
    ("type", "schedule", "error"),
)
SCHEDULE_LAG = EventSpec(
    "schedule_lag", "debug", "How long the first due schedule of a type waits.", ("type", "lag_ms")
)
SCHEDULES_TRIMMED = EventSpec(
    "schedules_trimmed", "info", "Old due times of schedules were removed.", ("slots",)
)
EVENTS = (SCHEDULE_FIRED, SCHEDULE_REFUSED, SCHEDULE_LAG, SCHEDULES_TRIMMED)

_TYPE = ("type",)

METRICS = (
    Measured(
        "schedule_fired",
        Metric("holdfast.schedule.started", "counter", "Jobs that schedules started.", _TYPE),
        "started",
    ),
    Measured(
        "schedule_fired",
        Metric(
            "holdfast.schedule.skipped",
            "counter",
            "Due times of schedules that were skipped because the last job had not ended.",
            _TYPE,
        ),
        "skipped",
    ),
    Measured(
        "schedule_fired",
        Metric(
            "holdfast.schedule.missed",
            "counter",
            "Due times of schedules that passed while no worker ran, and are not caught up.",
            _TYPE,
        ),
        "missed",
    ),
    Measured(
        "schedule_fired",
        Metric(
            "holdfast.schedule.delay",
            "histogram",
            "How long after its due time the latest schedule of a batch was started.",
            _TYPE,
            "s",
        ),
        "late_ms",
    ),
    Measured(
        "schedule_refused",
        Metric(
            "holdfast.schedule.refused",
            "counter",
            "Due times of schedules for which no job could be started.",
            _TYPE,
        ),
    ),
    Measured(
        "schedule_lag",
        Metric(
            "holdfast.schedule.lag",
            "gauge",
            "How long the first due schedule of a type waits.",
            _TYPE,
            "s",
        ),
        "lag_ms",
    ),
)

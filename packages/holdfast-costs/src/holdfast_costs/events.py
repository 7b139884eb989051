"""What costs emit, and what they measure."""

from __future__ import annotations

from holdfast.core.events import EventSpec, Measured, Metric

COST_USED = EventSpec(
    "cost_used",
    "debug",
    "How much of a limit that counts costs is used, by the key that uses most of it.",
    ("type", "ratio"),
)
EVENTS = (COST_USED,)

METRICS = (
    Measured(
        "cost_used",
        Metric(
            "holdfast.cost.used_ratio",
            "gauge",
            "How much of a limit that counts costs is used, by the key that uses most of it; 1 is all of it. A shared "
            "limit has its name, as @openai.",
            ("type",),
        ),
        "ratio",
    ),
)

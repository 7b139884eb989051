"""The trace a producer is in, kept with the jobs it starts; nothing is imported for those who do not trace."""

from __future__ import annotations

import sys


def ambient_trace() -> str | None:
    """Return the current W3C trace context when this process uses OpenTelemetry, else None."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from holdfast.observe.spans import current_traceparent

    return current_traceparent()

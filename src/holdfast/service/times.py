"""Instants as programs read them."""

from __future__ import annotations

from holdfast.core.model import Instant, to_datetime


def rfc3339(instant: Instant | None) -> str | None:
    """Write an instant in UTC with microseconds, as in 2026-01-31T12:00:00.000000Z."""
    if instant is None:
        return None
    moment = to_datetime(instant)
    # A page writes hundreds of these, and strftime takes five times as long.
    return f"{moment.isoformat(timespec='microseconds')[:26]}Z"

"""Instants and spans as people and programs read them."""

from __future__ import annotations

from datetime import datetime
from typing import cast

from holdfast.core.model import Instant, to_datetime


def rfc3339(instant: Instant | None) -> str | None:
    """Write an instant in UTC with microseconds, as in 2026-01-31T12:00:00.000000Z."""
    if instant is None:
        return None
    moment = cast(datetime, to_datetime(instant))
    # A page writes hundreds of these, and strftime takes five times as long.
    return f"{moment.isoformat(timespec='microseconds')[:26]}Z"


def to_the_second(text: str | None) -> str | None:
    """Shorten a written instant for a table."""
    return None if text is None else f"{text[:19]}Z"

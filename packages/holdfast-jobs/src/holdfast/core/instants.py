"""Instants: integer microseconds since the epoch, UTC, and how they are read and shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import overload

from holdfast.core.errors import InvalidOption

Instant = int
Expiry = tuple[Instant | None, int | None]
"""When a job is given up that has not begun: at a time, or so many milliseconds from now."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


@overload
def to_datetime(instant: Instant) -> datetime: ...
@overload
def to_datetime(instant: Instant | None) -> datetime | None: ...
def to_datetime(instant: Instant | None) -> datetime | None:
    """Show an instant as an aware datetime in UTC; one beyond the years of a datetime as the last, or the first."""
    if instant is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=instant)
    except OverflowError:
        # What is put off until the last moment there is may come to lie a little behind it.
        return _EPOCH + timedelta(microseconds=_LAST if instant > 0 else _FIRST)


def to_instant(moment: datetime) -> Instant:
    """Read an aware datetime as an instant; a naive one has no meaning and is refused.

    Raises: InvalidOption where its zone moves it out of the years of a datetime: nothing could show it.
    """
    if moment.tzinfo is None:
        raise ValueError("a time needs a time zone; use datetime.now(UTC)")
    instant = (moment - _EPOCH) // _MICROSECOND
    if not _FIRST <= instant <= _LAST:
        raise InvalidOption(f"{moment.isoformat()} is not within the years 1 to 9999 of UTC")
    return instant


def parse_time(text: str) -> datetime:
    """Read a time with a zone. Raises: InvalidOption; one without a zone is ambiguous."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidOption(f"{text[:40]!r} is not a time like 2030-01-31T09:00:00Z")
    return moment


def parse_since(since: object) -> Instant:
    """Read the time from which on something is wanted, UTC unless it says otherwise. Raises: InvalidOption."""
    if isinstance(since, str):
        try:
            moment = datetime.fromisoformat(since)
        except ValueError:
            raise InvalidOption(
                f"since={since[:40]!r} is not a date or time", help='write "2026-01-01"'
            ) from None
        return to_instant(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
    if not isinstance(since, datetime) or since.tzinfo is None:
        raise InvalidOption(
            f"since={repr(since)[:60]} is not a time with a zone", help='write "2026-01-01"'
        )
    return to_instant(since)

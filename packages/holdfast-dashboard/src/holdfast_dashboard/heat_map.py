"""The week of a job type as a map: a row for each day, a box for each hour, the more it started the stronger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache

import msgspec
from markupsafe import Markup

from holdfast.core.instants import Instant, to_datetime
from holdfast.core.statistics import SeriesPoint
from holdfast_dashboard.drawing import picture, rect, text
from holdfast_dashboard.templates import count

DAYS, HOURS = 7, 24
HOUR_US = 3_600_000_000
LEVELS = 5
"""Strengths besides that of an hour in which nothing started."""

_BOX, _GAP, _MARGIN, _HEAD = 22.0, 3.0, 58.0, 16.0
_STEP = _BOX + _GAP
_EVERY = 3


class Hour(msgspec.Struct, frozen=True):
    """What happened in one hour of a day."""

    started: int
    failed: int


class Day(msgspec.Struct, frozen=True):
    """A day of UTC and its hours; those to come are None."""

    label: str
    hours: tuple[Hour | None, ...]


def week_of(series: Sequence[SeriesPoint], now: Instant) -> tuple[Day, ...]:
    """Return the last seven days, today last."""
    found = {each.at: each for each in series}
    midnight = to_datetime(now).replace(hour=0, minute=0, second=0, microsecond=0)
    first = now - now % (HOURS * HOUR_US) - (DAYS - 1) * HOURS * HOUR_US
    days = []
    for place in range(DAYS):
        begin = first + place * HOURS * HOUR_US
        hours = tuple(_hour(found, begin + hour * HOUR_US, now) for hour in range(HOURS))
        days.append(Day(f"{midnight - timedelta(days=DAYS - 1 - place):%a %d}", hours))
    return tuple(days)


def _hour(found: dict[Instant, SeriesPoint], at: Instant, now: Instant) -> Hour | None:
    if at > now:
        return None
    point = found.get(at)
    return Hour(0, 0) if point is None else Hour(max(0, point.started), max(0, point.failed))


# A live page is rendered every second and its map changes by the minute.
@lru_cache(maxsize=16)
def draw_week(series: tuple[SeriesPoint, ...], now: Instant) -> tuple[Markup, str]:
    """Draw the map of the last seven days, and say what it shows."""
    days = week_of(series, now)
    words = week_in_words(days)
    return _draw_days(days, words), words


def _draw_days(days: Sequence[Day], words: str) -> Markup:
    """Draw a box for each hour; a mark in it says that jobs failed then."""
    peak = max((hour.started for day in days for hour in day.hours if hour), default=0)
    parts = [
        text(_MARGIN + hour * _STEP, _HEAD - 5, f"{hour:02d}", kind="hour")
        for hour in range(0, HOURS, _EVERY)
    ]
    for row, day in enumerate(days):
        y = _HEAD + row * _STEP
        parts.append(text(0, y + _BOX * 0.7, day.label))
        for place, hour in enumerate(day.hours):
            if hour is not None:
                parts += _draw_hour(_MARGIN + place * _STEP, y, hour, peak, day.label, place)
    return picture(_MARGIN + HOURS * _STEP, _HEAD + len(days) * _STEP, words, parts)


def _draw_hour(x: float, y: float, hour: Hour, peak: int, day: str, place: int) -> list[Markup]:
    failed = f", {count(hour.failed)} failed" if hour.failed else ""
    title = f"{day}, {place:02d}:00 UTC: {count(hour.started)} started{failed}"
    boxes = [rect(x, y, _BOX, _BOX, f"heat-{level(hour.started, peak)}", title, 3)]
    if hour.failed:
        boxes.append(rect(x + _BOX - 8, y + 2, 6, 6, "failed", title, 3))
    return boxes


def level(started: int, peak: int) -> int:
    """Return how strong an hour is drawn: 0 for nothing, LEVELS for the busiest."""
    return 0 if not started else max(1, -(-started * LEVELS // peak))


def week_in_words(days: Sequence[Day]) -> str:
    """Say what the map shows: how much in total, and the busiest hour."""
    hours = [
        (hour, f"{day.label}, {place:02d}:00 UTC")
        for day in days
        for place, hour in enumerate(day.hours)
        if hour is not None
    ]
    started = sum(hour.started for hour, _ in hours)
    failed = sum(hour.failed for hour, _ in hours)
    if not started and not failed:
        return "Nothing in the last 7 days"
    busiest, when = max(hours, key=lambda each: each[0].started)
    return (
        f"Last 7 days: {count(started)} started, {count(failed)} failed; "
        f"busiest hour {when} with {count(busiest.started)}"
    )

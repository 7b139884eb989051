"""Durations as people write and say them ("1h30m", 0.25, timedelta, "41 s") and as the core has them, in ms; counts."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

from holdfast.core.errors import InvalidDuration

Duration: TypeAlias = str | float | timedelta
"""A text with units, a number of seconds, or a timedelta."""

MAX_DURATION_MS = 36_525 * 86_400_000
"""A hundred years: longer ones are mistakes, and would leave the range of the databases' times."""

_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"
_SPOKEN_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_TEXT = re.compile(
    r"\s*".join(f"(?:{_NUMBER}{unit})?" for unit in _UNITS), re.ASCII | re.IGNORECASE
)


def milliseconds(value: Duration) -> int:
    """Return the duration in whole milliseconds, or raise InvalidDuration."""
    exact = _exact_ms(value)
    # A NaN fails both comparisons and is refused with the rest.
    if not 0 <= exact <= MAX_DURATION_MS:
        raise InvalidDuration(f"{repr(value)[:60]} is not between 0 and 100 years")
    return round(exact)


def format_duration(ms: int) -> str:
    """Return the shortest text that `milliseconds` reads back as the same number."""
    if ms == 0:
        return "0s"
    parts = []
    for unit, size in _UNITS.items():
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def format_span(us: int) -> str:
    """Write a span as people say it: in one unit, as in "41 s" or "3 h"."""
    seconds = max(0, us) / 1_000_000
    for size, unit in _SPOKEN_UNITS:
        if seconds >= size:
            return f"{int(seconds / size)} {unit}"
    return f"{int(seconds * 1000)} ms"


def pluralize(number: int, noun: str, more: str = "") -> str:
    """Write a number with its noun, as in "1 job", "2 jobs" and, where counting stopped, "1000+ jobs"."""
    plural = f"{noun}es" if noun.endswith("x") else f"{noun}s"
    return f"{number}{more} {noun if number == 1 and not more else plural}"


def _exact_ms(value: object) -> float:
    if isinstance(value, str):
        return _parse_seconds(value)
    if isinstance(value, timedelta):
        return value / timedelta(milliseconds=1)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value * 1000
    raise InvalidDuration(f"{type(value).__name__} is not a duration")


def _parse_seconds(text: str) -> float:
    stripped = text.strip()
    match = _TEXT.fullmatch(stripped) if stripped else None
    if match is None:
        raise InvalidDuration(f"{repr(text)[:60]} is not a duration")
    return sum(
        float(number) * size
        for number, size in zip(match.groups(), _UNITS.values(), strict=True)
        if number
    )

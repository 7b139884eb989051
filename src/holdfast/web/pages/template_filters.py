"""Values as pages write them: spans in one unit, instants to the second, ids by their end, counts with thin spaces.

Instants as pages show them: a span that a script keeps counting, with the instant itself for whoever points at it.

Filters rather than macros: a page is drawn every second and has many of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from markupsafe import Markup, escape

from holdfast.core.cycle import CatchUp
from holdfast.core.duration import spoken
from holdfast.core.filters import Term, format_filter
from holdfast.core.records import Instant, to_instant

LONGEST_LINE = 300
LONGEST_PAYLOAD = 20_000
_SHORT = 8
_CUT = "\n… cut here; the API and the command line show all of it"


def instant_of(text: str) -> Instant:
    """Read an instant as the service writes it."""
    return to_instant(datetime.fromisoformat(text))


def ms(text: str) -> int:
    """Return an instant as milliseconds since the epoch, for scripts."""
    return instant_of(text) // 1000


def clock(text: str) -> str:
    """Write an instant to the second, in UTC."""
    return f"{text[:10]} {text[11:19]} UTC"


def minute(text: str) -> str:
    """Write an instant to the minute, for lists of several."""
    return f"{text[5:10]} {text[11:16]}"


def between(start: str | None, end: str | None) -> str:
    """Write the span between two instants, if both are known."""
    if start is None or end is None:
        return "–"
    return spoken(instant_of(end) - instant_of(start))


def count(number: int) -> str:
    """Write a count in groups of three."""
    return f"{number:,}".replace(",", "\u202f")


def bulk(size: int) -> str:
    """Write a number of bytes in the unit that suits it."""
    value, units = float(size), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while value >= 1000 and unit != "TB":
        value, unit = value / 1000, next(units)
    digits = 0 if unit == "B" or value >= 100 else 1
    return f"{value:.{digits}f}\u202f{unit}"


def short(id: str) -> str:
    """Shorten an id to its end: ids made together begin alike."""
    return f"…{id[-_SHORT:]}"


def first_line(text: str | None) -> str:
    """Return what an error says before its stack."""
    line = (text or "").strip().partition("\n")[0]
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"


def pretty(value: Any) -> str:
    """Write a payload for reading."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return text if len(text) <= LONGEST_PAYLOAD else f"{text[:LONGEST_PAYLOAD]}{_CUT}"


def term(value: str, field: str) -> str:
    """Write the filter that finds a value in a field, whatever characters it has."""
    return format_filter([Term(field, ":", (value,))])


def caught_up(missed: str) -> str:
    """Say what becomes of a cycle's slots that nobody could run in time."""
    match CatchUp.parse(missed).slots:
        case 0:
            return "are left out"
        case 1:
            return "the last is made up for"
        case several:
            return f"the last {several} are made up for"


def note(job: Mapping[str, Any], now: Instant) -> str:
    """Say in a few words what a list should tell of a job besides its state."""
    match job["state"]:
        case "running":
            return f"on {job['worker']}"
        case "completed":
            ran = between(job["started_at"], job["finished_at"])
            return f"ran {ran}, went on" if job["continued"] else f"ran {ran}"
        case "blocked":
            return "waits for other chains"
        case "pending":
            return _due(job, now)
        case _:
            return first_line(job["error"])


def _due(job: Mapping[str, Any], now: Instant) -> str:
    due = instant_of(job["available_at"])
    word = "retry" if job["attempt"] else "due"
    return f"{word} in {spoken(due - now)}" if due > now else f"due since {spoken(now - due)}"


_NEVER = Markup('<span class="zero">–</span>')


def ago(text: str | None, now: Instant) -> Markup:
    """Show how long ago an instant was, and say so."""
    if not text:
        return _NEVER
    instant, at = instant_of(text), escape(text)
    counted = f'<time datetime="{at}" data-since="{instant // 1000}">{spoken(now - instant)}</time>'
    return Markup(f'<span class="nowrap" title="{at}">{counted} ago</span>')


def since(text: str | None, now: Instant) -> Markup:
    """Show how long ago an instant was."""
    if not text:
        return _NEVER
    instant = instant_of(text)
    return _counted(text, f'data-since="{instant // 1000}"', now - instant)


def until(text: str | None, now: Instant) -> Markup:
    """Show how far ahead an instant is; one that has passed is no time away."""
    if not text:
        return _NEVER
    instant = instant_of(text)
    return _counted(text, f'data-until="{instant // 1000}"', instant - now)


def _counted(text: str, mark: str, span: int) -> Markup:
    at = escape(text)
    return Markup(f'<time class="nowrap" datetime="{at}" title="{at}" {mark}>{spoken(span)}</time>')

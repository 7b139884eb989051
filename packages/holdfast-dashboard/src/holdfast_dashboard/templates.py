"""The Jinja environment and its filters: everything is escaped, and an unknown name is an error.

Filters rather than macros where a page has many: live pages are rendered every second.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from holdfast.admin.access import MAX_REASON_LENGTH
from holdfast.core.cycle import REQUESTED, CatchUp
from holdfast.core.duration import format_span
from holdfast.core.filters import Term, format_filter
from holdfast.core.ids import short_id
from holdfast.core.instants import Instant, to_instant
from holdfast.extensions import modules_of

STATIC = Path(__file__).parent / "static"

MAX_LINE_LENGTH = 300
MAX_PAYLOAD_LENGTH = 20_000
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_BACKTICKS = re.compile("`([^`]+)`")
_CUT = "\n… cut here; the API and the command line show the rest"


class ExactText(str):
    """A text that is sent back as it is, such as the value of a field."""

    __slots__ = ()


def exact(value: object) -> ExactText:
    """Keep a value as it is: it is not only shown."""
    return ExactText(value)


def visible(text: str) -> str:
    """Show control characters, and those that reorder the text around them, as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _make_visible(value: Any) -> Any:
    """Make every plain text of a template visible; markup and exact texts stay as they are."""
    return visible(value) if type(value) is str else value


def instant_of(text: str) -> Instant:
    """Parse an instant as the admin layer writes it."""
    return to_instant(datetime.fromisoformat(text))


def ms(text: str) -> int:
    """Return an instant as milliseconds since the epoch, for scripts."""
    return instant_of(text) // 1000


def clock(text: str) -> str:
    """Format an instant to the second, in UTC."""
    return f"{text[:10]} {text[11:19]} UTC"


def clocks(texts: Sequence[str]) -> str:
    """Format instants for a line, in UTC: the date where it changes, seconds where one is not on the minute."""
    end = 16 if all(text[17:19] == "00" for text in texts) else 19
    days = ["", *(text[5:10] for text in texts)]
    shown = [
        text[11:end] if days[place] == text[5:10] else f"{text[5:10]} {text[11:end]}"
        for place, text in enumerate(texts)
    ]
    return f"{', '.join(shown)} UTC"


def slot_clock(slot: str | None) -> str:
    """Format the slot of a cycle's run: its instant, unless it was requested."""
    if slot is None:
        return "–"
    return "on request" if slot.startswith(REQUESTED) else clock(slot)


def between(start: str | None, end: str | None) -> str:
    """Format the time between two instants, if both are known."""
    if start is None or end is None:
        return "–"
    return format_span(instant_of(end) - instant_of(start))


def count(number: int) -> str:
    """Format a count in groups of three digits."""
    return f"{number:,}".replace(",", "\u202f")


def byte_size(size: int) -> str:
    """Format a number of bytes in a suitable unit."""
    value, units = float(size), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while value >= 1000 and unit != "TB":
        value, unit = value / 1000, next(units)
    digits = 0 if unit == "B" or value >= 100 else 1
    return f"{value:.{digits}f}\u202f{unit}"


def first_line(text: str | None) -> str:
    """Return an error's message without its traceback."""
    line = (text or "").strip().partition("\n")[0]
    return line if len(line) <= MAX_LINE_LENGTH else f"{line[:MAX_LINE_LENGTH]}…"


def pretty_json(value: Any) -> str:
    """Format a payload for reading."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return text if len(text) <= MAX_PAYLOAD_LENGTH else f"{text[:MAX_PAYLOAD_LENGTH]}{_CUT}"


def compact_json(value: Any) -> str:
    """Write a payload in a line that is cut where it is long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_LINE_LENGTH else f"{text[:MAX_LINE_LENGTH]}…"


def code_spans(text: str) -> Markup:
    """Show text in backticks as code."""
    return Markup(_BACKTICKS.sub(r"<code>\1</code>", str(escape(visible(text)))))


def filter_term(value: str, field: str) -> str:
    """Write the filter term that matches a value exactly, whatever characters it has."""
    return format_filter([Term(field, ":", (value,))])


def missed_runs(missed: str) -> str:
    """Describe what happens to a cycle's missed runs."""
    match CatchUp.parse(missed).slots:
        case 0:
            return "skipped"
        case 1:
            return "the latest missed run is caught up"
        case several:
            return f"the latest {several} missed runs are caught up"


def job_note(job: Mapping[str, Any], now: Instant) -> str:
    """Describe a job in a few words for a list, besides its state."""
    match job["state"]:
        case "running":
            return f"on {job['worker']}"
        case "completed":
            ran = between(job["started_at"], job["finished_at"])
            return f"ran {ran}, continued" if job["continued"] else f"ran {ran}"
        case "blocked":
            return "waiting for other chains"
        case "pending":
            return _due_note(job, now)
        case _:
            return first_line(job["error"])


def _due_note(job: Mapping[str, Any], now: Instant) -> str:
    due = instant_of(job["available_at"])
    word = "retry" if job["attempt"] else "due"
    note = (
        f"{word} in {format_span(due - now)}" if due > now else f"due for {format_span(now - due)}"
    )
    error = first_line(job.get("last_error"))
    return f"{note}: {error}" if error else note


_NEVER = Markup('<span class="zero">–</span>')


def ago(text: str | None, now: Instant) -> Markup:
    """Show how long ago an instant was, as in "3 min ago"; a script keeps it counting."""
    return Markup(f'<span class="nowrap">{since(text, now)} ago</span>') if text else _NEVER


def since(text: str | None, now: Instant) -> Markup:
    """Show the time since an instant; a script keeps it counting."""
    return _counting_time(text, "since", lambda instant: now - instant)


def until(text: str | None, now: Instant) -> Markup:
    """Show the time until an instant, 0 once it has passed; a script keeps it counting."""
    return _counting_time(text, "until", lambda instant: instant - now)


def _counting_time(text: str | None, mark: str, span: Callable[[Instant], int]) -> Markup:
    if not text:
        return _NEVER
    instant, at = instant_of(text), escape(text)
    return Markup(
        f'<time class="nowrap" datetime="{at}" title="{at}" data-{mark}="{instant // 1000}">'
        f"{format_span(span(instant))}</time>"
    )


_FILTERS = (
    ago,
    between,
    byte_size,
    clock,
    clocks,
    code_spans,
    count,
    exact,
    filter_term,
    first_line,
    job_note,
    missed_runs,
    ms,
    pretty_json,
    short_id,
    since,
    slot_clock,
    until,
)


@cache
def environment() -> Environment:
    """Return the one environment of this process."""
    created = Environment(
        loader=ChoiceLoader(
            [PackageLoader(each) for each in ("holdfast_dashboard", *modules_of("templates"))]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_make_visible,
    )
    created.filters.update({each.__name__: each for each in _FILTERS})
    created.globals["max_reason_length"] = MAX_REASON_LENGTH
    return created


def static_url(root: str, name: str) -> str:
    """Return the address of a static file, with the version that makes browsers fetch a changed one.

    The version is part of the path, so that it is part of what scripts import too.
    """
    return f"{root}/static/{static_version()}/{name}"


@cache
def static_version() -> str:
    """Return the version of all static files together."""
    digest = hashlib.blake2b(digest_size=6)
    for file in sorted(STATIC.iterdir()):
        digest.update(file.read_bytes())
    return digest.hexdigest()

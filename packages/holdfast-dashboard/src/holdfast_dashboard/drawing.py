"""Pictures drawn on the server as SVG: the few elements they use, and charts.

Colours are classes of the style sheet; every text is escaped here, numbers need not be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from markupsafe import Markup, escape

from holdfast.core.duration import format_span
from holdfast.core.instants import Instant
from holdfast.core.statistics import SeriesPoint
from holdfast_dashboard.templates import count, instant_of, visible

WIDTH, HEIGHT = 600, 150
_MINUTE_US = 60_000_000
_HOUR_US = 60 * _MINUTE_US
_GAP = 1.5
_LINES = 3
_FRAME = Markup(
    '<div class="chart"><span>{top}</span>{drawn}<div class="chart-ends" aria-hidden="true">'
    "<span>{first} UTC</span><span>{middle}</span><span>now</span></div></div>"
)
_BAR_WIDTH, _BAR_HEIGHT = 640, 14
_MIN_SHARE_WIDTH = 2.0
_USUAL_GLYPH = 7.5
"""How wide a bold letter of a drawing usually is, in the widest of the fonts that systems have."""


def picture(width: float, height: float, label: str, parts: Iterable[Markup]) -> Markup:
    """Draw a picture of its own size; its role is group, because screen readers skip an image's links."""
    size = f'width="{number(width)}" height="{number(height)}"'
    return _svg(f"{_head(width, height, 'group')} {size}>", label, parts)


def stretched_picture(width: float, height: float, label: str, parts: Iterable[Markup]) -> Markup:
    """Draw a picture that fills its box; it should contain neither texts nor links."""
    return _svg(f'{_head(width, height, "img")} preserveAspectRatio="none">', label, parts)


def _head(width: float, height: float, role: str) -> str:
    return f'<svg class="drawing" role="{role}" viewBox="0 0 {number(width)} {number(height)}"'


def _svg(head: str, label: str, parts: Iterable[Markup]) -> Markup:
    return Markup("".join((head, _title(label), *parts, "</svg>")))


def rect(
    x: float, y: float, width: float, height: float, kind: str, title: str = "", radius: float = 0
) -> Markup:
    """Draw a box; its title shows on hover."""
    corner = f' rx="{number(radius)}"' if radius else ""
    return Markup(
        f'<rect class="{escape(kind)}" x="{number(x)}" y="{number(y)}" width="{number(width)}" '
        f'height="{number(height)}"{corner}>{_title(title)}</rect>'
    )


def line(x1: float, y1: float, x2: float, y2: float) -> Markup:
    """Draw a line of the grid."""
    ends = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
    return Markup(f'<line class="grid" {ends}/>')


def path(steps: str, kind: str) -> Markup:
    return Markup(f'<path class="{escape(kind)}" d="{escape(steps)}"/>')


def text(
    x: float, y: float, words: str, anchor: str = "start", kind: str = "", width: float = 0
) -> Markup:
    """Draw words; if there is a width, those that may be wider are condensed to it."""
    place, words = f'x="{number(x)}" y="{number(y)}" text-anchor="{escape(anchor)}"', visible(words)
    if width and len(words) * _USUAL_GLYPH > width:
        place += f' textLength="{number(width)}" lengthAdjust="spacingAndGlyphs"'
    return Markup(f'<text {place} class="{escape(kind)}">{escape(words)}</text>')


def dot(x: float, y: float, radius: float, kind: str) -> Markup:
    """Draw a filled circle."""
    place = f'cx="{number(x)}" cy="{number(y)}" r="{number(radius)}"'
    return Markup(f'<circle class="{escape(kind)}" {place}/>')


def link(href: str, title: str, kind: str, parts: Iterable[Markup]) -> Markup:
    """Wrap parts in a link."""
    inside = "".join((_title(title), *parts))
    return Markup(f'<a href="{escape(href)}" class="{escape(kind)}">{inside}</a>')


def number(value: float) -> str:
    """Format a coordinate without needless digits."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _title(words: str) -> str:
    return f"<title>{escape(visible(words))}</title>" if words else ""


class Bar(msgspec.Struct, frozen=True):
    """Jobs that ended within one step of time; `label` is its clock time."""

    label: str
    completed: int
    failed: int


class Point(msgspec.Struct, frozen=True):
    """A duration at one step of time; None where nothing was measured."""

    label: str
    us: int | None


def clock_label(at: Instant) -> str:
    """Return the clock time of a step in UTC."""
    return f"{at // _HOUR_US % 24:02d}:{at // _MINUTE_US % 60:02d}"


def bars_of(series: Sequence[SeriesPoint], steps: Sequence[Instant]) -> tuple[Bar, ...]:
    """Return a bar per step, empty where nothing ended."""
    ended = {each.at: each for each in series}
    return tuple(
        Bar(clock_label(at), max(0, each.completed), max(0, each.failed))
        if (each := ended.get(at))
        else Bar(clock_label(at), 0, 0)
        for at in steps
    )


# A live page is rendered every second and its charts change by the minute.
@lru_cache(maxsize=16)
def draw_bars(series: tuple[Bar, ...]) -> Markup:
    """Draw completed and failed jobs per step."""
    top = round_up(max((each.completed + each.failed for each in series), default=0))
    step = WIDTH / max(1, len(series))
    parts = _grid()
    for place, each in enumerate(series):
        parts += _bar(each, place * step, step - _GAP, top)
    completed, failed = sum(each.completed for each in series), sum(each.failed for each in series)
    label = f"Finished over time: {count(completed)} completed, {count(failed)} failed"
    return _frame(series, count(top), stretched_picture(WIDTH, HEIGHT, label, parts))


@lru_cache(maxsize=16)
def draw_curve(series: tuple[Point, ...]) -> Markup:
    """Draw a duration per step, with gaps where nothing was measured."""
    known = [each.us for each in series if each.us is not None]
    top = round_up_span(max(known, default=0))
    parts = _grid()
    for run in _runs(series):
        parts += _draw_run(run, WIDTH / len(series), top)
    worst = f"at most {format_span(max(known))}" if known else "nothing measured"
    drawn = stretched_picture(WIDTH, HEIGHT, f"Wait over time, {worst}", parts)
    return _frame(series, format_span(top), drawn)


def _frame(series: Sequence[Bar] | Sequence[Point], top: str, drawn: Markup) -> Markup:
    middle = series[len(series) // 2].label
    return _FRAME.format(top=top, drawn=drawn, first=series[0].label, middle=middle)


def _grid() -> list[Markup]:
    heights = [HEIGHT * place / _LINES for place in range(_LINES)]
    return [line(0, y, WIDTH, y) for y in (*heights, HEIGHT)]


@lru_cache(maxsize=512)
def _bar(bar: Bar, x: float, width: float, top: int) -> list[Markup]:
    done, failed = (value / top * HEIGHT for value in (bar.completed, bar.failed))
    title = f"{bar.label} UTC: {count(bar.completed)} completed, {count(bar.failed)} failed"
    parts = []
    if bar.completed:
        parts.append(rect(x, HEIGHT - done, width, done, "completed", title))
    if bar.failed:
        parts.append(rect(x, HEIGHT - done - failed, width, failed, "failed", title))
    return parts


def _draw_run(run: Sequence[tuple[int, int]], step: float, top: int) -> list[Markup]:
    points = [((place + 0.5) * step, HEIGHT - us / top * HEIGHT) for place, us in run]
    (first, left), (last, right) = points[0], points[-1]
    points = [(first - step / 2, left), *points, (last + step / 2, right)]
    drawn = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    start, end = number(points[0][0]), number(points[-1][0])
    area = f"M{start} {HEIGHT}L{drawn}L{end} {HEIGHT}Z"
    return [path(area, "under"), path(f"M{drawn}", "curve")]


def _runs(series: Sequence[Point]) -> list[list[tuple[int, int]]]:
    """Return the measured steps, in runs without a gap."""
    runs: list[list[tuple[int, int]]] = [[]]
    for place, each in enumerate(series):
        if each.us is None:
            runs.append([])
        else:
            runs[-1].append((place, each.us))
    return [run for run in runs if run]


def round_up(value: int) -> int:
    """Return the next round number, at least 3, for the top of a chart."""
    size: int = 10 ** max(0, len(str(value)) - 2)
    tops = (3, 6, 9, 12, 15, 18, 24, 30, 45, 60, 75, 90, 120)
    return next(size * each for each in tops if size * each >= value)


def round_up_span(us: int) -> int:
    """Return the next duration that is round in its own unit."""
    spans_ms = (3, 15, 30, 60, 150, 300, 600)
    spans_s = (1, 2, 3, 6, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 10_800, 43_200, 86_400)
    tops = [*(each * 1_000 for each in spans_ms), *(each * 1_000_000 for each in spans_s)]
    return next((each for each in tops if each >= us), us)


class TimeShare(msgspec.Struct, frozen=True):
    """How long a job waited or ran."""

    kind: str
    word: str
    us: int

    @property
    def span(self) -> str:
        """Its length in words."""
        return format_span(self.us)


class TimeBreakdown(msgspec.Struct, frozen=True):
    """A job's time by what it did, and the bar of it."""

    total: str
    shares: Sequence[TimeShare]
    bar: Markup


def time_breakdown(
    job: Mapping[str, Any], attempts: Sequence[Mapping[str, Any]], now: Instant
) -> TimeBreakdown:
    """Split a job's time until its end, or until now, into waiting and running."""
    begun = instant_of(job["created_at"])
    end = instant_of(job["finished_at"]) if job["finished_at"] else now
    ran = sum(map(_run_time, attempts))
    if job["started_at"] and job["state"] in ("running", "completed"):
        ran += max(0, end - instant_of(job["started_at"]))
    total = max(0, end - begun)
    ran = min(ran, total)
    waited = "blocked" if job["state"] == "blocked" else "waited"
    shares = (TimeShare(waited, waited, total - ran), TimeShare("running", "ran", ran))
    shown = [each for each in shares if each.us]
    return TimeBreakdown(format_span(total), shown, _share_bar(shown, total))


def _run_time(attempt: Mapping[str, Any]) -> int:
    if attempt["started_at"] is None:
        return 0
    return max(0, instant_of(attempt["ended_at"]) - instant_of(attempt["started_at"]))


def _share_bar(shares: Sequence[TimeShare], total: int) -> Markup:
    boxes, x = [], 0.0
    for each in shares:
        width = max(_MIN_SHARE_WIDTH, each.us / total * _BAR_WIDTH) if total else 0
        boxes.append(rect(x, 0, width, _BAR_HEIGHT, each.kind, f"{each.word} {each.span}"))
        x += width
    label = ", ".join(f"{each.word} {each.span}" for each in shares) or "no time yet"
    return stretched_picture(_BAR_WIDTH, _BAR_HEIGHT, label, boxes)


_STEP_BARS = {"done": "completed", "failed": "failed", "timed_out": "failed", "open": "pending"}


def step_bars(steps: Sequence[Mapping[str, Any]], begun: Instant, now: Instant) -> list[Markup]:
    """Draw when each step of a function was under way, between its job's start and its last step's end or now."""
    ends = [instant_of(each["finished_at"]) if each["finished_at"] else now for each in steps]
    starts, latest = [], begun
    for each, end in zip(steps, ends, strict=True):
        starts.append(instant_of(each["started_at"]) if each["started_at"] else min(latest, end))
        latest = max(latest, end)
    first = min((begun, *starts))
    scale = _BAR_WIDTH / max(1, max((latest, *ends)) - first)
    bars = []
    for each, start, end in zip(steps, starts, ends, strict=True):
        width = max(2 * _MIN_SHARE_WIDTH, (end - start) * scale)
        x = min((start - first) * scale, _BAR_WIDTH - width)
        waits = each["kind"] not in ("step", "undo") and _STEP_BARS[each["state"]] != "failed"
        kind = "waited" if waits else _STEP_BARS[each["state"]]
        label = f"{each['step']}: {format_span(end - start)}, after {format_span(start - first)}"
        bars.append(
            stretched_picture(
                _BAR_WIDTH, _BAR_HEIGHT, label, [rect(x, 0, width, _BAR_HEIGHT, kind)]
            )
        )
    return bars

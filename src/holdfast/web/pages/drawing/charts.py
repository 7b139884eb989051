"""Charts over time: stacked bars of what ended, and a curve of a span."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec
from markupsafe import Markup

from holdfast.core.duration import spoken
from holdfast.web.pages.drawing.svg import line, number, path, rect, stretched
from holdfast.web.pages.template_filters import count

WIDTH, HEIGHT = 600, 150
_GAP = 1.5
_LINES = 3
_FRAME = Markup(
    '<div class="chart"><span>{top}</span>{drawn}<div class="chart-ends" aria-hidden="true">'
    "<span>{first} UTC</span><span>{middle}</span><span>now</span></div></div>"
)


class Bar(msgspec.Struct, frozen=True):
    """What ended within one step of time; `label` says when."""

    label: str
    completed: int
    failed: int


class Point(msgspec.Struct, frozen=True):
    """A span at one step of time; None where nothing was measured."""

    label: str
    us: int | None


# A page is drawn every second and its charts change by the minute: what was drawn just now is kept.
@lru_cache(maxsize=16)
def bars(series: tuple[Bar, ...]) -> Markup:
    """Draw how much was completed and failed, step by step."""
    top = round_up(max((each.completed + each.failed for each in series), default=0))
    step = WIDTH / max(1, len(series))
    parts = _grid()
    for place, each in enumerate(series):
        parts += _bar(each, place * step, step - _GAP, top)
    completed, failed = sum(each.completed for each in series), sum(each.failed for each in series)
    label = f"Ended over time: {count(completed)} completed, {count(failed)} failed"
    return _framed(series, count(top), stretched(WIDTH, HEIGHT, label, parts))


@lru_cache(maxsize=16)
def curve(series: tuple[Point, ...]) -> Markup:
    """Draw how long a span was, step by step; where nothing was measured there is a gap."""
    known = [each.us for each in series if each.us is not None]
    top = round_up_span(max(known, default=0))
    parts = _grid()
    for run in _runs(series):
        parts += _stretch(run, WIDTH / len(series), top)
    worst = f"at most {spoken(max(known))}" if known else "nothing measured"
    drawn = stretched(WIDTH, HEIGHT, f"Wait over time, {worst}", parts)
    return _framed(series, spoken(top), drawn)


def _framed(series: Sequence[Bar] | Sequence[Point], top: str, drawn: Markup) -> Markup:
    middle = series[len(series) // 2].label
    return _FRAME.format(top=top, drawn=drawn, first=series[0].label, middle=middle)


def _grid() -> list[Markup]:
    heights = [HEIGHT * place / _LINES for place in range(_LINES)]
    return [line(0, y, WIDTH, y) for y in (*heights, HEIGHT)]


@lru_cache(maxsize=512)
def _bar(bar: Bar, x: float, width: float, top: int) -> list[Markup]:
    done, lost = (value / top * HEIGHT for value in (bar.completed, bar.failed))
    title = f"{bar.label}: {count(bar.completed)} completed, {count(bar.failed)} failed"
    parts = []
    if bar.completed:
        parts.append(rect(x, HEIGHT - done, width, done, "completed", title))
    if bar.failed:
        parts.append(rect(x, HEIGHT - done - lost, width, lost, "failed", title))
    return parts


def _stretch(run: Sequence[tuple[int, int]], step: float, top: int) -> list[Markup]:
    points = [((place + 0.5) * step, HEIGHT - us / top * HEIGHT) for place, us in run]
    (first, left), (last, right) = points[0], points[-1]
    points = [(first - step / 2, left), *points, (last + step / 2, right)]
    drawn = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    start, end = number(points[0][0]), number(points[-1][0])
    area = f"M{start} {HEIGHT}L{drawn}L{end} {HEIGHT}Z"
    return [path(area, "under"), path(f"M{drawn}", "curve")]


def _runs(series: Sequence[Point]) -> list[list[tuple[int, int]]]:
    """Return the places that were measured, in runs without a gap."""
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
    """Return the next span that looks round in its own unit."""
    spans_ms = (3, 15, 30, 60, 150, 300, 600)
    spans_s = (1, 2, 3, 6, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 10_800, 43_200, 86_400)
    tops = [*(each * 1_000 for each in spans_ms), *(each * 1_000_000 for each in spans_s)]
    return next((each for each in tops if each >= us), us)

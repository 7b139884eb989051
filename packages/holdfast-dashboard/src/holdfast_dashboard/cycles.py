"""The pages of cycles: all of them, and one with its runs on a time line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from markupsafe import Markup
from starlette.responses import Response

from holdfast.admin.serializers import rfc3339
from holdfast.core.duration import format_span
from holdfast.core.instants import Instant
from holdfast_dashboard.drawing import WIDTH, line, rect, stretched_picture
from holdfast_dashboard.forms import move_named
from holdfast_dashboard.page_context import PageContext, render_page
from holdfast_dashboard.templates import clock, clocks, count, instant_of

SHOWN_RUNS = 100
UNFOLDED_RUNS = 20
MAX_COLUMNS = 8
"""Counters that get a column of their own; if a cycle has more, all of them are in one."""

OUTCOMES = {
    "completed": "completed",
    "running": "running",
    "failed": "failed",
    "crashed": "failed",
    "aborted": "cancelled",
}
"""The colour of an outcome, by its name among those of jobs."""

_LANE, _BAR, _MAX_LANES = 26.0, 18.0, 6
_MIN_WIDTH = 3.0


async def list_all(context: PageContext) -> Response:
    """Show every cycle with its next and latest runs."""
    found = await context.service.cycles.list(context.caller)
    now = found[0].now if found else None
    values = {"cycles": [each.as_json() for each in found], "colours": OUTCOMES}
    return render_page(context, "cycles.html", "Cycles", "cycles", values, now)


async def get(context: PageContext) -> Response:
    """Show a cycle with its runs on a time line."""
    facts = await context.service.cycles.get(
        context.caller, context.request.path_params["name"], SHOWN_RUNS
    )
    cycle = facts.as_json()
    runs = cycle["runs"]
    names = counter_names(runs)
    values = {
        "cycle": cycle,
        "colours": OUTCOMES,
        "unfolded": UNFOLDED_RUNS,
        "timeline": draw_runs(runs, facts.now) if runs else None,
        "names": names if len(names) <= MAX_COLUMNS else [],
        "listed": {each["id"]: counters_text(each["counters"]) for each in runs}
        if len(names) > MAX_COLUMNS
        else None,
    }
    return render_page(context, "cycle.html", cycle["name"], "cycles", values, facts.now)


async def move(context: PageContext) -> Response:
    """Pause, resume or run a cycle."""
    cycles = context.service.cycles
    moves = {"pause": cycles.pause, "resume": cycles.resume, "run_now": cycles.run_now}
    return await move_named(context, moves)


def counter_names(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the counters that any of the runs has, in the order in which runs record them."""
    found: dict[str, None] = {}
    for each in runs:
        found.update({name: None for name, number in each["counters"].items() if number})
    return list(found)


def counters_text(counters: Mapping[str, int | float]) -> str:
    """Return the counters of a run that say something, as a list."""
    return ", ".join(f"{name} {number:,g}" for name, number in counters.items() if number)


class Timeline(msgspec.Struct, frozen=True):
    """Runs drawn over time, the labels of its ends, and how many of them ended how."""

    picture: Markup
    first: str
    middle: str
    outcomes: Mapping[str, int]


def draw_runs(runs: Sequence[Mapping[str, Any]], now: Instant) -> Timeline:
    """Draw runs by start and duration, those at the same time below each other; a title has the details."""
    spans = [(instant_of(each["started_at"]), _end(each, now), each) for each in reversed(runs)]
    first = min(start for start, _, _ in spans)
    last = max(now, *(end for _, end, _ in spans))
    scale = WIDTH / max(1, last - first)
    lanes: list[float] = []
    bars = []
    for start, end, run in spans:
        width = max(_MIN_WIDTH, (end - start) * scale)
        x = min((start - first) * scale, WIDTH - width)
        y = _lane(lanes, x, x + width) * _LANE + (_LANE - _BAR) / 2
        bars.append(rect(x, y, width, _BAR, OUTCOMES[run["outcome"]], title_of(run)))
    height = len(lanes) * _LANE
    grid = [line(0, place * _LANE, WIDTH, place * _LANE) for place in range(len(lanes) + 1)]
    outcomes = Counter(str(each["outcome"]) for each in runs)
    told = ", ".join(f"{count(many)} {outcome}" for outcome, many in outcomes.items())
    picture = stretched_picture(WIDTH, height, f"Runs over time: {told}", [*grid, *bars])
    return Timeline(picture, _label(first), _label((first + last) // 2), outcomes)


def title_of(run: Mapping[str, Any]) -> str:
    """Return what the time line says of a run on hover."""
    took = run["duration_ms"]
    parts = [
        clock(run["started_at"]),
        run["outcome"] if took is None else f"{run['outcome']} in {format_span(took * 1000)}",
        counters_text(run["counters"]),
        run["worker"],
    ]
    return " · ".join(filter(None, parts))


def _end(run: Mapping[str, Any], now: Instant) -> Instant:
    """Return when a run ended; one that is running reaches until now, one that crashed until its last sign."""
    if run["finished_at"] is not None:
        return instant_of(run["finished_at"])
    return now if run["outcome"] == "running" else instant_of(run["seen_at"])


def _lane(lanes: list[float], start: float, end: float) -> int:
    """Return the first lane that is free from `start` on, and take it until `end`."""
    for place, free_from in enumerate(lanes):
        if free_from <= start:
            lanes[place] = end
            return place
    if len(lanes) < _MAX_LANES:
        lanes.append(end)
    return len(lanes) - 1


def _label(at: Instant) -> str:
    return clocks([str(rfc3339(at))])

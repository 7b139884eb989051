"""The overview: one health sentence, figures, and the last hours as charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from holdfast.admin.cycles import CycleFacts
from holdfast.admin.overview import WAIT_LOOK, Overview
from holdfast.admin.serializers import plain, rfc3339, step_starts
from holdfast.commands.health import Health, unreadable_words
from holdfast.core.duration import format_span
from holdfast.core.statistics import STEPS_MS, Window
from holdfast_dashboard.drawing import Point, bars_of, clock_label, draw_bars, draw_curve
from holdfast_dashboard.page_context import PageContext, render_page
from holdfast_dashboard.page_reads import DEAD_LOOK, PageReads

MAX_CYCLES = 6
MAX_PAUSED = 5


async def get(context: PageContext) -> Response:
    """Show the queue now and over the last hours."""
    asked = context.query.get("span", "1h")
    span: Window = asked if asked in STEPS_MS else "1h"
    service = context.service
    board = await service.of(PageReads).board(context.caller, service.overview, span)
    found = board.overview
    values = {
        "health": _health(found),
        "flow": _flow(found),
        "look": WAIT_LOOK,
        "spans": list(STEPS_MS),
        "span": span,
        "dead": board.dead,
        "dead_look": DEAD_LOOK if found.health.totals.failed > DEAD_LOOK else None,
        "cycles": _next_cycles(board.cycles),
    }
    return render_page(context, "overview.html", "Overview", "overview", values, found.health.now)


def tone_of(health: Health) -> str:
    """Return the tone of the sentence about a queue."""
    totals, identity = health.totals, health.identity
    if totals.stuck or health.unhandled or (totals.due and not health.workers):
        return "bad"
    is_paused = (identity is not None and identity.paused) or health.paused
    if is_paused or totals.failed or health.unreadable or not health.workers:
        return "warn"
    return "good"


def _health(found: Overview) -> dict[str, Any]:
    health, totals = found.health, found.health.totals
    return {
        "sentence": found.sentence,
        "tone": tone_of(health),
        "more": "+" if totals.bounded else "",
        "oldest_due_at": rfc3339(totals.oldest_due_at),
        "later": health.later,
        "workers": health.workers,
        "slots": health.slots,
        "silent": health.silent,
        "unreadable": unreadable_words(health.unreadable) if health.unreadable else None,
        "paused": [plain(each) for each in health.paused[:MAX_PAUSED]],
        "more_paused": max(0, len(health.paused) - MAX_PAUSED),
        **{
            name: getattr(totals, name)
            for name in ("due", "running", "blocked", "stuck", "failed", "completed", "cancelled")
        },
    }


def _flow(found: Overview) -> dict[str, Any]:
    steps = step_starts(found.health.now, found.window)
    series = bars_of(found.series, steps)
    waits = {each.at: each.p95_us for each in found.waits}
    points = tuple(Point(clock_label(at), waits.get(at)) for at in steps)
    p95 = found.p95_wait_us
    return {
        "completed": sum(each.completed for each in series),
        "failed": sum(each.failed for each in series),
        "bars": draw_bars(series),
        "curve": draw_curve(points),
        "p95": None if p95 is None else format_span(p95),
    }


def _next_cycles(cycles: Sequence[CycleFacts]) -> list[dict[str, Any]]:
    ordered = sorted(cycles, key=lambda each: (each.cycle.paused, each.next[:1]))
    return [
        {
            "name": each.cycle.name,
            "words": each.words,
            "paused": each.cycle.paused,
            "next_at": rfc3339(each.next[0]) if each.next else None,
        }
        for each in ordered[:MAX_CYCLES]
    ]

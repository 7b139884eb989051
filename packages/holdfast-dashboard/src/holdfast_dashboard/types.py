"""The page of one job type: throughput, errors, how long its jobs ran and waited, the slowest and the latest."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from holdfast.admin.limits import limit_record, read_change
from holdfast.admin.serializers import plain, step_starts, without_payloads
from holdfast.admin.type_statistics import SAMPLE_LOOK, TypeBoard
from holdfast.commands.limits import LimitTarget
from holdfast.core.duration import format_span
from holdfast.core.statistics import STEPS_MS, Window
from holdfast_dashboard.drawing import bars_of, draw_bars
from holdfast_dashboard.forms import caller_with_reason, read_form, redirect_back
from holdfast_dashboard.heat_map import HOUR_US, LEVELS, draw_week
from holdfast_dashboard.page_context import PageContext, render_page

SHOWN_LIMITS, LIMIT_LOOK = 20, 200
"""Limits shown, and the keys among which the fullest are looked for."""

KEY_PAUSE_MS = 600_000

_LIMIT_MOVES = ("set_limit", "pause_key", "resume_key")


async def get(context: PageContext) -> Response:
    """Show a job type."""
    asked = context.query.get("span", "1h")
    span: Window = asked if asked in STEPS_MS else "1h"
    name = context.request.path_params["name"]
    board = await context.service.type_boards.get(context.caller, name, span)
    values = {
        "type": board.facts.as_json(),
        "flow": _flow(board),
        "times": _times(board),
        "sampled": board.sample.size,
        "look": SAMPLE_LOOK,
        "spans": list(STEPS_MS),
        "span": span,
        "slowest": [_finished_row(each) for each in board.sample.slowest],
        "week": _week(board),
        "latest": [without_payloads(each) for each in board.latest],
        "limits": await _limits(context, board),
    }
    return render_page(context, "type.html", name, "types", values, board.facts.now)


async def _limits(context: PageContext, board: TypeBoard) -> list[dict[str, Any]]:
    """Return the limits of the type with its fullest keys, if it has any."""
    facts = board.facts
    if facts.limits is None or not context.caller.may("limit.list"):
        return []
    found = await context.service.limits.list(
        context.caller, facts.totals.type, limit=SHOWN_LIMITS, keys=LIMIT_LOOK
    )
    return [limit_record(each) for each in found]


async def move_limit(context: PageContext) -> Response:
    """Set a limit of a type, or pause or resume a key of it."""
    fields = await read_form(context)
    move, name = fields.choose(_LIMIT_MOVES), fields.need("name")
    caller, limits = caller_with_reason(context, fields), context.service.limits
    if move == "set_limit":
        target = LimitTarget(name, fields.one("key") or None)
        change = read_change(fields.one("limit") or None, fields.one("rate") or None)
        await limits.set(caller, target, change)
    else:
        target = LimitTarget(name, fields.need("key"))
        await limits.rest(caller, target, KEY_PAUSE_MS if move == "pause_key" else 0)
    done = {"set_limit": "set", "pause_key": "pause", "resume_key": "resume"}[move]
    return redirect_back(context, fields, done, subject=fields.one("key") or name)


def _flow(board: TypeBoard) -> dict[str, Any]:
    bars = bars_of(board.series, step_starts(board.facts.now, board.window))
    completed, failed = sum(each.completed for each in bars), sum(each.failed for each in bars)
    rate = board.error_rate
    return {
        "bars": draw_bars(bars),
        "completed": completed,
        "failed": failed,
        "retried": sum(each.retried for each in board.series),
        "per_minute": f"{(completed + failed) * 60_000 / STEPS_MS[board.window][0]:,.1f}",
        "error_rate": None if rate is None else f"{rate:.1%}",
    }


def _week(board: TypeBoard) -> dict[str, Any]:
    now = board.facts.now
    drawn, words = draw_week(board.sample.week, now - now % HOUR_US)
    return {"map": drawn, "words": words, "levels": range(LEVELS + 1)}


def _times(board: TypeBoard) -> dict[str, dict[str, str]]:
    return {
        word: {name: "–" if us is None else format_span(us) for name, us in found.items()}
        for word, found in board.sample.times.items()
    }


def _finished_row(job: Any) -> dict[str, Any]:
    spans = {"ran": job.ran_us, "waited": job.waited_us}
    return plain(job) | {name: "–" if us is None else format_span(us) for name, us in spans.items()}

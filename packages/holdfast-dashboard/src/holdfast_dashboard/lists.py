"""The pages that list dead letters, types and workers, and the forms that act on one of them."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from holdfast.admin.jobs import GROUPED, per_second
from holdfast.core.statistics import TypePace
from holdfast_dashboard.forms import caller_with_reason, move_named, read_form, redirect_back
from holdfast_dashboard.page_context import PageContext, render_page
from holdfast_dashboard.page_reads import PACE_MS, PageReads


async def list_dead_letters(context: PageContext) -> Response:
    """Show groups of dead letters."""
    groups = await context.service.dead_letters.groups(context.caller)
    values = {
        "groups": groups.items,
        "cut": groups.cut,
        "look": GROUPED,
        "redrives": groups.redrives,
    }
    return render_page(context, "dead_letters.html", "Dead letters", "dead", values)


async def move_dead_letters(context: PageContext) -> Response:
    """Redrive the dead letters of one group, optionally at a rate, or drop them."""
    fields = await read_form(context)
    caller, filter = caller_with_reason(context, fields), fields.need("filter")
    letters = context.service.dead_letters
    done = fields.choose(("redrive", "drop"))
    if done == "drop":
        report = await letters.drop(caller, filter=filter)
    else:
        rate = fields.one("rate")
        report = await letters.redrive(
            caller, filter=filter, rate=per_second(rate) if rate else None
        )
        done = "redrive_at_rate" if rate else done
    return redirect_back(context, fields, done, len(report.ids), more=report.more)


PAGE_LENGTH = 100
SHOWN_WORKERS = 100


async def list_types(context: PageContext) -> Response:
    """Show types by name: depth, age, rate, and whether any worker handles them."""
    found = await context.service.types.list(context.caller)
    now = found[0].now if found else None
    name, after = context.query.get("name", "").strip(), context.query.get("after", "")
    known = {each.totals.type: each for each in found}
    wanted = sorted(each for each in known if name in each and each > after)
    chosen = wanted[:PAGE_LENGTH]
    paces = await context.service.of(PageReads).paces(context.caller)
    values = {
        "name": name,
        "types": [{**known[each].as_json(), **_pace(paces.get(each))} for each in chosen],
        "next": context.here(after=chosen[-1]) if len(wanted) > len(chosen) else None,
    }
    return render_page(context, "types.html", "Types", "types", values, now)


def _pace(pace: TypePace | None) -> dict[str, Any]:
    if pace is None or pace.ended == 0:
        return {"running": pace.running if pace else 0, "rate": None}
    per_minute = pace.ended * 60_000 / PACE_MS
    return {"running": pace.running, "rate": f"{per_minute:,.1f}/min"}


async def move_type(context: PageContext) -> Response:
    """Pause or resume a type."""
    types = context.service.types
    return await move_named(context, {"pause": types.pause, "resume": types.resume})


async def list_workers(context: PageContext) -> Response:
    """Show active workers, or stopped ones too."""
    include_stopped = context.query.get("all") == "yes"
    found = await context.service.workers.list(context.caller, include_stopped, SHOWN_WORKERS + 1)
    now = found[0].now if found else None
    values = {
        "workers": [each.as_json() for each in found[:SHOWN_WORKERS]],
        "cut": len(found) > SHOWN_WORKERS,
        "include_stopped": include_stopped,
    }
    return render_page(context, "workers.html", "Workers", "workers", values, now)


async def move_worker(context: PageContext) -> Response:
    """Drain a worker."""
    return await move_named(context, {"drain": context.service.workers.drain})

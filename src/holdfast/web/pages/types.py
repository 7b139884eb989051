"""The page of job types, and pausing them."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from holdfast.admin.types import PACE_MS
from holdfast.core.records import TypePace
from holdfast.web.pages.forms import move_named
from holdfast.web.pages.page_context import PageContext, render_page

PAGE_LENGTH = 100


async def list_page(context: PageContext) -> Response:
    """Show types by name: depth, age, rate, and whether any worker handles them."""
    found = await context.service.types.list(context.caller)
    now = found[0].now if found else None
    name, after = context.query.get("name", "").strip(), context.query.get("after", "")
    known = {each.totals.type: each for each in found}
    wanted = sorted(each for each in known if name in each and each > after)
    chosen = wanted[:PAGE_LENGTH]
    paces = await context.service.types.paces(context.caller)
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


async def move(context: PageContext) -> Response:
    """Pause or resume a type."""
    types = context.service.types
    return await move_named(context, {"pause": types.pause, "resume": types.resume})

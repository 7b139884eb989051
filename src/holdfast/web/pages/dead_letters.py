"""The page of dead letters by type and error, and redriving or dropping them."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.admin.jobs import per_second
from holdfast.client.pagination import LOOK
from holdfast.web.pages.forms import caller_with_reason, read_form, redirect_back
from holdfast.web.pages.page_context import PageContext, render_page


async def list_page(context: PageContext) -> Response:
    """Show groups of dead letters."""
    groups = await context.service.dead_letters.groups(context.caller)
    values = {"groups": groups.items, "cut": groups.cut, "look": LOOK}
    return render_page(context, "dead_letters.html", "Dead letters", "dead", values)


async def move(context: PageContext) -> Response:
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
    return redirect_back(context, fields, done, len(report.ids), more=report.more)

"""The page of groups, and how far a group is on the page of the job that follows it."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from holdfast.client.start_options import id_text
from holdfast_dashboard.forms import caller_with_reason, read_form, redirect_back
from holdfast_dashboard.page_context import PageContext, render_page
from holdfast_groups.admin import GroupAdmin, progress_json, summary_json

PAGE = 50


async def list_page(context: PageContext) -> Response:
    """Show the newest groups, or those before one of them."""
    before = context.query.get("after", "")
    admin = context.service.of(GroupAdmin)
    found = await admin.list(context.caller, PAGE + 1, id_text(before) if before else None)
    shown = found[:PAGE]
    values = {
        "groups": [summary_json(each) for each in shown],
        "next": context.here(after=shown[-1].id) if len(found) > PAGE else None,
    }
    return render_page(context, "groups.html", "Groups", "groups", values)


async def change(context: PageContext) -> Response:
    """Cancel what has not ended of a group, and what follows it."""
    fields = await read_form(context)
    fields.choose(("cancel",))
    group = id_text(fields.need("id"))
    caller = caller_with_reason(context, fields)
    count = await context.service.of(GroupAdmin).cancel(caller, group)
    return redirect_back(context, fields, "cancel_group", moved=count, subject=group)


async def group_card(
    context: PageContext, job: dict[str, Any]
) -> tuple[str, dict[str, Any]] | None:
    """Return the card with how far the group is that a job follows, if it follows one."""
    if not context.caller.may("group.list"):
        return None
    progress = await context.service.of(GroupAdmin).get(context.caller, job["id"])
    if not progress.total:
        return None
    return "group_card.html", progress_json(job["id"], progress)


PAGES = (
    ("GET", "/groups", ("group.list",), list_page),
    ("POST", "/groups", ("group.cancel",), change),
)
CARDS = (group_card,)

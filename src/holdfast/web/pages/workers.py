"""The page of workers, and draining them."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.web.pages.forms import move_named
from holdfast.web.pages.page_context import PageContext, render_page


async def list_page(context: PageContext) -> Response:
    """Show active workers, or stopped ones too."""
    include_stopped = context.query.get("all") == "yes"
    found = await context.service.workers.list(context.caller, include_stopped)
    now = found[0].now if found else None
    values = {
        "workers": [each.as_json() for each in found],
        "include_stopped": include_stopped,
    }
    return render_page(context, "workers.html", "Workers", "workers", values, now)


async def move(context: PageContext) -> Response:
    """Drain a worker."""
    return await move_named(context, {"drain": context.service.workers.drain})

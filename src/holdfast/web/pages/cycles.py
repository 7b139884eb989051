"""The page of cycles, and pausing or running them."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.web.pages.forms import move_named
from holdfast.web.pages.page_context import PageContext, render_page


async def list_page(context: PageContext) -> Response:
    """Show every cycle with its next and latest runs."""
    found = await context.service.cycles.list(context.caller)
    now = found[0].now if found else None
    values = {"cycles": [each.as_json() for each in found]}
    return render_page(context, "cycles.html", "Cycles", "cycles", values, now)


async def move(context: PageContext) -> Response:
    """Pause, resume or run a cycle."""
    cycles = context.service.cycles
    moves = {"pause": cycles.pause, "resume": cycles.resume, "run_now": cycles.run_now}
    return await move_named(context, moves)

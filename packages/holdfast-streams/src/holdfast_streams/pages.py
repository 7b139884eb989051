"""The page of streams: readers, and their lag per line."""

from __future__ import annotations

from starlette.responses import Response

from holdfast_dashboard.forms import caller_with_reason, read_form, redirect_back
from holdfast_dashboard.page_context import PageContext, render_page
from holdfast_streams.admin import StreamAdmin, stream_json
from holdfast_streams.inbox.inbox_pages import PAGES as INBOX_PAGES
from holdfast_streams.inbox.inbox_pages import inbox_values

COLOURS = {"running": "running", "paused": "pending", "blocked": "failed", "idle": "failed"}
"""The colour of a state, by its name among those of jobs."""


async def list_page(context: PageContext) -> Response:
    """Show every reader, with its lag per line."""
    facts = await context.service.of(StreamAdmin).list(context.caller)
    values = {"streams": [stream_json(each) for each in facts], "colours": COLOURS}
    values |= await inbox_values(context)
    now = facts[0].now if facts else None
    return render_page(context, "streams.html", "Streams", "streams", values, now)


async def change(context: PageContext) -> Response:
    """Pause or resume a reader, or act on what it parked."""
    fields = await read_form(context)
    chosen = fields.choose(("pause", "resume", "retry", "skip", "rebase", "recreate"))
    caller, admin = caller_with_reason(context, fields), context.service.of(StreamAdmin)
    name = fields.need("name")
    await getattr(admin, chosen)(caller, name)
    noun = "stream" if chosen in ("pause", "resume", "rebase", "recreate") else "parked"
    return redirect_back(context, fields, f"{chosen}_{noun}", subject=name)


PAGES = (
    ("GET", "/streams", ("stream.list",), list_page),
    (
        "POST",
        "/streams",
        tuple(
            f"stream.{verb}" for verb in ("pause", "resume", "retry", "skip", "rebase", "recreate")
        ),
        change,
    ),
    *INBOX_PAGES,
)

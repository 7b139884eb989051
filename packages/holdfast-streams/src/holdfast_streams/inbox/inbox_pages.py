"""Inboxes on the page of streams: their brokers, and parked messages."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from holdfast_dashboard.forms import caller_with_reason, read_form, redirect_back
from holdfast_dashboard.page_context import PageContext
from holdfast_streams.inbox.inbox_admin import InboxAdmin, inbox_json

COLOURS = {"open": "running", "running": "running", "idle": "pending", "away": "failed"}
"""The colour of a state, by its name among those of jobs."""


async def inbox_values(context: PageContext) -> dict[str, Any]:
    """Return what the section of inboxes shows."""
    found = await context.service.of(InboxAdmin).list(context.caller)
    return {"inboxes": [inbox_json(each) for each in found], "inbox_colours": COLOURS}


async def change(context: PageContext) -> Response:
    """Act on what an inbox parked."""
    fields = await read_form(context)
    chosen = fields.choose(("retry", "skip"))
    caller, name = caller_with_reason(context, fields), fields.need("name")
    await getattr(context.service.of(InboxAdmin), chosen)(caller, name)
    return redirect_back(context, fields, f"{chosen}_inbox", subject=name)


PAGES = (("POST", "/streams/inbox", ("inbox.retry", "inbox.skip"), change),)

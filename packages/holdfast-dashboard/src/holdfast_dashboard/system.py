"""The audit log, the system page with its subscriptions, and the tail."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from holdfast.admin.access import Caller
from holdfast.admin.serializers import rfc3339
from holdfast.core.errors import QueryError
from holdfast.core.filters import parse_filter
from holdfast.core.lifecycle import STATES
from holdfast.core.subscriptions import Subscription
from holdfast.scheduler.doctor.checks import read_server
from holdfast_dashboard.forms import FormFields, caller_with_reason, read_form, redirect_back
from holdfast_dashboard.page_context import PageContext, render_page

PAGE_LENGTH = 50
REPLAY_S = 5.0
SHOWN_IDS = 20
_AUDIT_FILTERS = ("actor", "action", "target")


async def list_audit(context: PageContext) -> Response:
    """Show changes and who made them."""
    chosen = {name: context.query.get(name, "").strip() for name in _AUDIT_FILTERS}
    wanted = {name: value or None for name, value in chosen.items()}
    page = await context.service.audit.page(
        context.caller, PAGE_LENGTH, context.query.get("after") or None, **wanted
    )
    next = page.next and context.here(after=page.next)
    values = {"entries": [_brief(each) for each in page.items], "next": next, **chosen}
    return render_page(context, "audit.html", "Audit", "audit", values)


def _brief(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with few of the ids of a bulk action; the API has more."""
    after = entry["after"]
    if not isinstance(after, dict) or len(after.get("ids", ())) <= SHOWN_IDS:
        return entry
    return {**entry, "after": {**after, "ids": [*after["ids"][:SHOWN_IDS], "…"]}}


async def get(context: PageContext) -> Response:
    """Show the installation."""
    subscriptions = await context.service.subscriptions.list(context.caller)
    overview = context.service.overview
    # Both need what the server says of itself, which is asked once.
    server = await read_server(context.service.app.database)
    system, findings = await asyncio.gather(
        overview.system(context.caller, server), overview.findings(context.caller, server)
    )
    values = {
        "replay": {name: context.query.get(f"replay_{name}", "") for name in ("type", "since")},
        "system": system,
        "findings": findings,
        "subscriptions": [each.as_json() for each in subscriptions],
    }
    return render_page(context, "system.html", "System", "system", values)


async def move_subscription(context: PageContext) -> Response:
    """Remove a subscription, or replay stored events to its handler."""
    fields = await read_form(context)
    caller = caller_with_reason(context, fields)
    if fields.choose(("remove", "replay")) == "replay":
        return await _replay(context, fields, caller)
    event, handler = fields.need("event"), fields.need("handler")
    await context.service.subscriptions.remove(caller, event, handler)
    return redirect_back(context, fields, "remove_subscription")


async def _replay(context: PageContext, fields: FormFields, caller: Caller) -> Response:
    """Replay for as long as people wait for a page; its form then continues where this ended."""
    type, since = fields.need("type"), fields.need("since")
    event, _, handler = type.partition("/")
    after, copied = None, 0
    until = monotonic() + REPLAY_S
    while True:
        batch = await context.service.subscriptions.replay(
            caller, Subscription(event, handler), since, after
        )
        after, copied = batch.last, copied + batch.copied
        if batch.is_last:
            return redirect_back(context, fields, "replay", copied)
        if monotonic() >= until:
            break
    reached = rfc3339(batch.reached) or ""
    query = urlencode({"replay_type": type, "replay_since": reached})
    rest = FormFields({"back": [f"{context.url('/system')}?{query}"]})
    return redirect_back(context, rest, "replay_part", copied, more=True, subject=reached)


async def tail(context: PageContext) -> Response:
    """Show the stream of changes; a script fills it, unless the filter is invalid."""
    text = context.query.get("filter", "").strip()
    refusal = None
    try:
        parse_filter(text)
    except QueryError as error:
        refusal = error
    values = {"filter": text, "refusal": refusal, "states": STATES}
    return render_page(context, "tail.html", "Tail", "tail", values, status=400 if refusal else 200)

"""The audit log, the system with its subscriptions, and the tail."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.core.errors import QueryError
from holdfast.core.filters import parse_filter
from holdfast.web.pages.bulk import caller_of
from holdfast.web.pages.forms import led_back, read_fields
from holdfast.web.pages.page_context import Visit, show

PAGE_LENGTH = 50
_NARROWED = ("actor", "action", "target")


async def audit(visit: Visit) -> Response:
    """Show who did what."""
    chosen = {name: visit.query.get(name, "").strip() for name in _NARROWED}
    wanted = {name: value or None for name, value in chosen.items()}
    page = await visit.service.audit.page(
        visit.caller, PAGE_LENGTH, visit.query.get("after") or None, **wanted
    )
    next = page.next and visit.here(after=page.next)
    values = {"deeds": page.items, "next": next, **chosen}
    return show(visit, "audit.html", "Audit", "audit", values)


async def system(visit: Visit) -> Response:
    """Show what this installation is made of."""
    found = await visit.service.overview.system(visit.caller)
    findings = await visit.service.doctor.findings(visit.caller)
    subscriptions = await visit.service.subscriptions.list(visit.caller)
    shown = [each.as_json() for each in subscriptions]
    values = {"system": found, "findings": findings, "subscriptions": shown}
    return show(visit, "system.html", "System", "system", values)


async def move_subscription(visit: Visit) -> Response:
    """Remove a subscription."""
    fields = await read_fields(visit)
    event, handler = fields.need("event"), fields.need("handler")
    await visit.service.subscriptions.remove(caller_of(visit, fields), event, handler)
    return led_back(visit, fields, "remove")


async def tail(visit: Visit) -> Response:
    """Show the stream of what happens; a script fills it, unless the filter cannot be understood."""
    text = visit.query.get("filter", "").strip()
    refusal = None
    try:
        parse_filter(text)
    except QueryError as error:
        refusal = error
    values = {"filter": text, "refusal": refusal}
    return show(visit, "tail.html", "Tail", "tail", values, status=400 if refusal else 200)

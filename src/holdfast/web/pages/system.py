"""The audit log, the system page with its subscriptions, and the tail."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.core.errors import QueryError
from holdfast.core.filters import parse_filter
from holdfast.core.lifecycle import STATES
from holdfast.web.pages.forms import caller_with_reason, read_form, redirect_back
from holdfast.web.pages.page_context import PageContext, render_page

PAGE_LENGTH = 50
_AUDIT_FILTERS = ("actor", "action", "target")


async def list_audit(context: PageContext) -> Response:
    """Show changes and who made them."""
    chosen = {name: context.query.get(name, "").strip() for name in _AUDIT_FILTERS}
    wanted = {name: value or None for name, value in chosen.items()}
    page = await context.service.audit.page(
        context.caller, PAGE_LENGTH, context.query.get("after") or None, **wanted
    )
    next = page.next and context.here(after=page.next)
    values = {"entries": page.items, "next": next, **chosen}
    return render_page(context, "audit.html", "Audit", "audit", values)


async def get(context: PageContext) -> Response:
    """Show the installation."""
    subscriptions = await context.service.subscriptions.list(context.caller)
    values = {
        "system": await context.service.overview.system(context.caller),
        "findings": await context.service.overview.findings(context.caller),
        "subscriptions": [each.as_json() for each in subscriptions],
    }
    return render_page(context, "system.html", "System", "system", values)


async def remove_subscription(context: PageContext) -> Response:
    """Remove a subscription."""
    fields = await read_form(context)
    event, handler = fields.need("event"), fields.need("handler")
    await context.service.subscriptions.remove(caller_with_reason(context, fields), event, handler)
    return redirect_back(context, fields, "remove_subscription")


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

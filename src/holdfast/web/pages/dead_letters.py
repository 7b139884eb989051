"""Dead letters by type and kind of error."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.admin.dead_letters import LOOK, per_second
from holdfast.web.pages.bulk import caller_of
from holdfast.web.pages.forms import led_back, read_fields
from holdfast.web.pages.page_context import Visit, show


async def dead(visit: Visit) -> Response:
    """Show dead letters by their kind."""
    groups = await visit.service.dead_letters.groups(visit.caller)
    values = {"groups": groups.items, "cut": groups.cut, "look": LOOK}
    return show(visit, "dead.html", "Dead letters", "dead", values)


async def move_dead(visit: Visit) -> Response:
    """Redrive dead letters of one kind, at a rate if told, or drop them."""
    fields = await read_fields(visit)
    caller, filter = caller_of(visit, fields), fields.need("filter")
    letters = visit.service.dead_letters
    if fields.one("move") == "drop":
        done = await letters.drop(caller, filter=filter)
        return led_back(visit, fields, "drop", len(done.ids), more=done.more)
    rate = fields.one("rate")
    done = await letters.redrive(caller, filter=filter, rate=per_second(rate) if rate else None)
    return led_back(visit, fields, "redrive", len(done.ids), more=done.more)

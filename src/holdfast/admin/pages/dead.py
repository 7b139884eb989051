"""Dead letters by type and kind of error."""

from __future__ import annotations

import re

from starlette.responses import Response

from holdfast.admin.pages.fields import led_back, read_fields
from holdfast.admin.pages.moving import caller_of
from holdfast.admin.pages.visit import Visit, show
from holdfast.core.errors import InvalidOption
from holdfast.service.dead import LOOK

_RATE = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,3})?)(?:/(s|m|h))?")
_SECONDS = {"s": 1, "m": 60, "h": 3_600}


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
    done = await letters.redrive(caller, filter=filter, rate=_rate(fields.one("rate")))
    return led_back(visit, fields, "redrive", len(done.ids), more=done.more)


def _rate(text: str) -> float | None:
    """Read a rate as jobs a second; an empty text means all at once. Raises: InvalidOption."""
    if not text:
        return None
    match = _RATE.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise InvalidOption(f"{text[:20]!r} is not a rate", help="write one like 50/s or 10/m")
    return float(match[1]) / _SECONDS[match[2] or "s"]

"""Types, workers and cycles: what there is, and switching it on and off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.responses import Response

from holdfast.admin.authorize import Caller
from holdfast.admin.types import PACE_MS
from holdfast.core.errors import InvalidOption
from holdfast.core.records import TypePace
from holdfast.web.pages.bulk import caller_of
from holdfast.web.pages.forms import Fields, led_back, read_fields
from holdfast.web.pages.page_context import Visit, show

PAGE_LENGTH = 100

Switch = Callable[[Caller, str], Awaitable[Any]]


async def types(visit: Visit) -> Response:
    """Show types by their names: how deep, how old, how fast, and whether anybody handles them."""
    found = await visit.service.types.list(visit.caller)
    now = found[0].now if found else None
    name, after = visit.query.get("name", "").strip(), visit.query.get("after", "")
    known = {each.totals.type: each for each in found}
    wanted = sorted(each for each in known if name in each and each > after)
    chosen = wanted[:PAGE_LENGTH]
    paces = await visit.service.types.paces(visit.caller)
    values = {
        "name": name,
        "types": [{**known[each].as_json(), **_pace(paces.get(each))} for each in chosen],
        "next": visit.here(after=chosen[-1]) if len(wanted) > len(chosen) else None,
    }
    return show(visit, "types.html", "Types", "types", values, now)


def _pace(pace: TypePace | None) -> dict[str, Any]:
    if pace is None or pace.ended == 0:
        return {"running": pace.running if pace else 0, "rate": None}
    per_minute = pace.ended * 60_000 / PACE_MS
    return {"running": pace.running, "rate": f"{per_minute:,.1f}/min"}


async def workers(visit: Visit) -> Response:
    """Show who works, and those who stopped when asked for."""
    everyone = visit.query.get("all") == "yes"
    found = await visit.service.workers.list(visit.caller, everyone)
    now = found[0].now if found else None
    values = {"workers": [each.as_json() for each in found], "everyone": everyone}
    return show(visit, "workers.html", "Workers", "workers", values, now)


async def cycles(visit: Visit) -> Response:
    """Show every cycle with its next and last runs."""
    found = await visit.service.cycles.list(visit.caller)
    now = found[0].now if found else None
    values = {"cycles": [each.as_json() for each in found]}
    return show(visit, "cycles.html", "Cycles", "cycles", values, now)


async def move_type(visit: Visit) -> Response:
    """Pause or resume a type."""
    desk = visit.service.types
    return await _switched(visit, {"pause": desk.pause, "resume": desk.resume})


async def move_worker(visit: Visit) -> Response:
    """Ask a worker to drain."""
    return await _switched(visit, {"drain": visit.service.workers.drain})


async def move_cycle(visit: Visit) -> Response:
    """Pause, resume or run a cycle."""
    desk = visit.service.cycles
    moves: dict[str, Switch] = {
        "pause": desk.pause,
        "resume": desk.resume,
        "run_now": desk.run_now,
    }
    return await _switched(visit, moves)


async def _switched(visit: Visit, moves: dict[str, Switch]) -> Response:
    fields = await read_fields(visit)
    move = fields.one("move")
    if move not in moves:
        raise InvalidOption(f"{move[:40]!r} is not one of {', '.join(moves)}")
    await moves[move](caller_of(visit, fields), _name(fields))
    return led_back(visit, fields, move)


def _name(fields: Fields) -> str:
    return fields.need("name")

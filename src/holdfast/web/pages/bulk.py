"""Moves of many jobs: those named, or the part of what a filter finds that begins at a cursor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from starlette.responses import Response

from holdfast.admin.authorize import Caller
from holdfast.admin.jobs import Moved
from holdfast.core.errors import InvalidOption, JobNotFound, WrongState
from holdfast.web.pages.forms import Fields, led_back
from holdfast.web.pages.page_context import Visit

BATCH = 100

Make = Callable[[Caller, Sequence[str]], Awaitable[Moved]]


def caller_of(visit: Visit, fields: Fields) -> Caller:
    """Return who asks, with the reason that the form gives."""
    return replace(visit.caller, reason=fields.one("reason") or None)


async def move(visit: Visit, fields: Fields, moves: Mapping[str, Make]) -> Response:
    """Move jobs and tell how many; among several, those in another state are left alone."""
    wanted = fields.one("move")
    make = moves.get(wanted)
    if make is None:
        raise InvalidOption(f"{wanted[:40]!r} is not one of {', '.join(moves)}")
    ids, next = await _chosen(visit, fields)
    try:
        done = await make(caller_of(visit, fields), ids) if ids else Moved([], [])
    except (WrongState, JobNotFound):
        if len(ids) == 1 and not fields.one("everything"):
            raise
        done = Moved([], list(ids))
    return led_back(visit, fields, wanted, len(done.moved), len(done.left), next)


async def _chosen(visit: Visit, fields: Fields) -> tuple[Sequence[str], str | None]:
    if not fields.one("everything"):
        return fields.all("id"), None
    after = fields.one("after") or None
    page = await visit.service.jobs.page(visit.caller, fields.one("filter"), BATCH, after)
    return [each["id"] for each in page.items], page.next

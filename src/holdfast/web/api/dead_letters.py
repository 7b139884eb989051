"""Dead letters over HTTP."""

from __future__ import annotations

import msgspec

from holdfast.web.bound_request import Call
from holdfast.web.route import LIMIT, Answer, Route

_TAG = "dead letters"


class Redrive(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dead letters by ids or by a filter, and how many a second become due."""

    ids: list[str] = []
    filter: str | None = None
    rate: float | None = None
    reason: str | None = None


class Drop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dead letters by ids or by a filter."""

    ids: list[str] = []
    filter: str | None = None
    reason: str | None = None


async def groups(call: Call) -> Answer:
    """List groups."""
    return Answer(await call.service.dead_letters.groups(call.caller, call["limit"]))


async def redrive(call: Call) -> Answer:
    """Redrive dead letters."""
    wanted: Redrive = call.body
    return Answer(
        await call.service.dead_letters.redrive(call.caller, wanted.ids, wanted.filter, wanted.rate)
    )


async def drop(call: Call) -> Answer:
    """Drop dead letters."""
    wanted: Drop = call.body
    return Answer(await call.service.dead_letters.drop(call.caller, wanted.ids, wanted.filter))


ROUTES = (
    Route(
        "GET",
        "/api/v1/dead-letters",
        "dead.list",
        groups,
        "List dead letters by type and kind of error, the largest group first.",
        (LIMIT,),
        tag=_TAG,
    ),
    Route(
        "POST",
        "/api/v1/dead-letters/redrive",
        "dead.redrive",
        redrive,
        "Take dead letters back into the queue, at a rate if told.",
        body=Redrive,
        tag=_TAG,
    ),
    Route(
        "POST",
        "/api/v1/dead-letters/drop",
        "dead.drop",
        drop,
        "Delete dead letters with their chains; those that other jobs wait for are left alone.",
        body=Drop,
        tag=_TAG,
    ),
)

"""Dead letters over HTTP."""

from __future__ import annotations

import msgspec

from holdfast.web.route import LIMIT, ApiResponse, BoundRequest, Route


class RedriveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dead letters by ids or filter, and how many become due per second."""

    ids: list[str] = []
    filter: str | None = None
    rate: float | None = None
    reason: str | None = None


class DropRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dead letters by ids or filter."""

    ids: list[str] = []
    filter: str | None = None
    reason: str | None = None


async def groups(request: BoundRequest) -> ApiResponse:
    """List dead letters grouped by type and error, largest group first."""
    return ApiResponse(await request.service.dead_letters.groups(request.caller, request["limit"]))


async def redrive(request: BoundRequest) -> ApiResponse:
    """Re-queue dead letters, optionally at a limited rate; their history is kept."""
    wanted: RedriveRequest = request.body
    return ApiResponse(
        await request.service.dead_letters.redrive(
            request.caller, wanted.ids, wanted.filter, wanted.rate
        )
    )


async def drop(request: BoundRequest) -> ApiResponse:
    """Delete dead letters with their chains; those that other jobs wait for are skipped."""
    wanted: DropRequest = request.body
    return ApiResponse(
        await request.service.dead_letters.drop(request.caller, wanted.ids, wanted.filter)
    )


ROUTES = (
    Route("GET", "/api/v1/dead-letters", "dead.list", groups, (LIMIT,)),
    Route("POST", "/api/v1/dead-letters/redrive", "dead.redrive", redrive, body=RedriveRequest),
    Route("POST", "/api/v1/dead-letters/drop", "dead.drop", drop, body=DropRequest),
)

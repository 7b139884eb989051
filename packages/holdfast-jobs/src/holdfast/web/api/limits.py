"""Limits of the whole fleet over HTTP."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.admin.limits import read_change, shown_limit
from holdfast.commands.limits import LimitChange, LimitTarget
from holdfast.core.duration import milliseconds
from holdfast.web.route import LIMIT, ApiResponse, BoundRequest, Param, Route


class LimitNumbers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A limit to set: for one key, for each key or for all jobs together; "default" returns to the code's number."""

    key: str | None = None
    scope: Literal["each", "total"] | None = None
    limit: int | Literal["default"] | None = None
    rate: str | None = None
    reason: str | None = None

    def change(self) -> LimitChange:
        """Return the numbers. Raises: InvalidOption, InvalidDuration."""
        return read_change(None if self.limit is None else str(self.limit), self.rate)


class LimitPause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long no job of a key starts; 0 ends that."""

    duration: str
    key: str | None = None
    reason: str | None = None


async def list_all(request: BoundRequest) -> ApiResponse:
    """List limits, the fullest keys of each type first."""
    found = await request.service.limits.list(
        request.caller, request["type"], full=request["full"], limit=request["limit"]
    )
    return ApiResponse({"items": [shown_limit(each) for each in found]})


async def change(request: BoundRequest) -> ApiResponse:
    """Override a limit while workers run."""
    body: LimitNumbers = request.body
    target = LimitTarget(request["type"], body.key, body.scope)
    return ApiResponse(await request.service.limits.set(request.caller, target, body.change()))


async def rest(request: BoundRequest) -> ApiResponse:
    """Pause one key for a while, on all workers."""
    body: LimitPause = request.body
    target = LimitTarget(request["type"], body.key)
    ms = milliseconds(body.duration)
    return ApiResponse(await request.service.limits.rest(request.caller, target, ms))


_OWNER = Param("type", "path", text="The job type's name, or `@name` of a shared limit.")
_TYPE = Param("type", "query", text="Only limits of this job type.")
_FULL = Param("full", "query", "flag", "Only limits that are holding jobs back.", False)

ROUTES = (
    Route("GET", "/api/v1/limits", "limit.list", list_all, (_TYPE, _FULL, LIMIT), answers=(404,)),
    Route("POST", "/api/v1/limits/{type:path}/rest", "limit.rest", rest, (_OWNER,), LimitPause),
    Route("PATCH", "/api/v1/limits/{type:path}", "limit.set", change, (_OWNER,), LimitNumbers),
)

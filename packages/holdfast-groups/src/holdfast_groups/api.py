"""Groups over HTTP."""

from __future__ import annotations

from holdfast.client.start_options import id_text
from holdfast.web.route import LIMIT, ApiResponse, BoundRequest, Param, Route, command
from holdfast_groups.admin import GroupAdmin, progress_json, summary_json


async def list_all(request: BoundRequest) -> ApiResponse:
    """List the newest groups; `before` continues behind the last one."""
    before = id_text(request["before"]) if request["before"] else None
    admin = request.service.of(GroupAdmin)
    found = await admin.list(request.caller, request["limit"], before)
    return ApiResponse({"items": [summary_json(each) for each in found]})


async def get(request: BoundRequest) -> ApiResponse:
    """Show how far a group is."""
    group = id_text(request["id"])
    found = await request.service.of(GroupAdmin).get(request.caller, group)
    return ApiResponse(progress_json(group, found))


async def cancel(request: BoundRequest) -> ApiResponse:
    """Cancel what has not ended of a group, and what follows it."""
    group = id_text(request["id"])
    count = await request.service.of(GroupAdmin).cancel(request.caller, group)
    return ApiResponse({"id": group, "cancelled": count})


_ID = Param("id", "path", text="The chain that `groups.start` returned.")
_ONE = "/api/v1/groups/{id}"

_BEFORE = Param("before", "query", text="Only groups older than this one.")

ROUTES = (
    Route("GET", "/api/v1/groups", "group.list", list_all, (LIMIT, _BEFORE), other_noun="group"),
    Route("GET", _ONE, "group.list", get, (_ID,), other_noun="group"),
    command(f"{_ONE}/cancel", "group.cancel", cancel, _ID, other_noun="group"),
)

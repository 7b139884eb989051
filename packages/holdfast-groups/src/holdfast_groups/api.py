"""Groups over HTTP."""

from __future__ import annotations

from holdfast.client.start_options import id_text
from holdfast.web.route import ApiResponse, BoundRequest, Param, Route, command
from holdfast_groups.admin import GroupAdmin, progress_json


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

ROUTES = (
    Route("GET", _ONE, "group.list", get, (_ID,), other_noun="group"),
    command(f"{_ONE}/cancel", "group.cancel", cancel, _ID, other_noun="group"),
)

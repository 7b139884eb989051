"""Cycles over HTTP."""

from __future__ import annotations

from holdfast.admin.cycles import shown_run
from holdfast.web.route import LIMIT, ApiResponse, BoundRequest, Param, Route, command


async def list_all(request: BoundRequest) -> ApiResponse:
    """List cycles."""
    found = await request.service.cycles.list(request.caller)
    return ApiResponse({"items": [each.as_json() for each in found]})


async def runs(request: BoundRequest) -> ApiResponse:
    """List the latest runs of a cycle, or of all cycles and ticks, with their counters."""
    found = await request.service.cycles.runs(request.caller, request["name"], request["limit"])
    return ApiResponse({"items": [shown_run(each) for each in found]})


async def pause(request: BoundRequest) -> ApiResponse:
    """Pause a cycle."""
    await request.service.cycles.pause(request.caller, request["name"])
    return ApiResponse({"name": request["name"], "paused": True})


async def resume(request: BoundRequest) -> ApiResponse:
    """Resume a cycle."""
    await request.service.cycles.resume(request.caller, request["name"])
    return ApiResponse({"name": request["name"], "paused": False})


async def run_now(request: BoundRequest) -> ApiResponse:
    """Run a cycle at the next tick, even if paused."""
    await request.service.cycles.run_now(request.caller, request["name"])
    return ApiResponse({"name": request["name"], "requested": True}, 202)


# The name of a shard has a slash.
_CYCLE = Param(
    "name", "path", text="The cycle's name, which means all its shards, or that of one of them."
)

ROUTES = (
    Route("GET", "/api/v1/cycles", "cycle.list", list_all),
    Route(
        "GET",
        "/api/v1/cycles/runs",
        "cycle.list",
        runs,
        (Param("name", "query", text="The cycle's name; `tick` for ticks."), LIMIT),
        answers=(404,),
    ),
    command("/api/v1/cycles/{name:path}/pause", "cycle.pause", pause, _CYCLE),
    command("/api/v1/cycles/{name:path}/resume", "cycle.resume", resume, _CYCLE),
    command("/api/v1/cycles/{name:path}/run-now", "cycle.run_now", run_now, _CYCLE, answers=(202,)),
)

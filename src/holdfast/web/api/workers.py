"""Workers over HTTP."""

from __future__ import annotations

from holdfast.web.route import LIMIT, ApiResponse, BoundRequest, Param, Reason, Route


async def list_page(request: BoundRequest) -> ApiResponse:
    """List workers, newest first."""
    found = await request.service.workers.list(request.caller, request["all"], request["limit"])
    return ApiResponse({"items": [each.as_json() for each in found]})


async def drain(request: BoundRequest) -> ApiResponse:
    """Drain a worker: it takes no new jobs, finishes those it holds, and exits."""
    await request.service.workers.drain(request.caller, request["id"])
    return ApiResponse({"id": request["id"], "draining": True})


_WORKER = Param("id", "path", text="The worker's id.")
_ALL = Param("all", "query", "flag", "Include stopped workers.", False)

ROUTES = (
    Route("GET", "/api/v1/workers", "worker.list", list_page, (_ALL, LIMIT)),
    Route(
        "POST",
        "/api/v1/workers/{id}/drain",
        "worker.drain",
        drain,
        (_WORKER,),
        Reason,
        answers=(200, 404),
    ),
)

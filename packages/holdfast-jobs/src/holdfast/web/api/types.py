"""Job types and workers over HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.admin.serializers import plain, version_of
from holdfast.commands.workers import TypeChange
from holdfast.core.statistics import STEPS_MS
from holdfast.web.route import LIMIT, ApiResponse, BoundRequest, Param, Route, command


class TypeSettings(TypeChange, frozen=True, forbid_unknown_fields=True):
    """Overrides of a type's settings; -1 removes one."""

    reason: str | None = None


async def list_all(request: BoundRequest) -> ApiResponse:
    """List job types."""
    found = await request.service.types.list(request.caller)
    items = [{**each.as_json(), "version": version_of(plain(each.setting))} for each in found]
    return ApiResponse({"items": items})


async def statistics(request: BoundRequest) -> ApiResponse:
    """Show a job type's statistics: throughput, errors, quantiles of run time and wait, slowest and latest jobs."""
    board = await request.service.type_boards.get(
        request.caller, request["type"], request["window"]
    )
    return ApiResponse(board.as_json())


async def pause(request: BoundRequest) -> ApiResponse:
    """Pause a job type; jobs already running finish."""
    setting = await request.service.types.pause(request.caller, request["type"], request.expected)
    return ApiResponse(setting, version=version_of(setting))


async def resume(request: BoundRequest) -> ApiResponse:
    """Resume a job type."""
    setting = await request.service.types.resume(request.caller, request["type"], request.expected)
    return ApiResponse(setting, version=version_of(setting))


async def change(request: BoundRequest) -> ApiResponse:
    """Override settings of a job type while workers run; -1 removes an override."""
    fields = msgspec.structs.asdict(request.body)
    del fields["reason"]
    setting = await request.service.types.set(
        request.caller, request["type"], TypeChange(**fields), request.expected
    )
    return ApiResponse(setting, version=version_of(setting))


async def pause_all(request: BoundRequest) -> ApiResponse:
    """Pause all job types; jobs already running finish."""
    await request.service.types.pause_all(request.caller, True)
    return ApiResponse({"paused": True})


async def resume_all(request: BoundRequest) -> ApiResponse:
    """Resume after pause-all; types paused one by one stay paused."""
    await request.service.types.pause_all(request.caller, False)
    return ApiResponse({"paused": False})


async def list_page(request: BoundRequest) -> ApiResponse:
    """List workers, newest first."""
    found = await request.service.workers.list(request.caller, request["all"], request["limit"])
    return ApiResponse({"items": [each.as_json() for each in found]})


async def drain(request: BoundRequest) -> ApiResponse:
    """Drain a worker: it takes no new jobs, finishes those it holds, and exits."""
    await request.service.workers.drain(request.caller, request["id"])
    return ApiResponse({"id": request["id"], "draining": True})


_TYPE = Param("type", "path", text="The job type's name.")
_WINDOW = Param(
    "window", "query", text="How far back figures go.", default="1h", choices=tuple(STEPS_MS)
)
_WORKER = Param("id", "path", text="The worker's id.")
_ALL = Param("all", "query", "flag", "Include stopped workers.", False)
_WORKERS: dict[str, Any] = {"other_noun": "workers"}

ROUTES = (
    Route("GET", "/api/v1/types", "type.list", list_all),
    command("/api/v1/types/pause-all", "type.pause", pause_all),
    command("/api/v1/types/resume-all", "type.resume", resume_all),
    command("/api/v1/types/{type:path}/pause", "type.pause", pause, _TYPE, versioned=True),
    command("/api/v1/types/{type:path}/resume", "type.resume", resume, _TYPE, versioned=True),
    Route("GET", "/api/v1/types/{type:path}/statistics", "type.list", statistics, (_TYPE, _WINDOW)),
    Route("PATCH", "/api/v1/types/{type:path}", "type.set", change, (_TYPE,), TypeSettings, True),
    Route("GET", "/api/v1/workers", "worker.list", list_page, (_ALL, LIMIT), **_WORKERS),
    command("/api/v1/workers/{id}/drain", "worker.drain", drain, _WORKER, **_WORKERS),
)

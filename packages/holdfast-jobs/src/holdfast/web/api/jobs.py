"""Jobs and dead letters over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from holdfast.admin.access import Caller
from holdfast.admin.jobs import Moved
from holdfast.web.route import (
    AFTER,
    FILTER,
    ID,
    LIMIT,
    ApiResponse,
    BoundRequest,
    Param,
    Route,
    command,
)


class JobIds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs by id, and why they are changed."""

    ids: list[str]
    reason: str | None = None


class DropRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dead letters by ids or filter."""

    ids: list[str] = []
    filter: str | None = None
    reason: str | None = None


class RedriveRequest(DropRequest, frozen=True):
    """Dead letters by ids or filter, and how many become due per second."""

    rate: float | None = None


async def list_page(request: BoundRequest) -> ApiResponse:
    """List jobs, newest first."""
    found = await request.service.jobs.page(
        request.caller, request["filter"], request["limit"], request["after"]
    )
    return ApiResponse(found)


async def count(request: BoundRequest) -> ApiResponse:
    """Count the jobs that match a filter, up to 10,000."""
    return ApiResponse(await request.service.jobs.count(request.caller, request["filter"]))


async def get(request: BoundRequest) -> ApiResponse:
    """Show a job in full, including why it isn't running."""
    detail = await request.service.jobs.get(request.caller, request["id"], request["raw"])
    return ApiResponse(detail, version=detail.version)


async def steps(request: BoundRequest) -> ApiResponse:
    """List the last steps of a durable function."""
    limit, raw = request["limit"], request["raw"]
    found = await request.service.jobs.steps(request.caller, request["id"], limit, raw)
    return ApiResponse({"items": found})


async def retry(request: BoundRequest) -> ApiResponse:
    """Re-queue a failed job; its history is kept."""
    return await _move(request, request.service.jobs.retry)


async def cancel(request: BoundRequest) -> ApiResponse:
    """Cancel an unfinished job; a running handler is aborted."""
    return await _move(request, request.service.jobs.cancel)


async def run_now(request: BoundRequest) -> ApiResponse:
    """Make a pending job due now."""
    return await _move(request, request.service.jobs.run_now)


async def retry_many(request: BoundRequest) -> ApiResponse:
    """Re-queue failed jobs; their history is kept."""
    return await _move(request, request.service.jobs.retry)


async def cancel_many(request: BoundRequest) -> ApiResponse:
    """Cancel unfinished jobs; running handlers are aborted."""
    return await _move(request, request.service.jobs.cancel)


async def run_many_now(request: BoundRequest) -> ApiResponse:
    """Make pending jobs due now."""
    return await _move(request, request.service.jobs.run_now)


async def _move(
    request: BoundRequest,
    move: Callable[[Caller, Sequence[str], Sequence[str] | None], Awaitable[Moved]],
) -> ApiResponse:
    """Move the job that the path names, or those of the body."""
    ids = [request["id"]] if "id" in request.params else request.body.ids
    return ApiResponse(await move(request.caller, ids, request.expected))


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


_RAW = Param("raw", "query", "flag", "Return payloads unredacted.", False)
_MANY: dict[str, Any] = {"body": JobIds, "answers": (404, 409, 412)}
_ONE: dict[str, Any] = {"versioned": True, "answers": (409,)}
_DEAD: dict[str, Any] = {"other_noun": "dead_letters"}

ROUTES = (
    Route("GET", "/api/v1/jobs", "job.list", list_page, (FILTER, LIMIT, AFTER)),
    Route("GET", "/api/v1/jobs/count", "job.list", count, (FILTER,)),
    Route("GET", "/api/v1/jobs/{id}", "job.get", get, (ID, _RAW), versioned=True),
    Route("GET", "/api/v1/jobs/{id}/steps", "job.get", steps, (ID, LIMIT, _RAW)),
    Route("POST", "/api/v1/jobs/retry", "job.retry", retry_many, **_MANY),
    Route("POST", "/api/v1/jobs/cancel", "job.cancel", cancel_many, **_MANY),
    Route("POST", "/api/v1/jobs/run-now", "job.run_now", run_many_now, **_MANY),
    command("/api/v1/jobs/{id}/retry", "job.retry", retry, ID, **_ONE),
    command("/api/v1/jobs/{id}/cancel", "job.cancel", cancel, ID, **_ONE),
    command("/api/v1/jobs/{id}/run-now", "job.run_now", run_now, ID, **_ONE),
    Route("GET", "/api/v1/dead-letters", "dead.list", groups, (LIMIT,), **_DEAD),
    Route(
        "POST",
        "/api/v1/dead-letters/redrive",
        "dead.redrive",
        redrive,
        body=RedriveRequest,
        **_DEAD,
    ),
    Route("POST", "/api/v1/dead-letters/drop", "dead.drop", drop, body=DropRequest, **_DEAD),
)

"""Jobs over HTTP."""

from __future__ import annotations

import msgspec

from holdfast.web.route import (
    AFTER,
    FILTER,
    ID,
    LIMIT,
    ApiResponse,
    BoundRequest,
    Param,
    Reason,
    Route,
)


class JobIds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs by id, and why they are changed."""

    ids: list[str]
    reason: str | None = None


async def list_page(request: BoundRequest) -> ApiResponse:
    """List jobs, newest first."""
    found = await request.service.jobs.page(
        request.caller, request["filter"], request["limit"], request["after"]
    )
    return ApiResponse(found)


async def get(request: BoundRequest) -> ApiResponse:
    """Show a job in full, including why it isn't running."""
    detail = await request.service.jobs.get(request.caller, request["id"], request["raw"])
    return ApiResponse(detail, version=detail.version)


async def retry(request: BoundRequest) -> ApiResponse:
    """Re-queue a failed job; its history is kept."""
    return ApiResponse(
        await request.service.jobs.retry(request.caller, [request["id"]], request.expected)
    )


async def cancel(request: BoundRequest) -> ApiResponse:
    """Cancel an unfinished job; a running handler is aborted."""
    return ApiResponse(
        await request.service.jobs.cancel(request.caller, [request["id"]], request.expected)
    )


async def run_now(request: BoundRequest) -> ApiResponse:
    """Make a pending job due now."""
    return ApiResponse(
        await request.service.jobs.run_now(request.caller, [request["id"]], request.expected)
    )


async def retry_many(request: BoundRequest) -> ApiResponse:
    """Re-queue failed jobs; their history is kept."""
    return ApiResponse(await request.service.jobs.retry(request.caller, request.body.ids))


async def cancel_many(request: BoundRequest) -> ApiResponse:
    """Cancel unfinished jobs; running handlers are aborted."""
    return ApiResponse(await request.service.jobs.cancel(request.caller, request.body.ids))


async def run_many_now(request: BoundRequest) -> ApiResponse:
    """Make pending jobs due now."""
    return ApiResponse(await request.service.jobs.run_now(request.caller, request.body.ids))


_RAW = Param("raw", "query", "flag", "Return payloads unredacted.", False)
_ANSWERS = (200, 404, 409, 412)

ROUTES = (
    Route("GET", "/api/v1/jobs", "job.list", list_page, (FILTER, LIMIT, AFTER)),
    Route(
        "GET", "/api/v1/jobs/{id}", "job.get", get, (ID, _RAW), versioned=True, answers=(200, 404)
    ),
    Route("POST", "/api/v1/jobs/retry", "job.retry", retry_many, body=JobIds, answers=_ANSWERS),
    Route("POST", "/api/v1/jobs/cancel", "job.cancel", cancel_many, body=JobIds, answers=_ANSWERS),
    Route(
        "POST", "/api/v1/jobs/run-now", "job.run_now", run_many_now, body=JobIds, answers=_ANSWERS
    ),
    Route(
        "POST",
        "/api/v1/jobs/{id}/retry",
        "job.retry",
        retry,
        (ID,),
        Reason,
        versioned=True,
        answers=_ANSWERS,
    ),
    Route(
        "POST",
        "/api/v1/jobs/{id}/cancel",
        "job.cancel",
        cancel,
        (ID,),
        Reason,
        versioned=True,
        answers=_ANSWERS,
    ),
    Route(
        "POST",
        "/api/v1/jobs/{id}/run-now",
        "job.run_now",
        run_now,
        (ID,),
        Reason,
        versioned=True,
        answers=_ANSWERS,
    ),
)

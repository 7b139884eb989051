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

_TAG = "jobs"


class JobIds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs by id, and why they are changed."""

    ids: list[str]
    reason: str | None = None


async def list_page(request: BoundRequest) -> ApiResponse:
    """List jobs."""
    found = await request.service.jobs.page(
        request.caller, request["filter"], request["limit"], request["after"]
    )
    return ApiResponse(found)


async def get(request: BoundRequest) -> ApiResponse:
    """Show a job."""
    detail = await request.service.jobs.get(request.caller, request["id"], request["raw"])
    return ApiResponse(detail, version=detail.version)


async def retry(request: BoundRequest) -> ApiResponse:
    """Retry a job."""
    return ApiResponse(
        await request.service.jobs.retry(request.caller, [request["id"]], request.expected)
    )


async def cancel(request: BoundRequest) -> ApiResponse:
    """Cancel a job."""
    return ApiResponse(
        await request.service.jobs.cancel(request.caller, [request["id"]], request.expected)
    )


async def run_now(request: BoundRequest) -> ApiResponse:
    """Make a job due now."""
    return ApiResponse(
        await request.service.jobs.run_now(request.caller, [request["id"]], request.expected)
    )


async def retry_many(request: BoundRequest) -> ApiResponse:
    """Retry jobs."""
    return ApiResponse(await request.service.jobs.retry(request.caller, request.body.ids))


async def cancel_many(request: BoundRequest) -> ApiResponse:
    """Cancel jobs."""
    return ApiResponse(await request.service.jobs.cancel(request.caller, request.body.ids))


async def run_many_now(request: BoundRequest) -> ApiResponse:
    """Make jobs due now."""
    return ApiResponse(await request.service.jobs.run_now(request.caller, request.body.ids))


_RAW = Param("raw", "query", "flag", "Return payloads unredacted.", False)
_ANSWERS = (200, 404, 409, 412)

ROUTES = (
    Route(
        "GET",
        "/api/v1/jobs",
        "job.list",
        list_page,
        "List jobs, newest first.",
        (FILTER, LIMIT, AFTER),
        tag=_TAG,
    ),
    Route(
        "GET",
        "/api/v1/jobs/{id}",
        "job.get",
        get,
        "Show a job in full, including why it isn't running.",
        (ID, _RAW),
        versioned=True,
        answers=(200, 404),
        tag=_TAG,
    ),
    Route(
        "POST",
        "/api/v1/jobs/retry",
        "job.retry",
        retry_many,
        "Re-queue failed jobs; their history is kept.",
        body=JobIds,
        answers=_ANSWERS,
        tag=_TAG,
    ),
    Route(
        "POST",
        "/api/v1/jobs/cancel",
        "job.cancel",
        cancel_many,
        "Cancel unfinished jobs; running handlers are aborted.",
        body=JobIds,
        answers=_ANSWERS,
        tag=_TAG,
    ),
    Route(
        "POST",
        "/api/v1/jobs/run-now",
        "job.run_now",
        run_many_now,
        "Make pending jobs due now.",
        body=JobIds,
        answers=_ANSWERS,
        tag=_TAG,
    ),
    Route(
        "POST",
        "/api/v1/jobs/{id}/retry",
        "job.retry",
        retry,
        "Re-queue a failed job; its history is kept.",
        (ID,),
        Reason,
        versioned=True,
        answers=_ANSWERS,
        tag=_TAG,
    ),
    Route(
        "POST",
        "/api/v1/jobs/{id}/cancel",
        "job.cancel",
        cancel,
        "Cancel an unfinished job; a running handler is aborted.",
        (ID,),
        Reason,
        versioned=True,
        answers=_ANSWERS,
        tag=_TAG,
    ),
    Route(
        "POST",
        "/api/v1/jobs/{id}/run-now",
        "job.run_now",
        run_now,
        "Make a pending job due now.",
        (ID,),
        Reason,
        versioned=True,
        answers=_ANSWERS,
        tag=_TAG,
    ),
)

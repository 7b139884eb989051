"""Jobs over HTTP."""

from __future__ import annotations

import msgspec

from holdfast.web.bound_request import Call
from holdfast.web.route import AFTER, FILTER, ID, LIMIT, Answer, Param, Route

_TAG = "jobs"


class Reasoned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a change is wanted; kept in the audit log."""

    reason: str | None = None


class SomeJobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs by their ids, and why they are to be moved."""

    ids: list[str]
    reason: str | None = None


async def page(call: Call) -> Answer:
    """List jobs."""
    found = await call.service.jobs.page(call.caller, call["filter"], call["limit"], call["after"])
    return Answer(found)


async def get(call: Call) -> Answer:
    """Show a job."""
    detail = await call.service.jobs.get(call.caller, call["id"], call["raw"])
    return Answer(detail, version=detail.version)


async def retry(call: Call) -> Answer:
    """Retry a job."""
    return Answer(await call.service.jobs.retry(call.caller, [call["id"]], call.expected))


async def cancel(call: Call) -> Answer:
    """Cancel a job."""
    return Answer(await call.service.jobs.cancel(call.caller, [call["id"]], call.expected))


async def run_now(call: Call) -> Answer:
    """Make a job due."""
    return Answer(await call.service.jobs.run_now(call.caller, [call["id"]], call.expected))


async def retry_some(call: Call) -> Answer:
    """Retry jobs."""
    return Answer(await call.service.jobs.retry(call.caller, call.body.ids))


async def cancel_some(call: Call) -> Answer:
    """Cancel jobs."""
    return Answer(await call.service.jobs.cancel(call.caller, call.body.ids))


async def run_some_now(call: Call) -> Answer:
    """Make jobs due."""
    return Answer(await call.service.jobs.run_now(call.caller, call.body.ids))


_RAW = Param("raw", "query", "flag", "Whether payloads come unredacted.", False)
_MOVED = (200, 404, 409, 412)

ROUTES = (
    Route(
        "GET",
        "/api/v1/jobs",
        "job.list",
        page,
        "List jobs, newest first.",
        (FILTER, LIMIT, AFTER),
        tag=_TAG,
    ),
    Route(
        "GET",
        "/api/v1/jobs/{id}",
        "job.get",
        get,
        "Show a job in full, with why it does not run in one sentence.",
        (ID, _RAW),
        versioned=True,
        answers=(200, 404),
        tag=_TAG,
    ),
    Route(
        "POST",
        "/api/v1/jobs/retry",
        "job.retry",
        retry_some,
        "Take failed jobs back into the queue.",
        body=SomeJobs,
        answers=_MOVED,
        tag=_TAG,
    ),
    Route(
        "POST",
        "/api/v1/jobs/cancel",
        "job.cancel",
        cancel_some,
        "Cancel jobs that have not ended; running handlers are told.",
        body=SomeJobs,
        answers=_MOVED,
        tag=_TAG,
    ),
    Route(
        "POST",
        "/api/v1/jobs/run-now",
        "job.run_now",
        run_some_now,
        "Make pending jobs due now.",
        body=SomeJobs,
        answers=_MOVED,
        tag=_TAG,
    ),
    Route(
        "POST",
        "/api/v1/jobs/{id}/retry",
        "job.retry",
        retry,
        "Take a failed job back into the queue.",
        (ID,),
        Reasoned,
        versioned=True,
        answers=_MOVED,
        tag=_TAG,
    ),
    Route(
        "POST",
        "/api/v1/jobs/{id}/cancel",
        "job.cancel",
        cancel,
        "Cancel a job that has not ended; a running handler is told.",
        (ID,),
        Reasoned,
        versioned=True,
        answers=_MOVED,
        tag=_TAG,
    ),
    Route(
        "POST",
        "/api/v1/jobs/{id}/run-now",
        "job.run_now",
        run_now,
        "Make a pending job due now.",
        (ID,),
        Reasoned,
        versioned=True,
        answers=_MOVED,
        tag=_TAG,
    ),
)

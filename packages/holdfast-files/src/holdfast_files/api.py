"""Large values over HTTP."""

from __future__ import annotations

import msgspec

from holdfast.web.route import ID, ApiResponse, BoundRequest, Route
from holdfast_files.admin import LargeValueAdmin


async def get_input(request: BoundRequest) -> ApiResponse:
    """Return the input of a job in full, with its secrets; one that is in a file is read and checked."""
    text = await request.service.of(LargeValueAdmin).get(request.caller, request["id"], "input")
    return ApiResponse(msgspec.Raw(text))


async def get_output(request: BoundRequest) -> ApiResponse:
    """Return the output of a job in full, with its secrets; one that is in a file is read and checked."""
    text = await request.service.of(LargeValueAdmin).get(request.caller, request["id"], "output")
    return ApiResponse(msgspec.Raw(text))


ROUTES = (
    Route("GET", "/api/v1/jobs/{id}/input", "job.payload", get_input, (ID,), other_noun="value"),
    Route("GET", "/api/v1/jobs/{id}/output", "job.payload", get_output, (ID,), other_noun="value"),
)

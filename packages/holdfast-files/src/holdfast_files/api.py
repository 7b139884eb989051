"""Large values over HTTP."""

from __future__ import annotations

import msgspec

from holdfast.web.route import ID, ApiResponse, BoundRequest, Param, Route
from holdfast_files.admin import LargeValueAdmin, Payload


async def get_input(request: BoundRequest) -> ApiResponse:
    """Return the input of a job in full; one that is in a file is read and checked."""
    return await _get(request, "input")


async def get_output(request: BoundRequest) -> ApiResponse:
    """Return the output of a job in full; one that is in a file is read and checked."""
    return await _get(request, "output")


async def _get(request: BoundRequest, payload: Payload) -> ApiResponse:
    values = request.service.of(LargeValueAdmin)
    text = await values.get(request.caller, request["id"], payload, request["raw"])
    return ApiResponse(msgspec.Raw(text))


_PARAMS = (ID, Param("raw", "query", "flag", "Return it unredacted.", False))
_ONE = "/api/v1/jobs/{id}"

ROUTES = (
    Route("GET", f"{_ONE}/input", "job.payload", get_input, _PARAMS, other_noun="value"),
    Route("GET", f"{_ONE}/output", "job.payload", get_output, _PARAMS, other_noun="value"),
)

"""Costs over HTTP."""

from __future__ import annotations

from holdfast.web.route import ApiResponse, BoundRequest, Param, Route
from holdfast_costs.admin import CostAdmin, usage_json


async def list_all(request: BoundRequest) -> ApiResponse:
    """List what limits that count costs use, the fullest first."""
    found = await request.service.of(CostAdmin).list(request.caller, request["type"])
    return ApiResponse({"items": [usage_json(each) for each in found]})


_TYPE = Param("type", "query", text="Only limits of this job type.")

ROUTES = (Route("GET", "/api/v1/costs", "cost.list", list_all, (_TYPE,), other_noun="cost"),)

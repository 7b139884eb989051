"""The table of every route of the API, and the OpenAPI document made from it. What is not here is not served."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

from holdfast.admin.access import POLICY
from holdfast.extensions import rows
from holdfast.version import VERSION
from holdfast.web import probes
from holdfast.web.api import chains, cycles, jobs, limits, overview, signals, streams, system, types
from holdfast.web.middleware import root_path
from holdfast.web.route import ApiResponse, BoundRequest, Param, Route

_PLACE = re.compile(r"\{(\w+)(?::\w+)?\}")
_REF = "#/components/schemas/{name}"
_PROBLEM_REF = {"$ref": "#/components/schemas/Problem"}
_KINDS: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "id": {"type": "string", "format": "uuid"},
    "number": {"type": "integer"},
    "flag": {"type": "boolean"},
    "duration": {"type": "string", "examples": ["15s", "500ms"]},
}
_MEANINGS = {
    200: "OK.",
    201: "Created.",
    202: "Accepted; still running.",
    400: "Bad request.",
    401: "Authentication required.",
    403: "Permission denied.",
    404: "Not found.",
    409: "Not allowed in the current state.",
    410: "Deleted.",
    412: "Changed since it was read.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "Failed or cancelled, or the input is invalid.",
    429: "Too many requests.",
    501: "A required package is not installed.",
    503: "Not ready, or the database is unreachable.",
}
_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "The version (ETag) you last read.",
}
_PROBLEM = {
    "type": "object",
    "required": ["title", "status", "detail", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "pattern": "^HF[0-9]{3}$"},
        "help": {"type": "string"},
        "rule": {"type": ["string", "null"]},
        "details": {"type": "array", "items": {"type": "string"}},
        "request_id": {"type": "string"},
    },
}


@cache
def document(server: str = "/") -> dict[str, Any]:
    """Return the OpenAPI document of every route."""
    bodies = [route.body for route in ROUTES if route.body is not None]
    _, components = msgspec.json.schema_components(bodies, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        path = _PLACE.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": VERSION,
            "description": "Durable jobs, outbox events and scheduled cycles.",
        },
        "servers": [{"url": server}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**components, "Problem": _PROBLEM},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.text,
        "tags": [route.tag or route.noun.replace("_", " ")],
        "parameters": [_parameter(each) for each in route.params],
        "responses": _responses(route),
    }
    if route.action is None:
        operation["security"] = []
    else:
        operation["description"] = (
            f"Requires the role {POLICY[route.action].word} ({route.action})."
        )
    if route.versioned and route.method != "GET":
        operation["parameters"].append(_IF_MATCH)
    if route.body is not None or route.raw:
        schema = {"type": "object"}
        if route.body is not None:
            schema = {"$ref": _REF.format(name=route.body.__name__)}
        operation["requestBody"] = {
            "required": route.body is None or _needs_body(route.body),
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def _needs_body(body: type[msgspec.Struct]) -> bool:
    return any(each.required for each in msgspec.structs.fields(body))


def _parameter(param: Param) -> dict[str, Any]:
    schema = dict(_KINDS[param.kind])
    if param.kind == "number":
        schema |= {"minimum": param.min, "maximum": param.max}
    if param.choices:
        schema["enum"] = list(param.choices)
    if param.default not in (None, "") and param.kind != "duration":
        schema["default"] = param.default
    return {
        "name": param.name,
        "in": param.place,
        "required": param.place == "path",
        "description": param.text,
        "schema": schema,
    }


def _responses(route: Route) -> dict[str, Any]:
    statuses = route.statuses
    if route.params or route.body or route.action:
        statuses |= {400, 413, 503}
    if route.action:
        statuses |= {401, 403}
    if route.body:
        statuses.add(415)
    return {str(status): _response(route, status) for status in sorted(statuses)}


def _response(route: Route, status: int) -> dict[str, Any]:
    response: dict[str, Any] = {"description": _MEANINGS[status]}
    if status < 300:
        schema: dict[str, Any] = {"type": "object"} if "json" in route.media else {}
        response["content"] = {route.media: {"schema": schema}}
        if route.versioned:
            response["headers"] = {"ETag": {"schema": {"type": "string"}}}
    elif route.action is not None:
        response["content"] = {"application/problem+json": {"schema": _PROBLEM_REF}}
    return response


async def describe(request: BoundRequest) -> ApiResponse:
    """Describe the API (OpenAPI 3.1)."""
    return ApiResponse(document(root_path(request.http) or "/"))


ROUTES: tuple[Route, ...] = (
    *probes.PROBES,
    Route("GET", "/api/v1/openapi.json", None, describe),
    *overview.ROUTES,
    *system.ROUTES,
    # Before those with a place for an id, which would take any word for one.
    *rows("routes"),
    *jobs.ROUTES,
    *chains.ROUTES,
    *types.ROUTES,
    *limits.ROUTES,
    *signals.ROUTES,
    *cycles.ROUTES,
    *streams.ROUTES,
)

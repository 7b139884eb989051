"""The OpenAPI document, made from the table of routes."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

from holdfast.admin.roles import POLICY
from holdfast.version import VERSION
from holdfast.web.route import Param, Route

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
    200: "Done.",
    201: "Made.",
    202: "Accepted; it goes on.",
    400: "The request cannot be understood.",
    401: "It is not known who asks.",
    403: "The caller may not do this.",
    404: "There is no such thing.",
    409: "It is in another state than this needs.",
    410: "It was there and is gone.",
    412: "It has changed since it was read.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "It failed or was cancelled, or the input does not fit.",
    429: "Asked for too often.",
    501: "A package that this needs is not installed.",
    503: "Not ready, or the database is away.",
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
    """Return the description of every route of the API."""
    from holdfast.web.route_table import ROUTES

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
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.text,
        "tags": [route.tag],
        "parameters": [_parameter(each) for each in route.params],
        "responses": _responses(route),
    }
    if route.action is None:
        found["security"] = []
    else:
        found["description"] = f"Needs the role {POLICY[route.action].word} ({route.action})."
    if route.versioned and route.method != "GET":
        found["parameters"].append(
            {
                "name": "If-Match",
                "in": "header",
                "required": False,
                "schema": {"type": "string"},
                "description": "The version (ETag) that this was decided on.",
            }
        )
    if route.body is not None:
        found["requestBody"] = {
            "required": _needs_body(route.body),
            "content": {
                "application/json": {"schema": {"$ref": _REF.format(name=route.body.__name__)}}
            },
        }
    return found


def _needs_body(body: type[msgspec.Struct]) -> bool:
    return any(each.required for each in msgspec.structs.fields(body))


def _parameter(param: Param) -> dict[str, Any]:
    schema = dict(_KINDS[param.kind])
    if param.kind == "number":
        schema |= {"minimum": param.least, "maximum": param.most}
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
    usual = {400, 413, 503} if route.params or route.body or route.action else set()
    closed = {401, 403} if route.action else set()
    written = {415} if route.body else set()
    shown: dict[str, Any] = {}
    for status in sorted({*route.answers, *usual, *closed, *written}):
        found: dict[str, Any] = {"description": _MEANINGS[status]}
        if status < 300:
            schema: dict[str, Any] = {"type": "object"} if "json" in route.media else {}
            found["content"] = {route.media: {"schema": schema}}
            if route.versioned:
                found["headers"] = {"ETag": {"schema": {"type": "string"}}}
        elif route.action is not None:
            found["content"] = {"application/problem+json": {"schema": _PROBLEM_REF}}
        shown[str(status)] = found
    return shown

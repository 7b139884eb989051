"""Errors over HTTP as problem documents (RFC 9457)."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from holdfast.core.errors import HoldfastError, RateLimited
from holdfast.core.redaction import redact

MEDIA = "application/problem+json"

_RETRY_AFTER_S = "1"


def problem(error: HoldfastError, request_id: str, status: int | None = None) -> dict[str, Any]:
    """Return the document of an error: its code, what happened with secrets redacted, and the fix."""
    title = type(error).__doc__ or ""
    return {
        "type": f"urn:holdfast:error:{error.code}",
        "title": title.partition("\n")[0].removesuffix("."),
        "status": status or error.http_status,
        "detail": redact(error.message),
        "code": error.code,
        "help": error.help,
        "rule": error.rule,
        "details": [redact(each) for each in error.details],
        "request_id": request_id,
    }


def failure(request_id: str) -> dict[str, Any]:
    """Return the document of an unexpected error; its details are in the log only."""
    return {
        "type": "about:blank",
        "title": "Internal error",
        "status": 500,
        "detail": "the request failed unexpectedly; the server's log has the details",
        "request_id": request_id,
    }


def problem_response(error: HoldfastError, request_id: str, status: int | None = None) -> Response:
    """Respond with an error, under its own status or another."""
    document = problem(error, request_id, status)
    status = int(document["status"])
    headers = dict[str, str]()
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="holdfast"'
    if status == 415:
        headers["Accept"] = headers["Accept-Patch"] = "application/json"
    if isinstance(error, RateLimited):
        headers["Retry-After"] = str(error.after_s)
    elif status == 503:
        headers["Retry-After"] = _RETRY_AFTER_S
    return Response(msgspec.json.encode(document), status, headers, MEDIA)


def failure_response(request_id: str) -> Response:
    """Respond to an unexpected error."""
    return Response(msgspec.json.encode(failure(request_id)), 500, media_type=MEDIA)

"""Errors over HTTP: the status of each, and its problem document (RFC 9457)."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from holdfast.core import errors
from holdfast.core.errors import HoldfastError
from holdfast.core.redaction import redact

MEDIA = "application/problem+json"

# The nearest class in an error's ancestry decides; anything else is a failure of ours.
STATUSES: dict[type[HoldfastError], int] = {
    errors.Unauthenticated: 401,
    errors.Refused: 403,
    errors.CrossSite: 403,
    errors.ChainNotFound: 404,
    errors.JobNotFound: 404,
    errors.WorkerNotFound: 404,
    errors.CycleNotFound: 404,
    errors.TokenNotFound: 404,
    errors.NoSuchRoute: 404,
    errors.UnknownJobType: 404,
    errors.SubscriptionNotFound: 404,
    errors.ChainDeleted: 410,
    errors.WrongState: 409,
    errors.StillReferenced: 409,
    errors.KeyConflict: 409,
    errors.Changed: 412,
    errors.BodyTooLarge: 413,
    errors.PayloadTooLarge: 413,
    errors.UnsupportedMedia: 415,
    errors.ChainFailed: 422,
    errors.ChainCancelled: 422,
    errors.PayloadError: 422,
    errors.RateLimited: 429,
    errors.StreamsFull: 503,
    errors.RequestError: 400,
    errors.QueryError: 400,
    errors.InvalidOption: 400,
    errors.HeartbeatTooSlow: 400,
    errors.ShutdownTooLong: 400,
    errors.ReaperTooSlow: 400,
    errors.ScheduleError: 400,
    errors.RegistryError: 400,
    errors.MissingExtra: 501,
    errors.DatabaseError: 503,
    errors.ConnectionClosed: 503,
}
_RETRY_AFTER_S = "1"


def status_of(error: HoldfastError) -> int:
    """Return the status of an error."""
    for kind in type(error).__mro__:
        if kind in STATUSES:
            return STATUSES[kind]
        if status := vars(kind).get("http_status"):
            return int(status)
    return 500


def problem(error: HoldfastError, request_id: str, status: int | None = None) -> dict[str, Any]:
    """Return the document of an error: its code, what happened with secrets redacted, and the fix."""
    title = type(error).__doc__ or ""
    return {
        "type": f"urn:holdfast:error:{error.code}",
        "title": title.partition("\n")[0].removesuffix("."),
        "status": status or status_of(error),
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
    if isinstance(error, errors.RateLimited):
        headers["Retry-After"] = str(error.after_s)
    elif status == 503:
        headers["Retry-After"] = _RETRY_AFTER_S
    return Response(msgspec.json.encode(document), status, headers, MEDIA)


def failure_response(request_id: str) -> Response:
    """Respond to an unexpected error."""
    return Response(msgspec.json.encode(failure(request_id)), 500, media_type=MEDIA)

"""What applies to every request: an id, security headers, and limits on size and rate."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core.errors import BadRequest, BodyTooLarge, RateLimited
from holdfast.storage.id_generator import new_id
from holdfast.web.problems import problem_response

BODY_LIMIT = 1_048_576
BODY_WITHIN_S = 30.0
HEADER = "X-Request-Id"
_STATE = "holdfast_request_id"
_GIVEN = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class RequestMiddleware:
    """Gives each request an id and each response the headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        id = given_request_id(connection) or new_id()
        scope.setdefault("state", {})[_STATE] = id

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[HEADER] = id
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        app = self._refuse if has_two_lengths(connection) else self._app
        await app(scope, receive, with_headers)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = BadRequest(
            "the request has both Content-Length and Transfer-Encoding",
            help="send one of them; the connection is closed, as its end is uncertain",
        )
        response = problem_response(error, request_id_of(HTTPConnection(scope)))
        response.headers["Connection"] = "close"
        await response(scope, receive, send)


def has_two_lengths(connection: HTTPConnection) -> bool:
    """Whether a proxy could see another end of the request, and take the rest for the next one (RFC 9112, 6.1)."""
    return "content-length" in connection.headers and "transfer-encoding" in connection.headers


def given_request_id(request: HTTPConnection) -> str:
    """Return the id that a client or proxy gave a request, empty if there is none or it is malformed."""
    given = request.headers.get(HEADER, "")
    return given if _GIVEN.fullmatch(given) else ""


def request_id_of(request: HTTPConnection) -> str:
    """Return a request's id, as in responses, logs and the audit log."""
    found: str = request.scope.get("state", {}).get(_STATE, "")
    return found


def root_path(connection: HTTPConnection) -> str:
    """Return the path that the application is mounted under, without a last slash."""
    return str(connection.scope.get("root_path", "")).rstrip("/")


class RateLimit:
    """A token bucket: `burst` at once, then `per_second`."""

    def __init__(
        self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._left = self._burst
        self._at = clock()

    def acquire(self) -> None:
        """Use one token. Raises: RateLimited."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            after_s = math.ceil((1 - self._left) / self._per_second)
            raise RateLimited("too many requests", after_s)
        self._left -= 1


async def read_body(
    request: Request, limit: int = BODY_LIMIT, within_s: float = BODY_WITHIN_S
) -> bytes:
    """Read a body within limits of size and time. Raises: BodyTooLarge, BadRequest."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise BodyTooLarge(f"the body has {announced} bytes, the limit is {limit}")
    try:
        async with asyncio.timeout(within_s):
            return await _read_chunks(request, limit)
    except TimeoutError:
        raise BadRequest(f"the body did not arrive within {within_s:g} s") from None
    except ClientDisconnect:
        raise BadRequest("the client disconnected before its body arrived") from None


async def _read_chunks(request: Request, limit: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise BodyTooLarge(f"the body has more than {limit} bytes")
    return bytes(body)

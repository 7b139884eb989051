"""From a request to an answer: who asks, what exactly, and what becomes of errors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match
from starlette.routing import Route as StarletteRoute
from starlette.types import Scope

from holdfast.admin.authorize import Caller
from holdfast.admin.roles import Principal, Role, check
from holdfast.admin.serializers import require
from holdfast.core.errors import HoldfastError, NoSuchRoute
from holdfast.web.bound_request import Call, read_json, read_params, reason_of
from holdfast.web.middleware import read_body, request_id_of
from holdfast.web.problems import failure_response, problem_response
from holdfast.web.route import Answer, Route
from holdfast.web.state import Site

log = logging.getLogger("holdfast.web")

Endpoint = Callable[[Request], Awaitable[Response]]
Absent = Callable[[Request, Exception], Awaitable[Response]]

NOBODY = Principal("nobody", Role.USER)
"""Who asks for what is open to everybody."""


def endpoint(site: Site, route: Route) -> Endpoint:
    """Return what serves a route."""

    async def serve(request: Request) -> Response:
        return await answered(request, lambda: _served(site, route, request))

    return serve


async def missing(request: Request, error: Exception) -> Response:
    """Answer for a path that is not served, or not by this method."""
    if moved := without_slash(request):
        return moved
    allowed = sorted(_methods(request, request.scope))
    if not allowed:
        return problem_response(no_such_route(request), request_id_of(request))
    refusal = no_such_route(request, f"use {' or '.join(allowed)}")
    response = problem_response(refusal, request_id_of(request), 405)
    response.headers["Allow"] = ", ".join(allowed)
    return response


def without_slash(request: Request) -> Response | None:
    """Lead to what is served under the path without its last slash.

    Starlette's own redirect names the host and the scheme, which the request claims and a proxy changes.
    """
    path = request.scope["path"]
    if not path.endswith("/") or not _methods(request, {**request.scope, "path": path[:-1]}):
        return None
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"{request.url.path[:-1]}{query}", 307)


def _methods(request: Request, scope: Scope) -> set[str]:
    """The methods by which a path is served."""
    return {
        method
        for each in request.app.routes
        if isinstance(each, StarletteRoute) and each.matches(scope)[0] is not Match.NONE
        for method in each.methods or ()
    }


def no_such_route(request: Request, help: str | None = None) -> NoSuchRoute:
    """Say what is not served."""
    return NoSuchRoute(f"{request.method} {request.url.path[:200]} is not served here", help=help)


async def answered(request: Request, serve: Callable[[], Awaitable[Response]]) -> Response:
    """Serve; whatever is raised becomes a problem document, and the unforeseen goes to the log."""
    try:
        return await serve()
    except HoldfastError as error:
        return problem_response(error, request_id_of(request))
    except Exception:
        log.exception("request %s failed", request_id_of(request))
        return failure_response(request_id_of(request))


async def _served(site: Site, route: Route, request: Request) -> Response:
    principal = NOBODY
    if route.action is not None:
        principal = (await site.door.enter(request)).principal
        # Whoever may not do it learns nothing about whether it could be done.
        check(principal, route.action)
    params = read_params(route, request)
    raw = await read_body(request, site.body_limit)
    body = read_json(route, raw, request.headers.get("content-type"))
    caller = Caller(principal, request_id_of(request), reason_of(request, body))
    call = Call(site, request, caller, params, body)
    if route.method != "GET" and not route.versioned:
        # What has no version never has the one that the caller read.
        require(call.expected, "")
    answer = await route.handler(call)
    return answer if isinstance(answer, Response) else _response(answer)


def _response(answer: Answer) -> Response:
    headers = dict(answer.headers)
    if answer.version is not None:
        headers["ETag"] = f'"{answer.version}"'
    return Response(msgspec.json.encode(answer.value), answer.status, headers, "application/json")

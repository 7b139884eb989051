"""From a request to a response: authenticate, authorize, bind, call the handler, map errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match
from starlette.routing import Route as StarletteRoute
from starlette.types import Scope

from holdfast.admin.access import Caller, Principal, Role, check
from holdfast.admin.serializers import require
from holdfast.core.errors import DatabaseError, DatabaseUnreachable, HoldfastError, NoSuchRoute
from holdfast.web.middleware import read_body, request_id_of, root_path
from holdfast.web.problems import failure_response, problem_response
from holdfast.web.route import ApiResponse, BoundRequest, Route, read_json, read_params, read_reason

if TYPE_CHECKING:
    from holdfast.web.app import Site

log = logging.getLogger("holdfast.web")

Endpoint = Callable[[Request], Awaitable[Response]]
NotFoundHandler = Callable[[Request, Exception], Awaitable[Response]]

PATIENCE_S = 2.0
"""Monitors must not wait for an unreachable database as long as a page does."""

ANONYMOUS = Principal("nobody", Role.USER)
"""The principal of routes that need no authentication."""


def make_endpoint(site: Site, route: Route) -> Endpoint:
    """Return the endpoint of a route; every error becomes a problem document, unexpected ones are logged."""

    async def endpoint(request: Request) -> Response:
        try:
            return await _handle(site, route, request)
        except HoldfastError as error:
            return _refuse(request, error)
        except Exception:
            log.exception("request %s failed", request_id_of(request))
            return failure_response(request_id_of(request))

    return endpoint


async def not_found(request: Request, error: Exception) -> Response:
    """Respond for a path that is not served, or not by this method."""
    if redirect := redirect_without_slash(request):
        return redirect
    allowed = sorted(_methods(request, request.scope))
    if not allowed:
        return _refuse(request, no_such_route(request))
    refusal = no_such_route(request, f"use {' or '.join(allowed)}")
    response = problem_response(refusal, request_id_of(request), 405)
    response.headers["Allow"] = ", ".join(allowed)
    return response


def _refuse(request: Request, error: HoldfastError) -> Response:
    """Respond with an error; what it names of this API is where the API is mounted."""
    error.help = error.help.replace(" /api/", f" {root_path(request)}/api/")
    return problem_response(error, request_id_of(request))


def redirect_without_slash(request: Request) -> Response | None:
    """Redirect to the same path without its last slash, if that one is served.

    Starlette's own redirect names the host and the scheme, which the request claims and a proxy changes.
    """
    path = request.scope["path"]
    if not path.endswith("/") or not _methods(request, {**request.scope, "path": path[:-1]}):
        return None
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"{request.url.path[:-1]}{query}", 307)


def _methods(request: Request, scope: Scope) -> set[str]:
    """Return the methods of a path."""
    return {
        method
        for each in request.app.routes
        if isinstance(each, StarletteRoute) and each.matches(scope)[0] is not Match.NONE
        for method in each.methods or ()
    }


def no_such_route(request: Request, help: str | None = None) -> NoSuchRoute:
    """Return the error for a path that is not served."""
    return NoSuchRoute(f"{request.method} {request.url.path[:200]} is not served here", help=help)


async def _handle(site: Site, route: Route, request: Request) -> Response:
    principal, offline = await _authenticate(site, route, request)
    if route.action is not None:
        # Before anything else is read, so that a refused caller learns nothing about the target.
        check(principal, route.action)
    params = read_params(route, request)
    raw = b"" if route.raw else await read_body(request, site.body_limit)
    body = read_json(route, raw, request.headers.get("content-type"))
    caller = Caller(principal, request_id_of(request), read_reason(request, body))
    bound = BoundRequest(site, request, caller, params, body, offline)
    if route.method != "GET" and not route.versioned:
        # A thing without versions cannot have the one that If-Match names.
        require(bound.expected, "")
    response = await route.handler(bound)
    return response if isinstance(response, Response) else _json_response(response)


async def _authenticate(site: Site, route: Route, request: Request) -> tuple[Principal, bool]:
    """Return the caller, and whether the database was away. Raises: Unauthenticated, CrossSite, DatabaseError."""
    if route.action is None:
        return ANONYMOUS, False
    if not route.offline:
        return (await site.authenticator.authenticate(request)).principal, False
    try:
        async with asyncio.timeout(PATIENCE_S):
            return (await site.authenticator.authenticate(request)).principal, False
    except (DatabaseError, TimeoutError) as error:
        principal = site.authenticator.recall(request)
        if principal is None:
            raise DatabaseUnreachable("the caller cannot be looked up") from error
        return principal, True


def _json_response(response: ApiResponse) -> Response:
    headers = dict(response.headers)
    if response.version is not None:
        headers["ETag"] = f'"{response.version}"'
    body = msgspec.json.encode(response.value)
    return Response(body, response.status, headers, "application/json")

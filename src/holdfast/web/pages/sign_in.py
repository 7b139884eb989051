"""Signing in with a token, kept in a cookie that no script can read, and signing out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast.core.errors import HoldfastError, Unauthenticated
from holdfast.web.authentication import COOKIE, check_same_origin
from holdfast.web.middleware import request_id_of, root_path
from holdfast.web.pages.forms import is_local_path, parse_form
from holdfast.web.pages.templates import environment, static_url
from holdfast.web.problems import problem_response

if TYPE_CHECKING:
    from holdfast.web.state import Site

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]

COOKIE_AGE_S = 12 * 3_600


def sign_in(site: Site) -> Endpoint:
    """Return the endpoint of the sign-in form."""

    async def endpoint(request: Request) -> Response:
        if request.method != "POST":
            return _form(request, request.query_params.get("back", ""), False)
        try:
            check_same_origin(request, "cookie")
            fields = await parse_form(request)
            await site.authenticator.principal_of(fields.one("token"))
        except Unauthenticated:
            return _form(request, fields.one("back"), True)
        except HoldfastError as error:
            return problem_response(error, request_id_of(request))
        back = fields.one("back")
        response = RedirectResponse(back if is_local_path(back) else root_path(request) or "/", 303)
        response.set_cookie(
            COOKIE,
            fields.one("token"),
            max_age=COOKIE_AGE_S,
            path=root_path(request) or "/",
            httponly=True,
            samesite="lax",
            secure=_is_encrypted(request),
        )
        return response

    return endpoint


def sign_out(site: Site) -> Endpoint:
    """Return the endpoint that deletes the cookie."""

    async def endpoint(request: Request) -> Response:
        try:
            await site.authenticator.authenticate(request)
        except HoldfastError as error:
            return problem_response(error, request_id_of(request))
        response = RedirectResponse(f"{root_path(request)}/sign-in", 303)
        response.delete_cookie(COOKIE, path=root_path(request) or "/")
        return response

    return endpoint


def _form(request: Request, back: str, is_refused: bool) -> Response:
    root = root_path(request)
    values = {
        "url": lambda path: f"{root}{path}",
        "static": lambda name: static_url(root, name),
        "back": back if is_local_path(back) else "",
        "is_refused": is_refused,
    }
    body = environment().get_template("sign_in.html").render(values)
    return HTMLResponse(body, 401 if is_refused else 200, headers={"Cache-Control": "no-store"})


def _is_encrypted(request: Request) -> bool:
    """Whether the browser uses TLS; a proxy's header only makes the cookie stricter, so it is trusted."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))

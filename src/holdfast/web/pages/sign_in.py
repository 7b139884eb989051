"""Signing in with a token, which then lives in a cookie that no script can read, and signing out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast.core.errors import HoldfastError, Unauthenticated
from holdfast.web.authentication import COOKIE, check_site
from holdfast.web.middleware import request_id_of
from holdfast.web.pages.forms import is_local_path, parse_fields
from holdfast.web.pages.templates import environment, version
from holdfast.web.problems import problem_response

if TYPE_CHECKING:
    from holdfast.web.state import Site

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]

LASTS_S = 12 * 3_600


def sign_in(site: Site) -> Endpoint:
    """Return the page that takes a token."""

    async def endpoint(request: Request) -> Response:
        if request.method != "POST":
            return _form(request, request.query_params.get("back", ""), False)
        try:
            check_site(request, "cookie")
            fields = await parse_fields(request)
            await site.door.principal_of(fields.one("token"))
        except Unauthenticated:
            return _form(request, fields.one("back"), True)
        except HoldfastError as error:
            return problem_response(error, request_id_of(request))
        back = fields.one("back")
        answer = RedirectResponse(back if is_local_path(back) else _root(request) or "/", 303)
        answer.set_cookie(
            COOKIE,
            fields.one("token"),
            max_age=LASTS_S,
            path=_root(request) or "/",
            httponly=True,
            samesite="lax",
            secure=_is_encrypted(request),
        )
        return answer

    return endpoint


def sign_out(site: Site) -> Endpoint:
    """Return what forgets the cookie."""

    async def endpoint(request: Request) -> Response:
        try:
            await site.door.enter(request)
        except HoldfastError as error:
            return problem_response(error, request_id_of(request))
        answer = RedirectResponse(f"{_root(request)}/sign-in", 303)
        answer.delete_cookie(COOKIE, path=_root(request) or "/")
        return answer

    return endpoint


def _form(request: Request, back: str, refused: bool) -> Response:
    root = _root(request)
    body = (
        environment()
        .get_template("sign_in.html")
        .render(
            url=lambda path: f"{root}{path}",
            static=lambda name: f"{root}/static/{name}?v={version()}",
            back=back if is_local_path(back) else "",
            refused=refused,
        )
    )
    return HTMLResponse(body, 401 if refused else 200, headers={"Cache-Control": "no-store"})


def _is_encrypted(request: Request) -> bool:
    """Say whether the browser speaks TLS; a proxy's word only makes the cookie stricter, so it is believed."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")

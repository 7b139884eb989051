"""From a request to a page: who asks, what they get, and how errors look to people."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from holdfast.admin.authorize import Caller
from holdfast.admin.roles import check, least_of
from holdfast.core.errors import HoldfastError, Unauthenticated
from holdfast.web.dispatch import Absent, missing, no_such_route, without_slash
from holdfast.web.middleware import request_id_of
from holdfast.web.pages.confirm import ask_first
from holdfast.web.pages.forms import Unasked
from holdfast.web.pages.page_context import LIVE_HEADER, Visit, show
from holdfast.web.pages.routes import ROUTES, PageRoute
from holdfast.web.pages.sign_in import sign_in, sign_out
from holdfast.web.pages.templates import STATIC, environment, version
from holdfast.web.problems import failure, failure_response, problem, problem_response

if TYPE_CHECKING:
    from holdfast.web.state import Site

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]

log = logging.getLogger("holdfast.web")

_READS = ("GET", "HEAD")


def page_routes(site: Site) -> list[BaseRoute]:
    """Return the routes of the dashboard, to be put beside those of the API."""
    return [
        *(Route(each.path, _served(site, each), methods=[each.method]) for each in ROUTES),
        Route("/sign-in", sign_in(site), methods=["GET", "POST"]),
        Route("/sign-out", sign_out(site), methods=["POST"]),
        Mount("/static", _Files(directory=STATIC)),
    ]


def page_missing(site: Site) -> Absent:
    """Return what answers for an address that is not there: people get a page, programs a problem document."""

    async def absent(request: Request, error: Exception) -> Response:
        if moved := without_slash(request):
            return moved
        path = request.url.path.removeprefix(request.scope.get("root_path", ""))
        is_page = request.method in _READS and not path.startswith("/api/")
        if not is_page or "text/html" not in request.headers.get("accept", ""):
            return await missing(request, error)
        request_id = request_id_of(request)
        visit = await _entered(site, request, request_id)
        if isinstance(visit, Response):
            return visit
        refusal = no_such_route(request, "choose a page from the menu")
        return _explained(visit, problem(refusal, request_id))

    return absent


def _served(site: Site, page: PageRoute) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        request_id = request_id_of(request)
        visit = await _entered(site, request, request_id)
        if isinstance(visit, Response):
            return visit
        return await _answered(visit, page, request_id)

    return endpoint


async def _entered(site: Site, request: Request, request_id: str) -> Visit | Response:
    """Establish who visits, or answer those who may not."""
    try:
        entry = await site.door.enter(request)
    except Unauthenticated as error:
        return _sent_to_sign_in(request, error, request_id)
    except HoldfastError as error:
        return _told_outside(request, error, request_id)
    except Exception:
        log.exception("it could not be found out who asks, request %s", request_id)
        return failure_response(request_id)
    caller = Caller(entry.principal, request_id)
    return Visit(request, site.service, caller, entry.way == "cookie")


async def _answered(visit: Visit, page: PageRoute, request_id: str) -> Response:
    try:
        check(visit.caller.principal, least_of(page.actions))
        return await page.handler(visit)
    except Unasked as unasked:
        return ask_first(visit, unasked.fields)
    except HoldfastError as error:
        if _is_script(visit.request):
            return problem_response(error, request_id)
        return _explained(visit, problem(error, request_id))
    except Exception:
        log.exception("page %s could not be served, request %s", page.path, request_id)
        return _explained(visit, failure(request_id))


def _explained(visit: Visit, found: dict[str, Any]) -> Response:
    values = {
        "message": found["detail"],
        "code": found.get("code"),
        "rule": found.get("rule"),
        "details": found.get("details", ()),
        "help": found.get("help"),
    }
    return show(visit, "error.html", found["title"], "", values, status=found["status"])


def _sent_to_sign_in(request: Request, error: Unauthenticated, request_id: str) -> Response:
    if request.method not in _READS or _is_script(request) or LIVE_HEADER in request.headers:
        return problem_response(error, request_id)
    path = request.url.path
    back = f"{path}?{request.url.query}" if request.url.query else path
    root = request.scope.get("root_path", "").rstrip("/")
    return RedirectResponse(f"{root}/sign-in?{urlencode({'back': back})}", status_code=303)


def _told_outside(request: Request, error: HoldfastError, request_id: str) -> Response:
    """Tell whoever could not be recognised, as while the database is away; nothing of the inside is shown."""
    is_part = _is_script(request) or LIVE_HEADER in request.headers
    if (
        request.method not in _READS
        or is_part
        or "text/html" not in request.headers.get("accept", "")
    ):
        return problem_response(error, request_id)
    found = problem(error, request_id)
    root = request.scope.get("root_path", "").rstrip("/")
    body = (
        environment()
        .get_template("outside.html")
        .render(
            static=lambda name: f"{root}/static/{name}?v={version()}",
            title=found["title"],
            code=found["code"],
            help=found["help"],
            here=request.url.path,
        )
    )
    return HTMLResponse(body, found["status"])


def _is_script(request: Request) -> bool:
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted or "text/event-stream" in accepted


class _Files(StaticFiles):
    """The scripts and styles; browsers ask whether they changed, because scripts name one another without a version."""

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        response = super().file_response(*arguments, **options)
        response.headers["Cache-Control"] = "no-cache"
        return response

"""The pages as a table, and from a request to a page: sign in, authorize, render, show errors to people."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from holdfast.admin.access import POLICY, Caller, check
from holdfast.core.errors import HoldfastError, Unauthenticated
from holdfast.core.lifecycle import CHAIN_COMMANDS, JOB_COMMANDS
from holdfast.extensions import rows
from holdfast.web.app import Pages, Site
from holdfast.web.authentication import COOKIE, check_same_origin
from holdfast.web.dispatch import NotFoundHandler, no_such_route, not_found, redirect_without_slash
from holdfast.web.middleware import request_id_of, root_path
from holdfast.web.problems import failure, failure_response, problem, problem_response
from holdfast_dashboard import chains, cycles, jobs, lists, overview, start_form, system, types
from holdfast_dashboard.forms import (
    ConfirmationNeeded,
    is_local_path,
    parse_form,
    render_confirmation,
)
from holdfast_dashboard.page_context import FRAGMENT_HEADER, MENU, PageContext, render_page
from holdfast_dashboard.templates import STATIC, environment, static_url, static_version

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]

log = logging.getLogger("holdfast.web")

COOKIE_AGE_S = 12 * 3_600

_READS = ("GET", "HEAD")
_LASTING = "max-age=31536000, immutable"


class PageRoute(NamedTuple):
    """One page or form. The least of `actions` is required; a form's field says which one it is."""

    method: Literal["GET", "POST"]
    path: str
    actions: tuple[str, ...]
    handler: Callable[[PageContext], Awaitable[Response]]

    @property
    def least(self) -> str:
        """The action of the lowest role among them."""
        return min(self.actions, key=POLICY.__getitem__)


ROUTES = (
    PageRoute("GET", "/", ("overview.read",), overview.get),
    PageRoute("GET", "/jobs", ("job.list",), jobs.list_page),
    PageRoute("GET", "/jobs/{id}", ("job.get",), jobs.get),
    PageRoute("POST", "/jobs/move", tuple(f"job.{each}" for each in JOB_COMMANDS), jobs.move),
    PageRoute("GET", "/start", ("chain.start",), start_form.get),
    PageRoute("POST", "/start", ("chain.start",), start_form.start),
    PageRoute("GET", "/chains", ("chain.list",), chains.list_page),
    PageRoute("GET", "/chains/{id}", ("chain.get",), chains.get),
    PageRoute(
        "POST",
        "/chains/{id}",
        (*(f"chain.{each}" for each in CHAIN_COMMANDS), "chain.rerun"),
        chains.move,
    ),
    PageRoute("POST", "/signals", ("signal.send",), jobs.send_signal),
    PageRoute("GET", "/dead", ("dead.list",), lists.list_dead_letters),
    PageRoute("POST", "/dead", ("dead.redrive", "dead.drop"), lists.move_dead_letters),
    PageRoute("GET", "/types", ("type.list",), lists.list_types),
    # The name of a delivery has a slash.
    PageRoute("GET", "/types/{name:path}", ("type.list",), types.get),
    PageRoute("POST", "/types", ("type.pause", "type.resume"), lists.move_type),
    PageRoute("POST", "/limits", ("limit.set", "limit.rest"), types.move_limit),
    PageRoute("GET", "/workers", ("worker.list",), lists.list_workers),
    PageRoute("POST", "/workers", ("worker.drain",), lists.move_worker),
    PageRoute("GET", "/cycles", ("cycle.list",), cycles.list_all),
    # The name of a shard has a slash.
    PageRoute("GET", "/cycles/{name:path}", ("cycle.list",), cycles.get),
    PageRoute("POST", "/cycles", ("cycle.pause", "cycle.resume", "cycle.run_now"), cycles.move),
    PageRoute("GET", "/audit", ("audit.list",), system.list_audit),
    PageRoute("GET", "/system", ("system.read",), system.get),
    PageRoute(
        "POST", "/system", ("subscription.remove", "subscription.replay"), system.move_subscription
    ),
    PageRoute("GET", "/tail", ("tail.read",), system.tail),
    *(PageRoute(*each) for each in rows("pages")),
)


_READ_BY = {each.path: each.least for each in ROUTES if each.method == "GET"}
"""The action that each page needs."""


def serve_pages(site: Site) -> Pages:
    """Return the routes of the dashboard, to be served beside those of the API."""
    routes = [
        *(Route(each.path, _make_endpoint(site, each), methods=[each.method]) for each in ROUTES),
        Route("/sign-in", sign_in(site), methods=["GET", "POST"]),
        Route("/sign-out", sign_out, methods=["POST"]),
        Mount("/static", _StaticFiles(directory=STATIC)),
    ]
    return Pages(routes, page_not_found(site))


def page_not_found(site: Site) -> NotFoundHandler:
    """Return the handler of unknown addresses: a page for people, a problem document for programs."""

    async def handler(request: Request, error: Exception) -> Response:
        if redirect := redirect_without_slash(request):
            return redirect
        path = request.url.path.removeprefix(request.scope.get("root_path", ""))
        if path.startswith("/api/") or not _is_page_view(request):
            return await not_found(request, error)
        context = await _authenticate(site, request)
        if isinstance(context, Response):
            return context
        refusal = no_such_route(request, "choose a page from the menu")
        return _error_page(context, problem(refusal, request_id_of(request)))

    return handler


def _make_endpoint(site: Site, page: PageRoute) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        context = await _authenticate(site, request)
        return context if isinstance(context, Response) else await _handle(context, page)

    return endpoint


async def _authenticate(site: Site, request: Request) -> PageContext | Response:
    """Return the context of an authenticated request, or the response to any other."""
    request_id = request_id_of(request)
    try:
        found = await site.authenticator.authenticate(request)
    except Unauthenticated as error:
        return _redirect_to_sign_in(site, request, error)
    except HoldfastError as error:
        return _signed_out_page(request, error)
    except Exception:
        log.exception("authentication failed unexpectedly, request %s", request_id)
        return failure_response(request_id)
    caller = Caller(found.principal, request_id)
    menu = [each for each in MENU if caller.may(_READ_BY[each.path])]
    return PageContext(request, site.service, caller, found.method == "cookie", menu)


async def _handle(context: PageContext, page: PageRoute) -> Response:
    request_id = request_id_of(context.request)
    if page.path == "/" and context.menu and context.menu[0].path != "/":
        return RedirectResponse(context.url(context.menu[0].path), 303)
    try:
        check(context.caller.principal, page.least)
        return await page.handler(context)
    except ConfirmationNeeded as needed:
        return render_confirmation(context, needed.fields)
    except HoldfastError as error:
        if _is_script(context.request):
            return problem_response(error, request_id)
        return _error_page(context, problem(error, request_id))
    except Exception:
        log.exception("page %s failed, request %s", page.path, request_id)
        return _error_page(context, failure(request_id))


def _error_page(context: PageContext, found: dict[str, Any]) -> Response:
    values = {
        "message": found["detail"],
        "code": found.get("code"),
        "rule": found.get("rule"),
        "details": found.get("details", ()),
        "help": found.get("help"),
    }
    return render_page(context, "error.html", found["title"], "", values, status=found["status"])


def _redirect_to_sign_in(site: Site, request: Request, error: Unauthenticated) -> Response:
    if request.method not in _READS or _is_script(request):
        return problem_response(error, request_id_of(request))
    path = request.url.path
    back = f"{path}?{request.url.query}" if request.url.query else path
    if site.sign_in_url is None:
        target = f"{root_path(request)}/sign-in?{urlencode({'back': back})}"
    else:
        mark = "&" if "?" in site.sign_in_url else "?"
        target = f"{site.sign_in_url}{mark}{urlencode({'next': back})}"
    return RedirectResponse(target, status_code=303)


def _signed_out_page(request: Request, error: HoldfastError) -> Response:
    """Show an error to a caller who could not be authenticated, as while the database is unreachable."""
    if _is_script(request) or not _is_page_view(request):
        return problem_response(error, request_id_of(request))
    found = problem(error, request_id_of(request))
    values = {name: found[name] for name in ("title", "code", "help")}
    return _bare_page(request, "signed_out.html", found["status"], here=request.url.path, **values)


def _bare_page(request: Request, template: str, status: int, **values: Any) -> Response:
    """Render a page without a menu, for callers who are not signed in."""
    root = root_path(request)
    links = {"url": lambda path: f"{root}{path}", "static": lambda name: static_url(root, name)}
    return HTMLResponse(environment().get_template(template).render(links | values), status)


def _is_page_view(request: Request) -> bool:
    return request.method in _READS and "text/html" in request.headers.get("accept", "")


def _is_script(request: Request) -> bool:
    accepted = request.headers.get("accept", "")
    return (
        "application/json" in accepted
        or "text/event-stream" in accepted
        or FRAGMENT_HEADER in request.headers
    )


class _StaticFiles(StaticFiles):
    """Scripts and styles: browsers keep what has this process's version in its path, and revalidate the rest.

    A replica of another version answers with the file it has, so that pages work during a deployment.
    """

    def get_path(self, scope: Scope) -> str:
        """Return the path of a file in the directory: without the version, if there is one."""
        first, _, rest = super().get_path(scope).partition(os.sep)
        return rest or first

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        is_lasting = f"/static/{static_version()}/" in scope["path"]
        response.headers["Cache-Control"] = _LASTING if is_lasting else "no-cache"
        return response


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


async def sign_out(request: Request) -> Response:
    """Delete the cookie, also that of a token that has expired; another site's page cannot."""
    try:
        check_same_origin(request, "cookie")
    except HoldfastError as error:
        return problem_response(error, request_id_of(request))
    response = RedirectResponse(f"{root_path(request)}/sign-in", 303)
    response.delete_cookie(COOKIE, path=root_path(request) or "/")
    return response


def _form(request: Request, back: str, is_refused: bool) -> Response:
    status, back = 401 if is_refused else 200, back if is_local_path(back) else ""
    return _bare_page(request, "sign_in.html", status, back=back, is_refused=is_refused)


def _is_encrypted(request: Request) -> bool:
    """Whether the browser uses TLS; a proxy's header only makes the cookie stricter, so it is trusted."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))

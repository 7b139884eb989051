"""The dashboard as a view of Django, for Django's users: `path("jobs/", include("holdfast_django.urls"))`.

It is an ASGI application, so it runs on a loop of its own, and the view passes requests and responses on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from django.conf import global_settings, settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.db.transaction import non_atomic_requests
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import NoReverseMatch, reverse
from django.views.decorators.csrf import csrf_exempt

from holdfast.core.errors import MissingExtra
from holdfast_django.application import database_alias, load_django_app
from holdfast_django.loop_thread import loop_thread
from holdfast_django.permissions import principal_of

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from holdfast.admin.access import Principal

PRINCIPAL = "holdfast.principal"
UNTIL = "holdfast.until"
STREAM_S = 60.0
"""How long a stream lasts; the page opens the next one, and Django authenticates its user again."""

POLLED = b'retry: 5000\n\nevent: hint\ndata: {"kinds":[],"types":[]}\n\n'
"""What a server gets that a stream would block: the page asks again in five seconds."""

_EVENTS = "text/event-stream"
_HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length")

log = logging.getLogger("holdfast.web")


# Changes are made on Holdfast's own connections: on SQLite a transaction of ATOMIC_REQUESTS would lock them out.
@non_atomic_requests(using=database_alias())
@csrf_exempt  # The dashboard refuses changes that come from another site's page itself.
def dashboard(request: HttpRequest, path: str = "") -> HttpResponseBase:
    """Serve the dashboard and its API to users with a permission of Holdfast's, and to holders of its tokens.

    Raises: PermissionDenied, MissingExtra.
    """
    principal = None
    if not request.headers.get("Authorization", "").lower().startswith("bearer "):
        user = getattr(request, "user", None)
        if user is None:
            raise ImproperlyConfigured(
                "the dashboard needs django.contrib.auth and its AuthenticationMiddleware"
            )
        principal = principal_of(user)
        if principal is None:
            return _refuse(request, user)
    return _respond(request, Exchange(_scope(request, path, principal), request.body))


class Exchange:
    """One request to the dashboard and the response as it comes."""

    def __init__(self, scope: dict[str, Any], body: bytes) -> None:
        """Pass the request on."""
        self._scope = scope
        self._body: bytes | None = body
        self._loop = loop_thread()
        self._messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._call = self._loop.submit(self._run(_application()))

    def end(self) -> None:
        """Break off: nobody reads the response any more."""
        self._call.cancel()

    def next(self) -> dict[str, Any] | None:
        """Wait for the next part of the response; None is its end."""
        return self._loop.run(self._messages.get())

    async def next_async(self) -> dict[str, Any] | None:
        """Async version of `next`, on any loop."""
        return await asyncio.wrap_future(self._loop.submit(self._messages.get()))

    async def _run(self, app: Starlette) -> None:
        try:
            await app(self._scope, self._receive, self._send)
        except Exception:
            log.exception("the dashboard failed at %s", self._scope["path"])
        finally:
            self._messages.put_nowait(None)

    async def _receive(self) -> dict[str, Any]:
        if self._body is None:
            # A client that leaves cancels the whole call.
            await asyncio.Event().wait()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def _send(self, message: Any) -> None:
        self._messages.put_nowait(dict(message))


@cache
def _application() -> Starlette:
    try:
        from holdfast.web.app import create
    except ImportError as error:
        raise MissingExtra(
            "the dashboard needs starlette and jinja2", help='pip install "holdfast-jobs[web]"'
        ) from error

    def authenticate(request: Any) -> Principal | None:
        is_fresh = request.scope[UNTIL] > time.monotonic()
        found: Principal | None = request.scope[PRINCIPAL] if is_fresh else None
        return found

    return create(load_django_app(), authenticate=authenticate)


def _scope(request: HttpRequest, path: str, principal: Principal | None) -> dict[str, Any]:
    root = request.path.removesuffix(path).rstrip("/")
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in request.headers.items()
    ]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": f"{root}/{path}",
        "raw_path": f"{root}/{path}".encode(),
        "query_string": str(request.META.get("QUERY_STRING", "")).encode("latin-1", "replace"),
        "root_path": root,
        "headers": headers,
        "client": (str(request.META.get("REMOTE_ADDR", "")), 0),
        "server": (request.get_host(), None),
        PRINCIPAL: principal,
        UNTIL: time.monotonic() + STREAM_S,
    }


def _respond(request: HttpRequest, exchange: Exchange) -> HttpResponseBase:
    begin = exchange.next()
    if begin is None:
        return HttpResponse("The dashboard failed; see the log.", status=500)
    headers = [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in begin["headers"]
    ]
    is_stream = dict(headers).get("content-type", "").startswith(_EVENTS)
    response: HttpResponseBase
    if not is_stream:
        response = HttpResponse(b"".join(_parts(exchange)), status=begin["status"])
    elif isinstance(request, ASGIRequest):
        response = StreamingHttpResponse(_parts_async(exchange), status=begin["status"])
    elif _is_development_server(request):
        response = StreamingHttpResponse(_parts(exchange), status=begin["status"])
    else:
        exchange.end()
        response = HttpResponse(POLLED, status=begin["status"])
    for name, value in headers:
        if name == "set-cookie":
            response.cookies.load(value)
        elif name not in _HOP_BY_HOP:
            response.headers[name] = value
    return response


def _parts(exchange: Exchange) -> Iterator[bytes]:
    try:
        while (message := exchange.next()) is not None:
            yield message.get("body", b"")
    finally:
        exchange.end()


async def _parts_async(exchange: Exchange) -> AsyncIterator[bytes]:
    try:
        while (message := await exchange.next_async()) is not None:
            yield message.get("body", b"")
    finally:
        exchange.end()


def _is_development_server(request: HttpRequest) -> bool:
    """Whether `runserver` serves it, with a thread for each request; elsewhere a stream would take one of a few."""
    return str(request.META.get("SERVER_SOFTWARE", "")).startswith("WSGIServer")


def _refuse(request: HttpRequest, user: Any) -> HttpResponseBase:
    """Send a visitor to the sign-in, and refuse a user without permission. Raises: PermissionDenied."""
    if user.is_authenticated:
        raise PermissionDenied(
            "the dashboard needs one of the permissions holdfast.view_jobs and up"
        )
    if "text/html" in request.headers.get("Accept", ""):
        return redirect_to_login(request.get_full_path(), _login_url())
    return HttpResponse("Sign in first.", status=401)


def _login_url() -> str | None:
    """Return the sign-in page of the admin unless the project has one of its own."""
    if settings.LOGIN_URL != global_settings.LOGIN_URL:
        return None
    try:
        return reverse("admin:login")
    except NoReverseMatch:
        return None

"""Webhooks in a Django project of your own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.core.errors import BodyTooLarge, HoldfastError, MissingExtra

try:
    from django.core.exceptions import RequestDataTooBig
    from django.db.transaction import non_atomic_requests
    from django.http import HttpRequest, HttpResponse
    from django.views.decorators.csrf import csrf_exempt
    from django.views.decorators.http import require_POST
except ImportError as error:
    raise MissingExtra("inbox_view needs Django", help="pip install django") from error

from holdfast_streams.inbox.event_loop import run_on_loop
from holdfast_streams.inbox.webhook import (
    WebhookAnswer,
    check_length,
    find_webhook,
    receive,
    refuse,
)

if TYPE_CHECKING:
    from holdfast.app import Holdfast


def inbox_view(app: Holdfast) -> Callable[..., HttpResponse]:
    """Return the view of an application's webhooks: `path("inbox/<str:name>", inbox_view(app))`.

    It needs no CSRF token, as senders are verified by their signature. Django's own DATA_UPLOAD_MAX_MEMORY_SIZE limits
    bodies too.
    """

    # What is received is written on Holdfast's own connections: on SQLite ATOMIC_REQUESTS would lock them out.
    @non_atomic_requests
    @csrf_exempt
    @require_POST
    def view(request: HttpRequest, name: str) -> HttpResponse:
        found = _answer(app, name, request)
        return HttpResponse(found.body, found.media, found.status, headers=found.headers)

    return view


_TOO_BIG = BodyTooLarge(
    "the body is larger than Django accepts",
    help="send less, or raise DATA_UPLOAD_MAX_MEMORY_SIZE and limit= of the inbox",
)


def _answer(app: Holdfast, name: str, request: HttpRequest) -> WebhookAnswer:
    try:
        length = str(request.META.get("CONTENT_LENGTH") or "")
        check_length(find_webhook(app, name), int(length) if length.isdigit() else 0)
        body = request.body
    except RequestDataTooBig:
        return refuse(app, name, _TOO_BIG)
    except HoldfastError as error:
        return refuse(app, name, error)
    return run_on_loop(receive(app, name, request.headers, body))

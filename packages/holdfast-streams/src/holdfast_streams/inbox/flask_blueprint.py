"""Webhooks in a Flask application of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError, MissingExtra

try:
    from flask import Blueprint, Response, request
except ImportError as error:
    raise MissingExtra("inbox_blueprint needs Flask", help="pip install flask") from error

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


def inbox_blueprint(app: Holdfast, path: str = "/inbox") -> Blueprint:
    """Return the blueprint of an application's webhooks: `site.register_blueprint(inbox_blueprint(app))`."""
    blueprint = Blueprint("holdfast_inbox", __name__)

    @blueprint.post(f"{path.rstrip('/')}/<name>")
    def inbox(name: str) -> Response:
        found = _answer(app, name)
        return Response(found.body, found.status, found.headers, found.media)

    return blueprint


def _answer(app: Holdfast, name: str) -> WebhookAnswer:
    try:
        inbox = find_webhook(app, name)
        check_length(inbox, request.content_length or 0)
        # One byte more than it may have, if its length was not announced.
        body = request.stream.read(inbox.limit + 1)
        check_length(inbox, len(body))
    except HoldfastError as error:
        return refuse(app, name, error)
    return run_on_loop(receive(app, name, dict(request.headers), body))

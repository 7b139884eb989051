"""Webhooks in a Starlette or FastAPI application of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.errors import BodyTooLarge, HoldfastError, MissingExtra

try:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
except ImportError as error:
    raise MissingExtra(
        "inbox_routes needs starlette", help='pip install "holdfast-jobs[streams,web]"'
    ) from error

from holdfast.web.middleware import read_body
from holdfast_streams.inbox.webhook import LIMIT_HELP, WebhookAnswer, find_webhook, receive, refuse

if TYPE_CHECKING:
    from holdfast.app import Holdfast


def inbox_routes(app: Holdfast, path: str = "/inbox") -> list[Route]:
    """Return the routes of an application's webhooks: `Starlette(routes=[*inbox_routes(app)])`.

    For FastAPI: `site.router.routes.extend(inbox_routes(app))`.
    """

    async def endpoint(request: Request) -> Response:
        found = await answer_request(app, request.path_params["name"], request)
        return to_response(found)

    return [Route(f"{path.rstrip('/')}/{{name}}", endpoint, methods=["POST"], name="inbox")]


async def answer_request(app: Holdfast, name: str, request: Request) -> WebhookAnswer:
    """Read a request's body within its inbox's limit, and take it."""
    try:
        body = await read_body(request, find_webhook(app, name).limit)
    except BodyTooLarge as error:
        return refuse(app, name, BodyTooLarge(error.message, help=LIMIT_HELP))
    except HoldfastError as error:
        return refuse(app, name, error)
    return await receive(app, name, request.headers, body)


def to_response(answer: WebhookAnswer) -> Response:
    """Return an answer as Starlette sends it."""
    return Response(answer.body, answer.status, answer.headers, answer.media)

"""Inboxes over HTTP: webhooks, and what was parked."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.web.middleware import request_id_of
from holdfast.web.route import BoundRequest, Param, Route
from holdfast_streams.inbox.starlette_routes import answer_request, to_response


async def post_webhook(request: BoundRequest) -> Response:
    """Take a webhook. Its signature is what it needs, instead of a token."""
    answer = await answer_request(request.service.app, request["name"], request.http)
    if answer.status >= 300:
        answer.document["request_id"] = request_id_of(request.http)
    return to_response(answer)


_NAME = Param("name", "path", text="The inbox's name.")

# Without an action, as probes: senders have no token of ours. It reaches nothing but the inbox's verifier and handler.
ROUTES = (
    Route(
        "POST",
        "/inbox/{name}",
        None,
        post_webhook,
        (_NAME,),
        other_noun="inbox",
        answers=(200, 202, 400, 401, 413, 503),
        raw=True,
    ),
)

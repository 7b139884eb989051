"""Inboxes over HTTP: webhooks, and what was parked."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from holdfast.web.middleware import request_id_of
from holdfast.web.route import LIMIT, ApiResponse, BoundRequest, Param, Route, command
from holdfast_streams.inbox.inbox_admin import InboxAdmin, inbox_json
from holdfast_streams.inbox.starlette_routes import answer_request, to_response


class ParkedMessagesRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which parked messages are meant; all of them without ids."""

    ids: list[str] = []
    reason: str | None = None


async def post_webhook(request: BoundRequest) -> Response:
    """Take a webhook. Its signature is what it needs, instead of a token."""
    answer = await answer_request(request.service.app, request["name"], request.http)
    if answer.status >= 300:
        answer.document["request_id"] = request_id_of(request.http)
    return to_response(answer)


async def list_(request: BoundRequest) -> ApiResponse:
    """List inboxes: where their messages come from, and what they parked."""
    found = await request.service.of(InboxAdmin).list(request.caller)
    return ApiResponse({"items": [inbox_json(each) for each in found]})


async def list_parked(request: BoundRequest) -> ApiResponse:
    """List the messages that an inbox could not take."""
    found = await request.service.of(InboxAdmin).list_parked(
        request.caller, request["name"], request["state"], request["limit"]
    )
    return ApiResponse({"items": [InboxAdmin.parked_json(each) for each in found]})


async def retry(request: BoundRequest) -> ApiResponse:
    """Have parked messages taken again."""
    found = await request.service.of(InboxAdmin).retry(
        request.caller, request["name"], request.body.ids
    )
    return ApiResponse({"ids": found})


async def skip(request: BoundRequest) -> ApiResponse:
    """Give up parked messages."""
    found = await request.service.of(InboxAdmin).skip(
        request.caller, request["name"], request.body.ids
    )
    return ApiResponse({"ids": found})


async def remove(request: BoundRequest) -> ApiResponse:
    """Forget an inbox that no process reads, with what it parked."""
    await request.service.of(InboxAdmin).remove(request.caller, request["name"])
    return ApiResponse({"name": request["name"], "removed": True})


_NAME = Param("name", "path", text="The inbox's name.")
_STATE = Param("state", "query", text="Only this state.", choices=("failed", "due"))
_ALL = "/api/v1/inboxes"
_ONE = f"{_ALL}/{{name}}"

ROUTES = (
    # Without an action, as probes: senders have no token of ours. It reaches the inbox's verifier and handler only.
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
    Route("GET", _ALL, "inbox.list", list_, other_noun="inbox"),
    Route(
        "GET",
        f"{_ONE}/parked",
        "inbox.list",
        list_parked,
        (_NAME, _STATE, LIMIT),
        other_noun="inbox",
    ),
    Route(
        "POST",
        f"{_ONE}/retry",
        "inbox.retry",
        retry,
        (_NAME,),
        ParkedMessagesRequest,
        other_noun="inbox",
    ),
    Route(
        "POST",
        f"{_ONE}/skip",
        "inbox.skip",
        skip,
        (_NAME,),
        ParkedMessagesRequest,
        other_noun="inbox",
    ),
    command(
        f"{_ONE}/remove", "inbox.remove", remove, _NAME, other_noun="inbox", answers=(200, 409)
    ),
)

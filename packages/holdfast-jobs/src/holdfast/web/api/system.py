"""The installation over HTTP: settings, doctor, subscriptions, audit log and tokens."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.admin.access import Principal, Role
from holdfast.admin.serializers import rfc3339
from holdfast.commands.replay import REPLAY_LOOK
from holdfast.core.ids import parse_id
from holdfast.core.subscriptions import Subscription
from holdfast.web.route import AFTER, ID, LIMIT, ApiResponse, BoundRequest, Param, Route, command


class TokenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token to create."""

    name: str
    role: str
    expires: str | None = None
    only: str = ""
    reason: str | None = None


class ReplayRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Events to deliver again: since a date, a time or how long ago; `after` continues where a batch ended."""

    since: str
    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=REPLAY_LOOK)] = REPLAY_LOOK
    dry_run: bool = False
    reason: str | None = None


async def get(request: BoundRequest) -> ApiResponse:
    """Show database, schema and effective settings."""
    return ApiResponse(await request.service.overview.system(request.caller))


async def doctor(request: BoundRequest) -> ApiResponse:
    """Check configuration, fleet and database; each finding includes its fix."""
    return ApiResponse({"items": await request.service.overview.findings(request.caller)})


async def list_subscriptions(request: BoundRequest) -> ApiResponse:
    """List which handler gets which event, and how many live workers handle it."""
    found = await request.service.subscriptions.list(request.caller)
    return ApiResponse({"items": [each.as_json() for each in found]})


async def remove_subscription(request: BoundRequest) -> ApiResponse:
    """Stop delivering an event to a handler; jobs already delivered remain."""
    removed = await request.service.subscriptions.remove(
        request.caller, request["event"], request["handler"]
    )
    return ApiResponse(removed)


async def replay_subscription(request: BoundRequest) -> ApiResponse:
    """Deliver a batch of stored events to a handler, each once; send `next` as `after` until it is null."""
    wanted: ReplayRequest = request.body
    page = await request.service.subscriptions.replay(
        request.caller,
        Subscription(request["event"], request["handler"]),
        wanted.since,
        None if wanted.after is None else str(parse_id(wanted.after)),
        wanted.limit,
        wanted.dry_run,
    )
    place = (None, None) if page.is_last else (rfc3339(page.reached), page.last)
    return ApiResponse({"replayed": page.copied, "replayed_to": place[0], "next": place[1]})


async def list_audit(request: BoundRequest) -> ApiResponse:
    """List changes and who made them, newest first."""
    wanted = {name: request[name] for name in ("actor", "action", "target")}
    page = await request.service.audit.page(
        request.caller, request["limit"], request["after"], **wanted
    )
    return ApiResponse(page)


async def list_tokens(request: BoundRequest) -> ApiResponse:
    """List tokens."""
    return ApiResponse({"items": await request.service.tokens.list(request.caller)})


async def create_token(request: BoundRequest) -> ApiResponse:
    """Create a token; the secret is only in this response."""
    wanted: TokenRequest = request.body
    holder = Principal(wanted.name, Role.parse(wanted.role), wanted.only)
    created = await request.service.tokens.create(request.caller, holder, wanted.expires)
    return ApiResponse(created, 201)


async def revoke_token(request: BoundRequest) -> ApiResponse:
    """Revoke a token."""
    await request.service.tokens.revoke(request.caller, request["id"])
    return ApiResponse({"id": request["id"], "revoked": True})


_EVENT = Param("event", "path", text="The event's name.")
_HANDLER = Param("handler", "path", text="The handler's name.")
_AUDIT = (
    LIMIT,
    AFTER,
    Param("actor", "query", text="Filter by actor."),
    Param("action", "query", text="Filter by action, e.g. `job.retry`."),
    Param("target", "query", text="Filter by target, e.g. `type mail.send`."),
)

ROUTES = (
    Route("GET", "/api/v1/system", "system.read", get),
    Route("GET", "/api/v1/doctor", "doctor.read", doctor),
    Route(
        "GET", "/api/v1/subscriptions", "subscription.list", list_subscriptions, tag="subscriptions"
    ),
    Route(
        "DELETE",
        "/api/v1/subscriptions/{event}/{handler}",
        "subscription.remove",
        remove_subscription,
        (_EVENT, _HANDLER),
        tag="subscriptions",
    ),
    Route(
        "POST",
        "/api/v1/subscriptions/{event}/{handler}/replay",
        "subscription.replay",
        replay_subscription,
        (_EVENT, _HANDLER),
        ReplayRequest,
        tag="subscriptions",
    ),
    Route("GET", "/api/v1/audit", "audit.list", list_audit, _AUDIT, tag="audit"),
    Route("GET", "/api/v1/tokens", "token.list", list_tokens, tag="tokens"),
    Route(
        "POST",
        "/api/v1/tokens",
        "token.create",
        create_token,
        body=TokenRequest,
        answers=(201,),
        tag="tokens",
    ),
    command("/api/v1/tokens/{id}/revoke", "token.revoke", revoke_token, ID, tag="tokens"),
)

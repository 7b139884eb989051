"""Signals of durable functions over HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.client.enqueue import SignalOptions
from holdfast.core.steps import KEEP
from holdfast.web.route import LIMIT, ApiResponse, BoundRequest, Route


class NewSignalBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A signal to send; with an `id` that was used before, nothing is sent."""

    name: str
    key: str | int | None = None
    data: Any = None
    id: str | None = None
    keep: str = KEEP
    broadcast: bool = False
    reason: str | None = None


async def list_all(request: BoundRequest) -> ApiResponse:
    """List the newest signals, and what functions wait for, the oldest jobs first."""
    return ApiResponse(await request.service.signals.list(request.caller, request["limit"]))


async def send(request: BoundRequest) -> ApiResponse:
    """Send a signal to the function that waits for its name and key, now or later."""
    body: NewSignalBody = request.body
    key = None if body.key is None else str(body.key)
    options: SignalOptions = {"id": body.id, "keep": body.keep, "broadcast": body.broadcast}
    sent = await request.service.signals.send(request.caller, body.name, key, body.data, **options)
    return ApiResponse(sent, 201 if sent["sent"] else 200)


ROUTES = (
    Route("GET", "/api/v1/signals", "signal.list", list_all, (LIMIT,)),
    Route("POST", "/api/v1/signals", "signal.send", send, body=NewSignalBody, answers=(200, 201)),
)

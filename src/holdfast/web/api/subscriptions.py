"""Subscriptions over HTTP."""

from __future__ import annotations

from holdfast.web.bound_request import Call
from holdfast.web.route import Answer, Param, Route

_TAG = "subscriptions"


async def listed(call: Call) -> Answer:
    """List subscriptions."""
    found = await call.service.subscriptions.list(call.caller)
    return Answer({"items": [each.as_json() for each in found]})


async def remove(call: Call) -> Answer:
    """Remove a subscription."""
    return Answer(
        await call.service.subscriptions.remove(call.caller, call["event"], call["handler"])
    )


_EVENT = Param("event", "path", text="The event's name.")
_HANDLER = Param("handler", "path", text="The handler's name.")

ROUTES = (
    Route(
        "GET",
        "/api/v1/subscriptions",
        "subscription.list",
        listed,
        "List which handler gets which event, and how many live workers handle it.",
        tag=_TAG,
    ),
    Route(
        "DELETE",
        "/api/v1/subscriptions/{event}/{handler}",
        "subscription.remove",
        remove,
        "Deliver an event to a handler no more; what was delivered stays.",
        (_EVENT, _HANDLER),
        answers=(200, 404),
        tag=_TAG,
    ),
)

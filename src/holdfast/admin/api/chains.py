"""Chains over HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.admin.api.jobs import Reasoned
from holdfast.admin.api.waiting import LONGEST_MS, preferred_ms, waited
from holdfast.admin.call import Call
from holdfast.admin.route import AFTER, FILTER, ID, LIMIT, Answer, Param, Route
from holdfast.client.options import StartOptions

_TAG = "chains"


class NewChain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A chain to be started."""

    type: str
    input: Any = None
    key: str | None = None
    after: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    reason: str | None = None

    def options(self) -> StartOptions:
        """Return what was said of the start; the rest is the type's own."""
        given: StartOptions = {}
        if self.key is not None:
            given["key"] = self.key
        if self.after is not None:
            given["after"] = self.after
        if self.priority is not None:
            given["priority"] = self.priority
        if self.max_attempts is not None:
            given["max_attempts"] = self.max_attempts
        return given


async def page(call: Call) -> Answer:
    """List chains."""
    found = await call.service.chains.page(
        call.caller, call["filter"], call["limit"], call["after"]
    )
    return Answer(found)


async def get(call: Call) -> Answer:
    """Show a chain, once it has ended if the caller prefers to wait."""
    timeout_ms = preferred_ms(call.request)
    if timeout_ms is not None:
        return await waited(call, call["id"], timeout_ms)
    detail = await call.service.chains.get(call.caller, call["id"])
    return Answer(detail, version=detail.version)


async def wait(call: Call) -> Answer:
    """Wait for a chain."""
    preferred = preferred_ms(call.request)
    return await waited(call, call["id"], call["timeout"] if preferred is None else preferred)


async def start(call: Call) -> Answer:
    """Start a chain, and wait for it if the caller prefers to."""
    wanted: NewChain = call.body
    chain = await call.service.chains.start(
        call.caller, wanted.type, wanted.input, wanted.options()
    )
    timeout_ms = preferred_ms(call.request)
    if timeout_ms is not None:
        return await waited(call, str(chain.id), timeout_ms)
    place = call.site.address(call.request, f"/api/v1/chains/{chain.id}")
    value = {
        "id": str(chain.id),
        "type": chain.type,
        "state": chain.state,
        "deduplicated": chain.deduplicated,
    }
    return Answer(value, 200 if chain.deduplicated else 201, {"Location": place})


async def cancel(call: Call) -> Answer:
    """Cancel a chain."""
    id = await call.service.chains.cancel(call.caller, call["id"], call.expected)
    return Answer({"id": id, "state": "cancelled"})


async def delete(call: Call) -> Answer:
    """Delete a chain."""
    removed = await call.service.chains.delete(
        call.caller, [call["id"]], call["cascade"], call.expected
    )
    return Answer({"removed_jobs": removed})


_TIMEOUT = Param(
    "timeout",
    "query",
    "duration",
    "How long to wait, as in 15s; a bare number is seconds.",
    15_000,
    0,
    LONGEST_MS,
)
_CASCADE = Param("cascade", "query", "flag", "Whether the chains it waited for go as well.", False)
_WAITED = (200, 202, 404, 410, 422)

ROUTES = (
    Route(
        "GET",
        "/api/v1/chains",
        "chain.list",
        page,
        "List chains, newest first.",
        (FILTER, LIMIT, AFTER),
        tag=_TAG,
    ),
    Route(
        "POST",
        "/api/v1/chains",
        "chain.start",
        start,
        "Start a chain; with `Prefer: wait=N` wait for its end up to N seconds.",
        body=NewChain,
        answers=(200, 201, 202, 404, 422),
        tag=_TAG,
    ),
    Route(
        "GET",
        "/api/v1/chains/{id}",
        "chain.get",
        get,
        "Show a chain with its tree; with `Prefer: wait=N` wait for its end up to N seconds.",
        (ID,),
        versioned=True,
        answers=_WAITED,
        tag=_TAG,
    ),
    Route(
        "GET",
        "/api/v1/chains/{id}/wait",
        "chain.wait",
        wait,
        "Wait for a chain: 200 with its output, 202 while it goes on, 422 when it failed or was cancelled.",
        (ID, _TIMEOUT),
        answers=_WAITED,
        tag=_TAG,
    ),
    Route(
        "POST",
        "/api/v1/chains/{id}/cancel",
        "chain.cancel",
        cancel,
        "Cancel a chain's live job.",
        (ID,),
        Reasoned,
        versioned=True,
        answers=(200, 404, 409, 412),
        tag=_TAG,
    ),
    Route(
        "DELETE",
        "/api/v1/chains/{id}",
        "chain.delete",
        delete,
        "Delete a chain with all its jobs.",
        (ID, _CASCADE),
        versioned=True,
        answers=(200, 404, 409, 412),
        tag=_TAG,
    ),
)

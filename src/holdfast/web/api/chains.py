"""Waiting for a chain over HTTP: until it ends, until the time is over, or until the client goes.

Chains over HTTP.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import msgspec
from starlette.requests import Request

from holdfast.client.options import StartOptions
from holdfast.client.views import Chain
from holdfast.core.errors import BadRequest, ChainDeleted, ChainNotFound, WaitTimeout
from holdfast.core.ids import instant_of, parse_id
from holdfast.core.records import TERMINAL, State
from holdfast.web.api.jobs import Reasoned
from holdfast.web.bound_request import Call
from holdfast.web.route import AFTER, FILTER, ID, LIMIT, Answer, Param, Route

LONGEST_MS = 60_000
RETRY_AFTER_S = "1"

_PREFER = re.compile(
    r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})\"?(?=$|[,;\s])", re.ASCII | re.IGNORECASE
)
_DAY_MS = 86_400_000


def preferred_ms(request: Request) -> int | None:
    """Return how long the caller would wait, from `Prefer: wait=N` in seconds; None when it does not say."""
    match = _PREFER.search(",".join(request.headers.getlist("prefer")))
    return None if match is None else min(int(match[1]) * 1000, LONGEST_MS)


async def waited(call: Call, id: str, timeout_ms: int) -> Answer:
    """Wait for a chain and answer: 200 with its output, 202 while it goes on.

    Raises: ChainFailed, ChainCancelled, ChainDeleted, ChainNotFound.
    """
    headers = (
        {"Preference-Applied": f"wait={timeout_ms // 1000}"} if preferred_ms(call.request) else {}
    )
    try:
        found = await _ended_or_state(call, id, timeout_ms)
    except ChainNotFound:
        raise _gone(call, id) from None
    if isinstance(found, Chain):
        return Answer(_shown(call, found), 200, headers)
    place = call.site.address(call.request, f"/api/v1/chains/{id}/wait")
    more = {"Location": place, "Retry-After": RETRY_AFTER_S, **headers}
    return Answer({"id": id, "state": found}, 202, more)


async def _ended_or_state(call: Call, id: str, timeout_ms: int) -> Chain | State:
    """Wait for a chain; when the time is over, say where it stands."""
    try:
        return await _until_gone(call, id, timeout_ms)
    except WaitTimeout:
        state = await call.service.chains.state(call.caller, id)
    if state not in TERMINAL:
        return state
    # The time was too short for a single look; now the answer is there at once.
    return await _until_gone(call, id, LONGEST_MS)


async def _until_gone(call: Call, id: str, timeout_ms: int) -> Chain:
    """Wait, but not longer than the client does."""
    waiting = asyncio.create_task(call.service.chains.wait(call.caller, id, timeout_ms / 1000))
    leaving = asyncio.create_task(_left(call.request))
    try:
        await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise BadRequest("the client has gone")
        return await waiting
    finally:
        for each in (waiting, leaving):
            each.cancel()
        await asyncio.gather(waiting, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _gone(call: Call, id: str) -> ChainNotFound | ChainDeleted:
    """Tell a chain that was removed for its age from one that never was."""
    days = call.service.settings.holdfast.retention_days
    is_ours = parse_id(id).version == 7
    if days and is_ours and time.time() * 1000 - instant_of(id) > days * _DAY_MS:
        return ChainDeleted(f"chain {id} is older than {days} days and was removed or archived")
    return ChainNotFound(f"there is no chain {id}")


def _shown(call: Call, chain: Chain) -> dict[str, Any]:
    withheld = not call.caller.may("job.payload")
    return {
        "id": str(chain.id),
        "type": chain.type,
        "state": chain.state,
        "output": None if withheld else chain.output,
        "payloads_withheld": withheld,
    }


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

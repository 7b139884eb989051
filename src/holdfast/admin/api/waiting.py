"""Waiting for a chain over HTTP: until it ends, until the time is over, or until the client goes."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

from starlette.requests import Request

from holdfast.admin.call import Call
from holdfast.admin.route import Answer
from holdfast.client.views import Chain
from holdfast.core.errors import BadRequest, ChainDeleted, ChainNotFound, WaitTimeout
from holdfast.core.ids import instant_of, parse_id
from holdfast.core.model import TERMINAL, State

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

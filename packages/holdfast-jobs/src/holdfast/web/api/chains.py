"""Chains over HTTP, and waiting for one: until it ends, the time is up, or the client disconnects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from starlette.requests import ClientDisconnect, Request

from holdfast.admin.serializers import shown_output
from holdfast.client.start_options import StartOptions
from holdfast.client.views import Chain
from holdfast.core.errors import BadRequest, WaitTimeout
from holdfast.core.instants import parse_time
from holdfast.core.lifecycle import TERMINAL, State
from holdfast.core.start_table import START_OPTIONS, OptionKind
from holdfast.web.disconnect import while_connected
from holdfast.web.middleware import root_path
from holdfast.web.route import (
    AFTER,
    FILTER,
    ID,
    LIMIT,
    ApiResponse,
    BoundRequest,
    Param,
    Route,
    command,
)

MAX_WAIT_MS = 60_000
RETRY_AFTER_S = "1"

_PREFER = re.compile(
    r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})\"?(?=$|[,;\s])", re.ASCII | re.IGNORECASE
)


class StartRequestBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A chain to start. With `like`, the id of a job, omitted fields are copied from that job, except its key."""

    type: str | None = None
    input: Any = msgspec.UNSET
    like: str | None = None
    reason: str | None = None

    def options(self) -> StartOptions:
        """Return the options that were given; the type has defaults for the others. Raises: InvalidOption."""
        values = {name: getattr(self, name) for name in START_OPTIONS}
        given = {name: value for name, value in values.items() if value is not None}
        for name in given.keys() & _TIMES:
            given[name] = parse_time(given[name])
        return cast("StartOptions", given)


class RerunBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From which step on a function runs again, as in `charge` or `mail#2`."""

    step: str = msgspec.field(name="from")
    reason: str | None = None


_TIMES = {name for name, each in START_OPTIONS.items() if each.kind == "time"}
_JSON_TYPES: Mapping[OptionKind, Any] = {
    "number": int | None,
    "flag": bool | None,
    "pairs": dict[str, str] | None,
}

# A checker sees what all bodies have; the options are as in the table.
NewChain = msgspec.defstruct(
    "NewChain",
    [(name, _JSON_TYPES.get(each.kind, str | None), None) for name, each in START_OPTIONS.items()],
    bases=(StartRequestBody,),
    namespace={"__doc__": StartRequestBody.__doc__},
    frozen=True,
    forbid_unknown_fields=True,
)


async def list_page(request: BoundRequest) -> ApiResponse:
    """List chains, newest first."""
    found = await request.service.chains.page(
        request.caller, request["filter"], request["limit"], request["after"]
    )
    return ApiResponse(found)


async def get(request: BoundRequest) -> ApiResponse:
    """Show a chain with its tree; with `Prefer: wait=N`, wait up to N seconds for it to end."""
    timeout_ms = _preferred_wait_ms(request.http)
    if timeout_ms is not None:
        return await _wait(request, request["id"], timeout_ms)
    detail = await request.service.chains.get(request.caller, request["id"])
    return ApiResponse(detail, version=detail.version)


async def wait(request: BoundRequest) -> ApiResponse:
    """Wait for a chain: 200 with its output, 202 while it is running, 422 if it failed or was cancelled."""
    preferred = _preferred_wait_ms(request.http)
    timeout_ms = request["timeout"] if preferred is None else preferred
    return await _wait(request, request["id"], timeout_ms)


async def start(request: BoundRequest) -> ApiResponse:
    """Start a chain, or one like an earlier job; with `Prefer: wait=N`, wait up to N seconds for its result."""
    wanted: StartRequestBody = request.body
    chain = await _start(request, wanted)
    timeout_ms = _preferred_wait_ms(request.http)
    if timeout_ms is not None:
        return await _wait(request, str(chain.id), timeout_ms)
    value = {
        "id": str(chain.id),
        "type": chain.type,
        "state": chain.state,
        "deduplicated": chain.deduplicated,
    }
    location = f"{root_path(request.http)}/api/v1/chains/{chain.id}"
    return ApiResponse(value, 200 if chain.deduplicated else 201, {"Location": location})


async def _start(request: BoundRequest, wanted: StartRequestBody) -> Chain:
    chains, caller = request.service.chains, request.caller
    if wanted.like is None:
        if wanted.type is None:
            raise BadRequest("the body has neither type nor like")
        input = None if wanted.input is msgspec.UNSET else wanted.input
        return await chains.start(caller, wanted.type, input, wanted.options())
    # A seal encrypts the input, so it has to be read.
    kept_over = None if "sealed" in wanted.options() else 0
    template = await chains.template(caller, wanted.like, wanted.type, kept_over)
    type = wanted.type or template.type
    return await chains.start(
        caller,
        type,
        template.input if wanted.input is msgspec.UNSET else wanted.input,
        {**template.options_of(type), **wanted.options()},
        like=template.id,
    )


async def rerun(request: BoundRequest) -> ApiResponse:
    """Start a durable function anew from a step, with what was recorded before it."""
    chain = await request.service.chains.rerun(request.caller, request["id"], request.body.step)
    location = f"{root_path(request.http)}/api/v1/chains/{chain.id}"
    value = {"id": str(chain.id), "type": chain.type, "state": chain.state}
    return ApiResponse(value, 201, {"Location": location})


async def cancel(request: BoundRequest) -> ApiResponse:
    """Cancel a chain; a running handler is aborted."""
    id = await request.service.chains.cancel(request.caller, request["id"], request.expected)
    return ApiResponse({"id": id, "state": "cancelled"})


async def delete(request: BoundRequest) -> ApiResponse:
    """Delete a chain with all its jobs."""
    removed = await request.service.chains.delete(
        request.caller, [request["id"]], request["cascade"], request.expected
    )
    return ApiResponse({"removed_jobs": removed})


def _preferred_wait_ms(request: Request) -> int | None:
    """Return how long the caller wants to wait, from `Prefer: wait=N` in seconds."""
    match = _PREFER.search(",".join(request.headers.getlist("prefer")))
    return None if match is None else min(int(match[1]) * 1000, MAX_WAIT_MS)


async def _wait(request: BoundRequest, id: str, timeout_ms: int) -> ApiResponse:
    """Wait for a chain: 200 with its output, 202 while it is running.

    Raises: ChainFailed, ChainCancelled, ChainDeleted, ChainNotFound.
    """
    headers = dict[str, str]()
    if _preferred_wait_ms(request.http):
        headers["Preference-Applied"] = f"wait={timeout_ms // 1000}"
    found = await _result_or_state(request, id, timeout_ms)
    if isinstance(found, Chain):
        return ApiResponse(_chain_json(request, found), 200, headers)
    headers["Location"] = f"{root_path(request.http)}/api/v1/chains/{id}/wait"
    headers["Retry-After"] = RETRY_AFTER_S
    return ApiResponse({"id": id, "state": found}, 202, headers)


async def _result_or_state(request: BoundRequest, id: str, timeout_ms: int) -> Chain | State:
    try:
        return await _wait_while_connected(request, id, timeout_ms)
    except WaitTimeout:
        state = await request.service.chains.state(request.caller, id)
    if state not in TERMINAL:
        return state
    # It ended since; now the result is there at once.
    return await request.service.chains.wait(request.caller, id, MAX_WAIT_MS / 1000)


async def _wait_while_connected(request: BoundRequest, id: str, timeout_ms: int) -> Chain:
    """Wait, but no longer than the client does."""
    try:
        return await while_connected(
            request.http, request.service.chains.wait(request.caller, id, timeout_ms / 1000)
        )
    except ClientDisconnect:
        raise BadRequest("the client disconnected") from None


def _chain_json(request: BoundRequest, chain: Chain) -> dict[str, Any]:
    withheld = not request.caller.may("job.payload")
    return {
        "id": str(chain.id),
        "type": chain.type,
        "state": chain.state,
        "output": None if withheld else shown_output(chain),
        "payloads_withheld": withheld,
    }


_TIMEOUT = Param(
    "timeout",
    "query",
    "duration",
    "How long to wait, such as 15s; a bare number is seconds.",
    15_000,
    0,
    MAX_WAIT_MS,
)
_CASCADE = Param("cascade", "query", "flag", "Also delete the chains it waited for.", False)
_WAIT_ANSWERS = (200, 202, 410, 422)
_ENDS: dict[str, Any] = {"versioned": True, "answers": (409,)}

ROUTES = (
    Route("GET", "/api/v1/chains", "chain.list", list_page, (FILTER, LIMIT, AFTER)),
    Route(
        "POST",
        "/api/v1/chains",
        "chain.start",
        start,
        body=NewChain,
        answers=(200, 201, 202, 404, 422),
    ),
    Route(
        "GET", "/api/v1/chains/{id}", "chain.get", get, (ID,), versioned=True, answers=_WAIT_ANSWERS
    ),
    Route(
        "GET", "/api/v1/chains/{id}/wait", "chain.wait", wait, (ID, _TIMEOUT), answers=_WAIT_ANSWERS
    ),
    Route(
        "POST",
        "/api/v1/chains/{id}/rerun",
        "chain.rerun",
        rerun,
        (ID,),
        RerunBody,
        answers=(201, 422),
    ),
    command("/api/v1/chains/{id}/cancel", "chain.cancel", cancel, ID, **_ENDS),
    Route("DELETE", "/api/v1/chains/{id}", "chain.delete", delete, (ID, _CASCADE), **_ENDS),
)

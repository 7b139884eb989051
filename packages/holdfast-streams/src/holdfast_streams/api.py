"""Streams over HTTP."""

from __future__ import annotations

import msgspec

from holdfast.web.route import LIMIT, ApiResponse, BoundRequest, Param, Route, command
from holdfast_streams.admin import StreamAdmin, stream_json
from holdfast_streams.inbox.inbox_api import ROUTES as INBOX_ROUTES
from holdfast_streams.registration import parse_start


class RewindRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a reader is set to: `earliest`, `latest`, a time, or how long ago; in one line or in all."""

    since: str
    line: int | None = None
    reason: str | None = None


class ParkedRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which parked events are meant; all of them without ids."""

    ids: list[str] = []
    reason: str | None = None


async def list_(request: BoundRequest) -> ApiResponse:
    """List readers of the event log with their lag per line."""
    found = await request.service.of(StreamAdmin).list(request.caller)
    return ApiResponse({"items": [stream_json(each) for each in found]})


async def get(request: BoundRequest) -> ApiResponse:
    """Show a reader of the event log with its lag per line."""
    found = await request.service.of(StreamAdmin).get(request.caller, request["name"])
    return ApiResponse(stream_json(found))


async def list_parked(request: BoundRequest) -> ApiResponse:
    """List the events that a reader could not take."""
    found = await request.service.of(StreamAdmin).list_parked(
        request.caller, request["name"], request["state"], request["limit"]
    )
    return ApiResponse({"items": [StreamAdmin.parked_json(each) for each in found]})


async def pause(request: BoundRequest) -> ApiResponse:
    """Pause a reader; blocks under way are rolled back."""
    await request.service.of(StreamAdmin).pause(request.caller, request["name"])
    return ApiResponse({"name": request["name"], "paused": True})


async def resume(request: BoundRequest) -> ApiResponse:
    """Resume a reader where it was."""
    await request.service.of(StreamAdmin).resume(request.caller, request["name"])
    return ApiResponse({"name": request["name"], "paused": False})


async def rewind(request: BoundRequest) -> ApiResponse:
    """Set a reader back, or forward to the end."""
    since, ago_ms = parse_start(request.body.since)
    moved = await request.service.of(StreamAdmin).rewind(
        request.caller, request["name"], since, ago_ms, request.body.line
    )
    return ApiResponse({"positions": {str(line): position for line, position in moved}})


async def retry(request: BoundRequest) -> ApiResponse:
    """Have parked events taken again, in order."""
    found = await request.service.of(StreamAdmin).retry(
        request.caller, request["name"], request.body.ids
    )
    return ApiResponse({"ids": found})


async def skip(request: BoundRequest) -> ApiResponse:
    """Give up parked events that failed, and release those held behind them."""
    found = await request.service.of(StreamAdmin).skip(
        request.caller, request["name"], request.body.ids
    )
    return ApiResponse({"ids": found})


async def rebase(request: BoundRequest) -> ApiResponse:
    """Have a relay go on whose stream has events that this database does not."""
    lines = await request.service.of(StreamAdmin).rebase(request.caller, request["name"])
    return ApiResponse({"name": request["name"], "lines": lines})


async def recreate(request: BoundRequest) -> ApiResponse:
    """Have a relay create its stream that is gone, and send again what the log still has."""
    lines = await request.service.of(StreamAdmin).recreate(request.caller, request["name"])
    return ApiResponse({"name": request["name"], "lines": lines})


async def remove(request: BoundRequest) -> ApiResponse:
    """Forget a reader that no process runs, with its positions."""
    await request.service.of(StreamAdmin).remove(request.caller, request["name"])
    return ApiResponse({"name": request["name"], "removed": True})


_NAME = Param("name", "path", text="The reader's name.")
_ONE = "/api/v1/streams/{name}"

ROUTES = (
    Route("GET", "/api/v1/streams", "stream.list", list_, other_noun="stream"),
    Route("GET", _ONE, "stream.list", get, (_NAME,), other_noun="stream"),
    Route(
        "GET",
        f"{_ONE}/parked",
        "stream.list",
        list_parked,
        (
            _NAME,
            Param("state", "query", text="Only this state.", choices=("failed", "held", "due")),
            LIMIT,
        ),
        other_noun="stream",
    ),
    command(f"{_ONE}/pause", "stream.pause", pause, _NAME, other_noun="stream"),
    command(f"{_ONE}/resume", "stream.resume", resume, _NAME, other_noun="stream"),
    Route(
        "POST",
        f"{_ONE}/rewind",
        "stream.rewind",
        rewind,
        (_NAME,),
        RewindRequest,
        other_noun="stream",
    ),
    Route(
        "POST", f"{_ONE}/retry", "stream.retry", retry, (_NAME,), ParkedRequest, other_noun="stream"
    ),
    Route(
        "POST", f"{_ONE}/skip", "stream.skip", skip, (_NAME,), ParkedRequest, other_noun="stream"
    ),
    command(
        f"{_ONE}/rebase", "stream.rebase", rebase, _NAME, other_noun="stream", answers=(200, 409)
    ),
    command(
        f"{_ONE}/recreate",
        "stream.recreate",
        recreate,
        _NAME,
        other_noun="stream",
        answers=(200, 409),
    ),
    command(
        f"{_ONE}/remove", "stream.remove", remove, _NAME, other_noun="stream", answers=(200, 409)
    ),
    *INBOX_ROUTES,
)

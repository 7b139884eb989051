"""Output over HTTP: what there is, and server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from starlette.responses import Response

from holdfast.web.api.streams import StreamAccess, stream_response
from holdfast.web.route import ApiResponse, BoundRequest, Param, Route
from holdfast_output.admin import OutputAdmin
from holdfast_output.server_sent import MEDIA, OPENING, format_events, json_of, position_of


async def get(request: BoundRequest) -> ApiResponse:
    """Show what a chain has emitted, without what attempts before the newest one said."""
    found = await request.service.of(OutputAdmin).read(
        request.caller, request["id"], request["after"]
    )
    withheld = not request.caller.may("job.payload")
    return ApiResponse({"items": [json_of(each) for each in found], "data_withheld": withheld})


async def stream(request: BoundRequest) -> Response:
    """Stream what a chain emits as server-sent events, until the chain ends; `Last-Event-ID` goes on."""
    after = position_of(request.http.headers.get("last-event-id"), request["after"])
    # What is wrong with the chain is answered, not streamed.
    await request.service.chains.get(request.caller, request["id"])
    batches = request.service.of(OutputAdmin).follow(request.caller, request["id"], after)

    async def events() -> AsyncIterator[bytes]:
        access, broadcaster = StreamAccess(request), request.site.broadcaster
        yield OPENING
        async with aclosing(batches):
            async for some in batches:
                yield format_events(some)
                if broadcaster.is_closing or not await access.is_valid():
                    return

    return stream_response(request, events())


_ID = Param("id", "path", "id", text="The chain.")
_AFTER = Param("after", "query", text="The id of the last item that is known.", default="0")
_ONE = "/api/v1/chains/{id}/output"

ROUTES = (
    Route("GET", _ONE, "output.read", get, (_ID, _AFTER), other_noun="output"),
    Route(
        "GET",
        f"{_ONE}/stream",
        "output.read",
        stream,
        (_ID, _AFTER),
        media=MEDIA,
        other_noun="output",
    ),
)

"""Output as a response of FastAPI or Starlette."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast.client.start_options import Id
from holdfast.core.errors import HoldfastError
from holdfast.web.disconnect import stop_event
from holdfast_output.output import ChainOutput
from holdfast_output.server_sent import (
    HEADERS,
    MEDIA,
    PROBLEM,
    position_of,
    refuse,
    stream_events_async,
)

LOOK_S = 1.0
"""How often a stream looks whether its server is stopping."""


def stream_response(
    output: ChainOutput, chain: Id, request: Request, *, after: int | None = None
) -> Response:
    """Return a chain's output as server-sent events, from `Last-Event-ID` on if the browser sends one.

    A chain or a position that does not exist is answered as by the API, before the stream begins. Check before that the
    caller may read the chain.
    """
    try:
        position = position_of(request.headers.get("last-event-id"), after)
    except HoldfastError as error:
        return _refusal(error)
    return _OutputResponse(output, chain, position)


class _OutputResponse(StreamingResponse):
    """A stream that sees whether there is its chain before it begins: it is made where nothing can be awaited."""

    def __init__(self, output: ChainOutput, chain: Id, after: int) -> None:
        events = stream_events_async(output, chain, after, is_over=_is_stopping, look_s=LOOK_S)
        super().__init__(events, media_type=MEDIA, headers=HEADERS)
        self._output = output
        self._chain = chain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._output.aio.check(self._chain)
        except HoldfastError as error:
            await _refusal(error)(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def _refusal(error: HoldfastError) -> Response:
    body, status = refuse(error)
    return Response(body, status, media_type=PROBLEM)


def _is_stopping() -> bool:
    return stop_event().is_set()

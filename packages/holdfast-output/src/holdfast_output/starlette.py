"""Output as a response of FastAPI or Starlette."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import StreamingResponse

from holdfast.client.start_options import Id
from holdfast.web.disconnect import stop_event
from holdfast_output.output import ChainOutput
from holdfast_output.server_sent import HEADERS, MEDIA, position_of, stream_events_async

LOOK_S = 1.0
"""How often a stream looks whether its server is stopping."""


def stream_response(
    output: ChainOutput, chain: Id, request: Request, *, after: int | None = None
) -> StreamingResponse:
    """Return a chain's output as server-sent events, from `Last-Event-ID` on if the browser sends one.

    Check before that the caller may read the chain. Raises: OutputPositionInvalid.
    """
    position = position_of(request.headers.get("last-event-id"), after)
    events = stream_events_async(output, chain, position, is_over=_is_stopping, look_s=LOOK_S)
    return StreamingResponse(events, media_type=MEDIA, headers=HEADERS)


def _is_stopping() -> bool:
    return stop_event().is_set()

"""Output as a response of Django, under WSGI and ASGI."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse

from holdfast.client.start_options import Id
from holdfast_output.output import ChainOutput
from holdfast_output.server_sent import (
    HEADERS,
    MEDIA,
    position_of,
    stream_events,
    stream_events_async,
)


def stream_response(
    output: ChainOutput, chain: Id, request: HttpRequest, *, after: int | None = None
) -> StreamingHttpResponse:
    """Return a chain's output as server-sent events, from `Last-Event-ID` on if the browser sends one.

    Under WSGI it takes a thread of the server for as long as it lasts. Check before that the caller may read the chain.
    Raises: OutputPositionInvalid.
    """
    position = position_of(request.headers.get("Last-Event-ID"), after)
    events: Iterator[bytes] | AsyncIterator[bytes]
    if isinstance(request, ASGIRequest):
        events = stream_events_async(output, chain, position)
    else:
        events = stream_events(output, chain, position)
    return StreamingHttpResponse(events, content_type=MEDIA, headers=HEADERS)

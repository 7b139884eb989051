"""Output as a response of Django, under WSGI and ASGI."""

from __future__ import annotations

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from holdfast.client.start_options import Id
from holdfast.core.errors import HoldfastError
from holdfast_output.output import ChainOutput
from holdfast_output.server_sent import (
    HEADERS,
    MEDIA,
    PROBLEM,
    position_of,
    refuse,
    stream_events,
    stream_events_async,
)


def stream_response(
    output: ChainOutput, chain: Id, request: HttpRequest, *, after: int | None = None
) -> HttpResponseBase:
    """Return a chain's output as server-sent events, from `Last-Event-ID` on if the browser sends one.

    A chain or a position that does not exist is answered as by the API, before the stream begins. Under WSGI it takes a
    thread of the server for as long as it lasts. Check before that the caller may read the chain.
    """
    try:
        position = position_of(request.headers.get("Last-Event-ID"), after)
        if isinstance(request, ASGIRequest):
            return _AsyncOutputResponse(output, chain, position)
        output.check(chain)
    except HoldfastError as error:
        return _refusal(error)
    events = stream_events(output, chain, position)
    return StreamingHttpResponse(events, content_type=MEDIA, headers=HEADERS)


class _AsyncOutputResponse(StreamingHttpResponse):
    """A stream that sees whether there is its chain before it begins: it is made where nothing can be awaited.

    Django awaits `render` of a view's response before it sends anything, as for templates, and takes what it returns.
    """

    def __init__(self, output: ChainOutput, chain: Id, after: int) -> None:
        events = stream_events_async(output, chain, after)
        super().__init__(events, content_type=MEDIA, headers=HEADERS)
        self._output = output
        self._chain = chain

    async def render(self) -> HttpResponseBase:
        try:
            await self._output.aio.check(self._chain)
        except HoldfastError as error:
            return _refusal(error)
        return self


def _refusal(error: HoldfastError) -> HttpResponse:
    body, status = refuse(error)
    return HttpResponse(body, content_type=PROBLEM, status=status)

"""Output as a response of Flask."""

from __future__ import annotations

from flask import Request, Response

from holdfast.client.start_options import Id
from holdfast.core.errors import HoldfastError
from holdfast_output.output import ChainOutput
from holdfast_output.server_sent import HEADERS, MEDIA, PROBLEM, position_of, refuse, stream_events


def stream_response(
    output: ChainOutput, chain: Id, request: Request, *, after: int | None = None
) -> Response:
    """Return a chain's output as server-sent events, from `Last-Event-ID` on if the browser sends one.

    A chain or a position that does not exist is answered as by the API, before the stream begins. It takes a thread of
    the server for as long as it lasts. Check before that the caller may read the chain.
    """
    try:
        position = position_of(request.headers.get("Last-Event-ID"), after)
        output.check(chain)
    except HoldfastError as error:
        body, status = refuse(error)
        return Response(body, status, mimetype=PROBLEM)
    return Response(stream_events(output, chain, position), mimetype=MEDIA, headers=HEADERS)

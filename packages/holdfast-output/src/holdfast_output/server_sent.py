"""Output as server-sent events: one for each item, with its position as the id, and one for the end.

A browser that loses its connection sends the id of the last event as `Last-Event-ID`, and goes on from there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from holdfast.client.start_options import Id
from holdfast.core.errors import HoldfastError
from holdfast.core.redaction import redact
from holdfast_output.output import ChainOutput, OutputEnd, OutputItem, check_position

MEDIA = "text/event-stream"
PROBLEM = "application/problem+json"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
ALIVE_S = 15.0
"""How often a comment is sent while nothing else is, so that proxies keep the connection."""

OPENING = b"retry: 2000\n\n"
ALIVE = b": alive\n\n"


def position_of(last_event_id: str | None, after: object = None) -> int:
    """Return where a reader goes on: behind the event that it had last. Raises: OutputPositionInvalid."""
    return check_position(last_event_id if last_event_id else 0 if after is None else after)


def refuse(error: HoldfastError) -> tuple[bytes, int]:
    """Return the body and the status that answer an error before a stream begins."""
    document = {
        "type": f"urn:holdfast:error:{error.code}",
        "title": (type(error).__doc__ or "").partition("\n")[0].removesuffix("."),
        "status": error.http_status,
        "detail": redact(error.message),
        "code": error.code,
        "help": error.help,
    }
    return msgspec.json.encode(document), error.http_status


def json_of(item: OutputItem) -> dict[str, Any]:
    """Return an item for programs."""
    return {"id": item.id, "job": str(item.job_id), "epoch": item.epoch, "data": item.data}


def format_events(some: Sequence[OutputItem] | OutputEnd) -> bytes:
    """Write what came as events; nothing came, as a sign of life."""
    if isinstance(some, OutputEnd):
        return b"event: end\ndata: %b\n\n" % msgspec.json.encode({"state": some.state})
    if not some:
        return ALIVE
    return b"".join(
        b"id: %d\ndata: %b\n\n" % (item.id, msgspec.json.encode(json_of(item))) for item in some
    )


def stream_events(output: ChainOutput, chain: Id, after: int) -> Iterator[bytes]:
    """Yield a chain's output as events, until the chain ends. Raises: as `ChainOutput.follow`."""
    yield OPENING
    for some in output.follow_batches(chain, after=after, within_s=ALIVE_S):
        yield format_events(some)


async def stream_events_async(
    output: ChainOutput,
    chain: Id,
    after: int,
    *,
    is_over: Callable[[], bool] = lambda: False,
    look_s: float = ALIVE_S,
) -> AsyncIterator[bytes]:
    """Async version of `stream_events`; it also ends once `is_over`, for which it looks every so often."""
    yield OPENING
    batches = output.aio.follow_batches(chain, after=after, within_s=look_s)
    async with aclosing(batches):
        async for some in batches:
            if is_over():
                return
            yield format_events(some)

"""Streams as server-sent events: hints that something may have changed, and jobs as they change."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

from holdfast.admin.access import check
from holdfast.admin.jobs import Watch
from holdfast.core.errors import HoldfastError
from holdfast.web.broadcaster import MIN_INTERVAL_S
from holdfast.web.route import FILTER, BoundRequest, Param, Route

TAIL_LENGTH = 200
"""How many of the newest jobs a tail watches."""

RECHECK_S = 10.0
"""How often a stream authenticates again: a revoked token ends its streams."""

log = logging.getLogger("holdfast.web")

_ACTION = "tail.read"
_MEDIA = "text/event-stream"
_OPENING = b"retry: 2000\n\n"


async def live(request: BoundRequest) -> Response:
    """Stream hints that something may have changed, as server-sent events."""

    async def hints() -> AsyncIterator[bytes]:
        access = _Access(request)
        async with request.site.broadcaster.subscribe() as subscriber:
            yield _OPENING
            while not request.site.broadcaster.is_closing and await access.is_valid():
                yield _event("hint", await subscriber.next_hint())
                await asyncio.sleep(MIN_INTERVAL_S)

    return _stream(request, hints())


async def tail(request: BoundRequest) -> Response:
    """Stream jobs that appear or change state, as server-sent events."""
    watch = Watch()

    async def read_changes() -> list[dict[str, Any]]:
        return await request.service.jobs.changes(
            request.caller, request["filter"], watch, TAIL_LENGTH
        )

    earlier = await read_changes()

    async def changes() -> AsyncIterator[bytes]:
        access = _Access(request)
        async with request.site.broadcaster.subscribe() as subscriber:
            yield _OPENING
            for job in earlier[max(0, len(earlier) - request["lines"]) :]:
                yield _event("job", job)
            while not request.site.broadcaster.is_closing and await access.is_valid():
                await subscriber.next_hint(1.0)
                for job in await read_changes():
                    yield _event("job", job)
                yield b": alive\n\n"
                await asyncio.sleep(MIN_INTERVAL_S)

    return _stream(request, changes())


class _Access:
    """Whether the caller may still read a stream; streams outlive tokens."""

    def __init__(self, request: BoundRequest) -> None:
        self._request = request
        self._checked_at = time.monotonic()

    async def is_valid(self) -> bool:
        """Authenticate again, if the last time is long ago."""
        if time.monotonic() - self._checked_at < RECHECK_S:
            return True
        self._checked_at = time.monotonic()
        try:
            found = await self._request.site.authenticator.authenticate(self._request.http)
            check(found.principal, _ACTION)
        except HoldfastError:
            return False
        return True


def _event(event: str, value: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(value))


def _stream(request: BoundRequest, events: AsyncIterator[bytes]) -> Response:
    headers = {"X-Accel-Buffering": "no"}
    if request.http.method == "HEAD":
        # Nothing reads the body, so nothing would ever end it.
        return Response(media_type=_MEDIA, headers=headers)
    return StreamingResponse(_until_error(events), media_type=_MEDIA, headers=headers)


async def _until_error(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """End a stream quietly when the database is unreachable; its reader reconnects."""
    try:
        async for each in events:
            yield each
    except HoldfastError as error:
        log.info("a stream ended: %s", error)


_LINES = Param(
    "lines", "query", "number", "Number of past lines to send first.", 10, 0, TAIL_LENGTH
)

ROUTES = (
    Route("GET", "/api/v1/live", _ACTION, live, media=_MEDIA),
    Route("GET", "/api/v1/tail", _ACTION, tail, (FILTER, _LINES), media=_MEDIA),
)

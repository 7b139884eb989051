"""Streams over HTTP, as server-sent events: hints that something may have changed, and jobs as they change."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

from holdfast.admin.jobs import Watch
from holdfast.admin.roles import check
from holdfast.core.errors import HoldfastError
from holdfast.web.bound_request import Call
from holdfast.web.broadcaster import SHORTEST_S
from holdfast.web.route import FILTER, Param, Route

TAIL_LOOK = 200
"""The newest jobs that a tail watches."""

ASKED_AGAIN_S = 10.0
"""So often the door is asked again for whoever watches: a token that was revoked ends what it opened."""

log = logging.getLogger("holdfast.web")

_ACTION = "tail.read"
_MEDIA = "text/event-stream"
_BEGINNING = b"retry: 2000\n\n"


async def live(call: Call) -> Response:
    """Tell when something may have changed."""

    async def news() -> AsyncIterator[bytes]:
        welcome = _Welcome(call)
        async with call.site.live.watch() as watcher:
            yield _BEGINNING
            while not call.site.live.is_closing and await welcome.lasts():
                found = await watcher.news()
                yield _sent("hint", found)
                await call.site.pause(SHORTEST_S)

    return _stream(call, news())


async def tail(call: Call) -> Response:
    """Follow jobs."""
    watch = Watch()

    async def look() -> list[dict[str, Any]]:
        return await call.service.jobs.changes(call.caller, call["filter"], watch, TAIL_LOOK)

    earlier = await look()

    async def changes() -> AsyncIterator[bytes]:
        welcome = _Welcome(call)
        async with call.site.live.watch() as watcher:
            yield _BEGINNING
            for job in earlier[max(0, len(earlier) - call["lines"]) :]:
                yield _sent("job", job)
            while not call.site.live.is_closing and await welcome.lasts():
                await watcher.news(1.0)
                for job in await look():
                    yield _sent("job", job)
                yield b": alive\n\n"
                await call.site.pause(SHORTEST_S)

    return _stream(call, changes())


class _Welcome:
    """Whether the caller may go on watching; streams outlive tokens."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._asked_at = time.monotonic()

    async def lasts(self) -> bool:
        """Ask the door again, if the last time is long ago."""
        if time.monotonic() - self._asked_at < ASKED_AGAIN_S:
            return True
        self._asked_at = time.monotonic()
        try:
            entry = await self._call.site.door.enter(self._call.request)
            check(entry.principal, _ACTION)
        except HoldfastError:
            return False
        return True


def _sent(event: str, value: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(value))


def _stream(call: Call, parts: AsyncIterator[bytes]) -> Response:
    headers = {"X-Accel-Buffering": "no"}
    if call.request.method == "HEAD":
        # Nobody reads on, so nobody would ever end it.
        return Response(media_type=_MEDIA, headers=headers)
    return StreamingResponse(_until_trouble(parts), media_type=_MEDIA, headers=headers)


async def _until_trouble(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """End a stream whose database is away as any other ends; its reader comes again by itself."""
    try:
        async for each in parts:
            yield each
    except HoldfastError as error:
        log.info("a stream ended: %s", error)


_LINES = Param("lines", "query", "number", "Of what happened before, this many.", 10, 0, TAIL_LOOK)

ROUTES = (
    Route(
        "GET",
        "/api/v1/live",
        _ACTION,
        live,
        "Stream hints that something may have changed, as server-sent events.",
        media=_MEDIA,
        tag="streams",
    ),
    Route(
        "GET",
        "/api/v1/tail",
        _ACTION,
        tail,
        "Stream jobs that appear or change their state, as server-sent events.",
        (FILTER, _LINES),
        media=_MEDIA,
        tag="streams",
    ),
)

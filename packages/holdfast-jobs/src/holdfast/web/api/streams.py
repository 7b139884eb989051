"""Streams as server-sent events: hints that something may have changed, and jobs as they change.

One listener serves every open stream of the process; hints are coalesced, none is queued.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast.admin.access import Caller, check
from holdfast.admin.jobs import Watch
from holdfast.core.errors import HoldfastError, StreamsFull, TooManyStreams
from holdfast.notify.base import Hint, Listener, Notifier
from holdfast.web.route import FILTER, BoundRequest, Param, Route

MIN_INTERVAL_S = 0.5
"""A stream sends hints at most this often."""

MAX_INTERVAL_S = 5.0
"""Without any hint a stream sends an empty one all the same: hints may be lost."""


TAIL_LENGTH = 200
"""How many of the newest jobs a tail watches."""

RECHECK_S = 10.0
"""How often a stream authenticates again: a revoked token ends its streams."""

RETRY_S = 10
"""When a refused stream may be tried again."""

log = logging.getLogger("holdfast.web")

_ACTION = "tail.read"
_MEDIA = "text/event-stream"
_OPENING = b"retry: 2000\n\n"


class ChangeHint(msgspec.Struct, frozen=True):
    """What may have changed since the previous hint."""

    kinds: list[str]
    types: list[str]


class Subscriber:
    """One open stream; hints that arrive between two reads are merged, and kept from one that `hears` none."""

    def __init__(self, hears: bool) -> None:
        self._hears = hears
        self._kinds: set[str] = set()
        self._types: set[str] = set()
        self._arrived = asyncio.Event()

    def notify(self, hint: Hint) -> None:
        """Add a hint. Pages show nothing of waiters, so hints about them are ignored."""
        if hint.kind == "awaited" or not self._hears:
            return
        self._kinds.add(hint.kind)
        if hint.type:
            self._types.add(hint.type)
        self.wake()

    def wake(self) -> None:
        """End the wait for a hint."""
        self._arrived.set()

    async def next_hint(self, within_s: float = MAX_INTERVAL_S) -> ChangeHint:
        """Wait for hints and return them merged; an empty one when none arrives in time."""
        try:
            async with asyncio.timeout(within_s):
                await self._arrived.wait()
        except TimeoutError:
            pass
        self._arrived.clear()
        merged = ChangeHint(sorted(self._kinds), sorted(self._types))
        self._kinds, self._types = set(), set()
        return merged


class Broadcaster:
    """The open streams of this process. The listener exists only while there are any."""

    def __init__(self, notifier: Callable[[], Notifier]) -> None:
        self._notifier = notifier
        self._subscribers: set[Subscriber] = set()
        self._listener: Listener | None = None
        self._closing = False

    @property
    def subscribers(self) -> int:
        """How many streams are open."""
        return len(self._subscribers)

    @property
    def is_closing(self) -> bool:
        """Whether streams should end because the process does."""
        return self._closing

    @asynccontextmanager
    async def subscribe(self, caller: Caller | None = None) -> AsyncIterator[Subscriber]:
        """Receive hints for as long as the block lasts; they tell of all jobs, so confined callers get none."""
        subscriber = Subscriber(hears=caller is None or not caller.principal.only)
        self._subscribers.add(subscriber)
        try:
            if self._listener is None:
                self._listener = self._listen(asyncio.get_running_loop())
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)
            if not self._subscribers:
                await self._stop_listening()

    def end_streams(self) -> None:
        """Let every stream end at its next turn."""
        self._closing = True
        for each in self._subscribers:
            each.wake()

    async def close(self) -> None:
        """End all streams and stop listening."""
        self.end_streams()
        await self._stop_listening()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> Listener:
        def on_hint(hint: Hint) -> None:
            loop.call_soon_threadsafe(self._notify, hint)

        return self._notifier().listen(on_hint)

    def _notify(self, hint: Hint) -> None:
        for each in self._subscribers:
            each.notify(hint)

    async def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            # The stream of a client that left is cancelled again in every turn, also while it ends.
            await asyncio.shield(asyncio.to_thread(listener.close))


class StreamLimit:
    """Counts the open streams of this process, in total and by principal."""

    def __init__(self, total: int, per_principal: int) -> None:
        self._total = total
        self._per_principal = per_principal
        self._open = Counter[str]()

    def acquire(self, principal: str) -> None:
        """Count a stream as open. Raises: TooManyStreams, StreamsFull."""
        if self._open[principal] >= self._per_principal:
            raise TooManyStreams(f"{principal} has {self._open[principal]} open streams", RETRY_S)
        if self._open.total() >= self._total:
            raise StreamsFull(f"this server has {self._total} open streams", RETRY_S)
        self._open[principal] += 1

    def release(self, principal: str) -> None:
        """Count a stream as closed."""
        self._open[principal] -= 1
        if not self._open[principal]:
            del self._open[principal]


async def live(request: BoundRequest) -> Response:
    """Stream hints that something may have changed, as server-sent events."""

    async def hints() -> AsyncIterator[bytes]:
        access = StreamAccess(request)
        async with request.site.broadcaster.subscribe(request.caller) as subscriber:
            yield _OPENING
            while not request.site.broadcaster.is_closing and await access.is_valid():
                yield _event("hint", await subscriber.next_hint())
                await asyncio.sleep(MIN_INTERVAL_S)

    return stream_response(request, hints())


async def tail(request: BoundRequest) -> Response:
    """Stream jobs that appear or change state, as server-sent events."""
    watch = Watch()

    async def read_changes() -> list[dict[str, Any]]:
        return await request.service.jobs.changes(
            request.caller, request["filter"], watch, TAIL_LENGTH
        )

    earlier = await read_changes()

    async def changes() -> AsyncIterator[bytes]:
        access = StreamAccess(request)
        async with request.site.broadcaster.subscribe(request.caller) as subscriber:
            yield _OPENING
            for job in earlier[max(0, len(earlier) - request["lines"]) :]:
                yield _event("job", job)
            while not request.site.broadcaster.is_closing and await access.is_valid():
                await subscriber.next_hint(1.0)
                for job in await read_changes():
                    yield _event("job", job)
                yield b": alive\n\n"
                await asyncio.sleep(MIN_INTERVAL_S)

    return stream_response(request, changes())


class StreamAccess:
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
            return found.principal.only == self._request.caller.principal.only
        except HoldfastError:
            return False


def _event(event: str, value: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(value))


def stream_response(request: BoundRequest, events: AsyncIterator[bytes]) -> Response:
    """Return events as a stream that counts among the caller's. Raises: TooManyStreams, StreamsFull."""
    headers = {"X-Accel-Buffering": "no"}
    if request.http.method == "HEAD":
        # Nothing reads the body, so nothing would ever end it.
        return Response(media_type=_MEDIA, headers=headers)
    return _LimitedStream(request, _until_error(events), media_type=_MEDIA, headers=headers)


class _LimitedStream(StreamingResponse):
    """A stream that counts as open from its creation on; its events may never begin, so they cannot count it."""

    def __init__(self, request: BoundRequest, events: AsyncIterator[bytes], **more: Any) -> None:
        """Raises: TooManyStreams, StreamsFull."""
        super().__init__(events, **more)
        self._limit = request.site.stream_limit
        self._principal = request.caller.name
        self._limit.acquire(self._principal)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._limit.release(self._principal)


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

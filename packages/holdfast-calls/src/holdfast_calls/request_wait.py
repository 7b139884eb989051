"""Respond to a request when its result is ready, or accept it for later: 200, 202 or 422.

A request waits for a chain, or for a condition in the application's own tables. Requests that wait for
the same thing share their looks, and the more of them there are, the less often each one looks.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar, overload
from weakref import WeakKeyDictionary

import msgspec

from holdfast.core.errors import MissingExtra

try:
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
except ImportError as error:
    raise MissingExtra(
        "wait_or_accept needs starlette", help='pip install "holdfast-jobs[calls,web]"'
    ) from error

from holdfast.app import Holdfast
from holdfast.client.start_options import Id, id_text
from holdfast.client.views import Chain
from holdfast.core.errors import (
    BadRequest,
    ChainCancelled,
    ChainDeleted,
    ChainFailed,
    ChainNotFound,
    HoldfastError,
    InvalidId,
    InvalidOption,
    WaitTimeout,
)
from holdfast.core.events import EventSpec
from holdfast.web.disconnect import while_connected
from holdfast.web.middleware import given_request_id
from holdfast.web.problems import problem_response
from holdfast_calls.events import WAIT_FINISHED, WAIT_STARTED

T = TypeVar("T")

DEFAULT_MS = 15_000
MAX_MS = 30_000
RETRY_AFTER_MS = 1_000
PARAMETER = "waitMs"

SHORTEST_S = 0.1
MAX_PAUSE_S = 1.0
GROWTH = 1.5
LOOKS_PER_S = 20
"""How often all requests of an event loop look together; waiting for a chain's end costs none of these."""
FIRST_LOOK_S = 10.0
"""How long a request waits for its first look, whatever its own limit is."""

_DIGITS = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Ready(Generic[T]):
    """A look found the result."""

    value: T


@dataclass(frozen=True, slots=True)
class Failed:
    """A look found that there will be no result. While the chain may still be retried, this does not count."""

    error: Any = None


Found: TypeAlias = Ready[T] | Failed | None
"""What a look finds; None while it is pending."""

Look: TypeAlias = Callable[[], Awaitable[Found[T]]]
"""Looks once. It opens its own short session: one held while waiting would take a connection from the pool."""

StartWork: TypeAlias = Callable[[], Awaitable[Id]]
"""Starts a chain, in a transaction of its own, and returns it."""

WaitedState = Literal["ready", "pending", "failed", "rejected"]


@dataclass(frozen=True, slots=True)
class Waited(Generic[T]):
    """How a wait ended.

    ready: `value` is what the look found, or the chain's output. pending: the time is up, the client has disconnected
    or the server is stopping. failed: `error` is what the look found, or the chain's ChainFailed or ChainCancelled.
    rejected: `error` says what is wrong with the request, such as an invalid waitMs or a chain that does not exist.
    """

    state: WaitedState
    value: T | None = None
    error: Any = None
    retry_after_ms: int = RETRY_AFTER_MS
    request_id: str = ""

    def response(
        self,
        *,
        ready: Callable[[T], Any] | Mapping[str, Any] | None = None,
        failed: Callable[[Any], Any] | Mapping[str, Any] | None = None,
        pending: Callable[[int], Any] | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Respond with 200, 202 with Retry-After, 422, or the problem document of a rejection.

        Each body is JSON, or a function that returns it: `ready` gets the value, `failed` the error and `pending` the
        milliseconds after which to ask again.
        """
        given = dict(headers or {})
        match self.state:
            case "ready":
                return _json(200, self.value if ready is None else _body(ready, self.value), given)
            case "failed":
                shown = {"status": "FAILED"} if failed is None else _body(failed, self.error)
                return _json(422, shown, given)
            case "rejected":
                return problem_response(self.error, self.request_id)
            case "pending":
                after = self.retry_after_ms
                usual = {"status": "PENDING", "retryAfterMs": after}
                given["Retry-After"] = str(math.ceil(after / 1000))
                return _json(202, usual if pending is None else _body(pending, after), given)


@overload
async def wait_or_accept(
    request: Request,
    jobs: Holdfast,
    chain: Id | StartWork,
    *,
    wait_ms: int | str | None = None,
    default_ms: int = DEFAULT_MS,
    max_ms: int = MAX_MS,
    retry_after_ms: int = RETRY_AFTER_MS,
) -> Waited[Any]: ...
@overload
async def wait_or_accept(
    request: Request,
    jobs: Holdfast | None = None,
    chain: Id | StartWork | None = None,
    *,
    look: Look[T],
    key: Hashable | None = None,
    wait_ms: int | str | None = None,
    default_ms: int = DEFAULT_MS,
    max_ms: int = MAX_MS,
    retry_after_ms: int = RETRY_AFTER_MS,
) -> Waited[T]: ...
async def wait_or_accept(
    request: Request,
    jobs: Holdfast | None = None,
    chain: Id | StartWork | None = None,
    *,
    look: Look[Any] | None = None,
    key: Hashable | None = None,
    wait_ms: int | str | None = None,
    default_ms: int = DEFAULT_MS,
    max_ms: int = MAX_MS,
    retry_after_ms: int = RETRY_AFTER_MS,
) -> Waited[Any]:
    """Wait for a chain, or until a look finds its result, but no longer than the client is connected.

    chain: a committed chain, or an async function that starts and commits one. The function is not called for a
    request that is rejected. With a look and a chain, the chain's end triggers a look, and `Failed` counts only when
    the chain has ended. Requests with the same `key` share their looks: put everything that the look
    depends on into it, such as the tenant. wait_ms: by default the query parameter waitMs; more than `max_ms` is
    `max_ms`, and 0 looks once. Read the request's body before.

    Raises: InvalidOption; what the look raises; DatabaseError.
    """
    _check_target(jobs, chain, look, key)
    _check_times(default_ms, max_ms, retry_after_ms)
    with _MeasuredWait(jobs) as measured:
        try:
            timeout_s = _milliseconds(request, wait_ms, default_ms, max_ms) / 1000
        except BadRequest as error:
            return measured.reject(request, error)
        id = await chain() if callable(chain) else chain
        try:
            found = await while_connected(request, _find(jobs, id, look, key, timeout_s))
        except (InvalidId, ChainNotFound, ChainDeleted) as error:
            return measured.reject(request, error)
        except (ClientDisconnect, WaitTimeout):
            found = None
        if isinstance(found, Ready):
            measured.state = "ready"
            return Waited("ready", value=found.value)
        if isinstance(found, Failed):
            measured.state = "failed"
            return Waited("failed", error=found.error)
        return Waited("pending", retry_after_ms=retry_after_ms)


class _MeasuredWait:
    """Reports a wait and how many there are; a wait without an application has no observers."""

    _waiting: WeakKeyDictionary[Holdfast, int] = WeakKeyDictionary()

    def __init__(self, jobs: Holdfast | None) -> None:
        self._jobs = jobs
        self._began = time.monotonic()
        self.state: WaitedState = "pending"

    def __enter__(self) -> Self:
        self._tell(1, WAIT_STARTED)
        return self

    def __exit__(self, *_: object) -> None:
        taken_ms = int((time.monotonic() - self._began) * 1000)
        self._tell(-1, WAIT_FINISHED, state=self.state, duration_ms=taken_ms)

    def reject(self, request: Request, error: Exception) -> Waited[Any]:
        """End the wait because of what was asked for."""
        self.state = "rejected"
        return Waited("rejected", error=error, request_id=given_request_id(request))

    def _tell(self, change: int, kind: EventSpec, **fields: Any) -> None:
        if self._jobs is not None:
            waiting = self._waiting.get(self._jobs, 0) + change
            self._waiting[self._jobs] = waiting
            self._jobs.tell([kind(waiting=waiting, **fields)])


def _check_target(
    jobs: Holdfast | None,
    chain: Id | StartWork | None,
    look: Look[Any] | None,
    key: Hashable | None,
) -> None:
    if chain is None and look is None:
        raise InvalidOption("there is nothing to wait for", help="pass a chain, a look, or both")
    if chain is not None and jobs is None:
        raise InvalidOption("a chain needs its application", help="pass the Holdfast object too")
    if key is not None and look is None:
        raise InvalidOption(
            "a key needs a look", help="omit the key: waits for chains always share a query"
        )


def _check_times(default_ms: int, max_ms: int, retry_after_ms: int) -> None:
    if not 0 <= default_ms <= max_ms:
        raise InvalidOption(f"default_ms={default_ms} is not between 0 and max_ms={max_ms}")
    if retry_after_ms < 0:
        raise InvalidOption(f"retry_after_ms={retry_after_ms} is negative")


def _milliseconds(request: Request, wanted: int | str | None, default_ms: int, max_ms: int) -> int:
    """Return how long to wait. Raises: BadRequest."""
    given = request.query_params.getlist(PARAMETER) if wanted is None else [str(wanted)]
    if not given:
        return default_ms
    if len(given) > 1 or not _DIGITS.fullmatch(given[0]):
        shown = " and ".join(repr(each[:20]) for each in given[:3])
        raise BadRequest(
            f"{PARAMETER} is {shown}",
            help=f"send a whole number of milliseconds, or omit it; more than {max_ms} counts as {max_ms}",
        )
    digits = given[0].lstrip("0")
    # So many digits are more than any limit, and Python refuses to read thousands of them.
    return max_ms if len(digits) > 9 else min(int(digits or "0"), max_ms)


async def _find(
    jobs: Holdfast | None,
    chain: Id | None,
    look: Look[Any] | None,
    key: Hashable | None,
    timeout_s: float,
) -> Found[Any]:
    """Wait for a chain, or with the requests that look at the same thing. Raises: WaitTimeout."""
    # By its id: what responses are made of is plain JSON, whichever way the chain was passed.
    id = None if chain is None else id_text(chain)
    if look is None:
        assert jobs is not None
        assert id is not None
        try:
            return Ready((await jobs.aio.chains.wait(id, timeout_s)).output)
        except (ChainFailed, ChainCancelled) as error:
            return Failed(error)
    watches = _WATCHES.setdefault(asyncio.get_running_loop(), {})
    place: Hashable = object() if key is None else (key, id)
    watch = watches.get(place)
    if watch is None:
        chain_end = None if jobs is None or id is None else partial(jobs.aio.chains.wait, id)
        watch = watches[place] = SharedLook(watches, place, chain_end)
    return await watch.wait(look, timeout_s)


class SharedLook(Generic[T]):
    """Looks for all requests that wait for one thing, for as long as there are any. On one event loop."""

    def __init__(
        self,
        watches: dict[Hashable, SharedLook[Any]],
        place: Hashable,
        chain_end: Callable[[float | None], Coroutine[Any, Any, Chain]] | None,
    ) -> None:
        self._watches = watches
        self._place = place
        self._looks: dict[asyncio.Future[None], Look[T]] = {}
        self._unserved: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._find: asyncio.Future[Found[T]] = asyncio.get_running_loop().create_future()
        self._chain_end = chain_end
        self._has_ended = chain_end is None
        self._chain_error: Exception | None = None
        self._tasks = [asyncio.create_task(self._run())]
        if chain_end is not None:
            self._tasks.append(asyncio.create_task(self._see_chain(None)))

    async def wait(self, look: Look[T], timeout_s: float) -> Found[T]:
        """Wait for the result: at least for a look that begins from now on, at most for the timeout."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        looked = loop.create_future()
        self._looks[looked] = look
        self._unserved.append(looked)
        self._wake.set()
        try:
            await asyncio.wait(
                {looked, self._find},
                timeout=max(timeout_s, FIRST_LOOK_S),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not self._find.done():
                await asyncio.wait({self._find}, timeout=max(0.0, until - loop.time()))
            return self._find.result() if self._find.done() else None
        finally:
            del self._looks[looked]
            if not self._looks:
                await self._stop()

    async def _stop(self) -> None:
        self._leave()
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _leave(self) -> None:
        if self._watches.get(self._place) is self:
            del self._watches[self._place]

    async def _run(self) -> None:
        try:
            found = await self._until_found()
        except Exception as error:
            self._leave()
            self._find.set_exception(error)
            # All who waited may have left.
            self._find.exception()
        else:
            self._leave()
            self._find.set_result(found)

    async def _until_found(self) -> Found[T]:
        pause_s = SHORTEST_S
        while True:
            self._wake.clear()
            served, self._unserved = self._unserved, []
            if served and not self._has_ended:
                await self._see_chain(0)
            # Read before the look, so that the look saw what the chain's last transaction wrote.
            has_ended = self._has_ended
            found = self._judge(await next(iter(self._looks.values()))(), has_ended)
            if found is not None:
                return found
            for each in served:
                if not each.done():
                    each.set_result(None)
            # Together they look no more often than a few requests alone would.
            least_s = len(self._watches) / LOOKS_PER_S
            if await self._pause(max(pause_s, least_s)):
                pause_s = SHORTEST_S
            else:
                pause_s = min(MAX_PAUSE_S, pause_s * GROWTH)

    async def _see_chain(self, timeout_s: float | None) -> None:
        """Note how the chain has ended, if it does so in time; one who waits for it wakes the looks."""
        assert self._chain_end is not None
        try:
            await self._chain_end(timeout_s)
        except Exception as error:
            if isinstance(error, HoldfastError) and error.retryable:
                return  # it is still running, or the database cannot say
            self._chain_error = error
        if timeout_s is None and not self._has_ended:
            self._wake.set()
        self._has_ended = True

    async def _pause(self, seconds: float) -> bool:
        """Wait for a reason to look; False when none came and time passed."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    def _judge(self, found: Found[T], has_ended: bool) -> Found[T]:
        """Weigh what a look found against the chain. Raises: ChainNotFound, ChainDeleted, InvalidId."""
        if isinstance(found, Ready) or self._chain_end is None:
            return found
        if not has_ended:
            return None
        if found is not None:
            return found
        error = self._chain_error
        if isinstance(error, ChainFailed | ChainCancelled):
            return Failed(error)
        if isinstance(error, ChainNotFound):
            raise ChainNotFound(error.message, help="commit what started it before you wait for it")
        if error is not None:
            raise error
        return None


_WATCHES: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, SharedLook[Any]]] = (
    WeakKeyDictionary()
)


def _body(given: Callable[[Any], Any] | Mapping[str, Any], value: Any) -> Any:
    return given(value) if callable(given) else given


def _json(status: int, body: Any, headers: Mapping[str, str]) -> Response:
    content = msgspec.json.encode(body, enc_hook=_plain)
    return Response(content, status, headers, "application/json")


def _plain(value: Any) -> Any:
    """Return a pydantic model as JSON types."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise NotImplementedError

"""Requests that wait end early: when their client disconnects, and when the server is asked to stop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from starlette.requests import ClientDisconnect, Request

from holdfast.core.errors import WaitTimeout

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_STOPPING: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Event] = WeakKeyDictionary()


def stop_event() -> asyncio.Event:
    """Return the event that ends the waiting requests of the running loop, because its server stops."""
    return _STOPPING.setdefault(asyncio.get_running_loop(), asyncio.Event())


async def while_connected(request: Request, waiting: Coroutine[Any, Any, T]) -> T:
    """Wait, but no longer than the client and the server do; the coroutine is cancelled and has ended by then.

    Read the request's body before: what has not been read of it is dropped.

    Raises: ClientDisconnect; WaitTimeout when the server stops.
    """
    working = asyncio.create_task(waiting)
    leaving = asyncio.create_task(_wait_for_disconnect(request))
    ending = asyncio.create_task(stop_event().wait())
    tasks = (working, leaving, ending)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if leaving.done():
            raise ClientDisconnect
        raise WaitTimeout("the server is stopping")
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@contextmanager
def before_stop(act: Callable[[], object]) -> Iterator[None]:
    """Call back on the running loop when a signal asks the process to stop, before the server's own handler runs.

    Servers tell an application that they stop only when no request is left, and waits and streams would be.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    replaced = {each: _prepend(each, loop, act) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handlers in replaced.items():
            if handlers is not None and signal.getsignal(each) is handlers[0]:
                signal.signal(each, handlers[1])


Handler = Callable[[int, FrameType | None], Any]


def _prepend(
    number: signal.Signals, loop: asyncio.AbstractEventLoop, act: Callable[[], object]
) -> tuple[Handler, Handler] | None:
    """Put ours before the handler of a signal; return both, or None if the signal has none."""
    theirs = signal.getsignal(number)
    if not callable(theirs):
        return None

    def ours(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(act)
        theirs(number, frame)

    signal.signal(number, ours)
    return ours, theirs

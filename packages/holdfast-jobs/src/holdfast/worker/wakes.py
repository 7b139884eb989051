"""The two threads of a worker, and what its parts wake each other with.

All of it is made before the parts, so that one can wake another without knowing it.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Coroutine
from typing import Any


class WorkerThreads:
    """The worker's loop, and a thread with a loop of its own that goes on while a handler blocks the worker's."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._background: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._ended = asyncio.Event()
        self._error: BaseException | None = None

    def bind(self) -> None:
        """Note the worker's loop. Called on it."""
        self._loop = asyncio.get_running_loop()

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background. Called on the worker's loop."""
        self._thread = threading.Thread(
            target=self._run, args=(main,), name="holdfast-heartbeat", daemon=True
        )
        self._thread.start()
        self._started.wait()

    def to_loop(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call something on the worker's loop, soon; at once while there is none. From any thread."""
        if self._loop is None:
            function(*arguments)
        else:
            call_on(self._loop, function, *arguments)

    def to_background(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call something on the background's loop, soon; does nothing before it began and once it has ended."""
        call_on(self._background, function, *arguments)

    async def wait_ended(self) -> None:
        """Wait for the background's end without blocking the worker's loop. Raises: what ended it."""
        await self._ended.wait()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self, main: Coroutine[Any, Any, None]) -> None:
        try:
            asyncio.run(self._host(main))
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()
            self.to_loop(self._ended.set)

    async def _host(self, main: Coroutine[Any, Any, None]) -> None:
        self._background, self._main = asyncio.get_running_loop(), asyncio.current_task()
        self._started.set()
        await main

    def cancel_background(self) -> None:
        """End the background now."""
        if self._main is not None:
            self.to_background(self._main.cancel)


def call_on(
    loop: asyncio.AbstractEventLoop | None, function: Callable[..., object], *arguments: Any
) -> None:
    """Call something on a loop from any thread; does nothing when the loop is gone."""
    if loop is None or loop.is_closed():
        return
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        # It was closed between the check and the call.
        return


class Wake(asyncio.Event):
    """Wakes a part that waits on the worker's loop: `set` on that loop, `set_soon` from any thread."""

    def __init__(self, threads: WorkerThreads) -> None:
        super().__init__()
        self._threads = threads

    def set_soon(self) -> None:
        """Set it, soon."""
        self._threads.to_loop(self.set)


class BackgroundWake(Wake):
    """Wakes a part that waits in the background."""

    def set_soon(self) -> None:
        self._threads.to_background(self.set)


class ClaimWake(Wake):
    """Wakes the claimer."""

    def __init__(self, threads: WorkerThreads) -> None:
        super().__init__(threads)
        self._for_all = False
        self.is_more_coming = False
        """Whether a worker that ends when it is idle has to wait for more; read and written from any thread."""

    def set_for_all(self) -> None:
        """Have jobs of all types looked for, also where they were looked for before. From any thread."""
        self._for_all = True
        self.set_soon()

    def take_for_all(self) -> bool:
        """Return whether that was asked for, and forget it."""
        was_asked, self._for_all = self._for_all, False
        return was_asked


class DeadlineWake(BackgroundWake):
    """Wakes what enforces deadlines, which looks next at `next_at`."""

    def __init__(self, threads: WorkerThreads) -> None:
        super().__init__(threads)
        self.next_at = math.inf

    def expect(self, at: float) -> None:
        """Be sure to check at this time. From any thread; costs nothing when an earlier check is planned."""
        if at < self.next_at:
            self.set_soon()


class Wakes:
    """What wakes each part: of the worker's loop first, then of the background."""

    def __init__(self, threads: WorkerThreads) -> None:
        self.claims = ClaimWake(threads)
        self.flushes = Wake(threads)
        self.urgent_flushes = Wake(threads)
        self.suspects = Wake(threads)
        self.heartbeat = BackgroundWake(threads)
        self.orphans = BackgroundWake(threads)
        self.redrives = BackgroundWake(threads)
        self.signals = BackgroundWake(threads)
        self.deadlines = DeadlineWake(threads)


class Stop:
    """Whether a worker is to end, why, and how soon. On the loop."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.requested = asyncio.Event()
        self.now = asyncio.Event()
        self.reason = "asked"

    def request(self, reason: str) -> None:
        """Stop because somebody asked; the second request says now."""
        if self.requested.is_set():
            self.now.set()
        self.requested.set()
        self.begin(reason)

    def begin(self, reason: str) -> None:
        """Stop, for whatever reason; the first counts."""
        if not self.begun.is_set():
            self.reason = reason
            self.begun.set()

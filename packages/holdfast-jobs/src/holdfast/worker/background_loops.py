"""The loops beside the worker's own, from the heartbeat to the watchdog, and the thread that hosts them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from holdfast.storage.database import Link
from holdfast.worker.worker_context import WorkerContext


class BackgroundLoop:
    """A loop on the background thread; its methods are called on that thread."""

    def __init__(self, context: WorkerContext, link: Link) -> None:
        self._context = context
        self._link = link
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Run until stopped."""
        raise NotImplementedError

    def nudge(self) -> None:
        """Have the next round begin now."""
        self._wake.set()

    def stop(self) -> None:
        """End after the current round."""
        self._stopping.set()
        self._wake.set()


class BackgroundLoops:
    """Runs loops together; one that fails takes the others down, so that the worker notices."""

    def __init__(self, loops: Sequence[BackgroundLoop], links: Sequence[Link]) -> None:
        self._loops = loops
        self._links = links
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run until all have ended, then close their links. Raises: what ended one of them."""
        self._task = asyncio.current_task()
        try:
            async with asyncio.TaskGroup() as group:
                for each in self._loops:
                    group.create_task(each.run(), name=f"holdfast {type(each).__name__.lower()}")
        except* asyncio.CancelledError:
            pass
        finally:
            for link in self._links:
                await link.close()

    def stop(self) -> None:
        """Let each finish its current work. Called on their own loop."""
        for each in self._loops:
            each.stop()

    def cancel(self) -> None:
        """End now. Called on their own loop."""
        if self._task is not None:
            self._task.cancel()


class LoopThread:
    """Runs a coroutine on a loop of its own, so that it goes on while a handler blocks the worker's loop."""

    def __init__(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._main = main
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._ended = asyncio.Event()
        self._error: BaseException | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin. Called on the worker's loop."""
        self._home = asyncio.get_running_loop()
        self._thread.start()
        self._started.wait()

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call something on the hosted loop, soon; does nothing before it began and once it has ended."""
        call_on(self._loop, function, *arguments)

    async def wait_ended(self) -> None:
        """Wait for the end without blocking the worker's loop. Raises: what ended it."""
        await self._ended.wait()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._host())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()
            call_on(self._home, self._ended.set)

    async def _host(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._started.set()
        await self._main()


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

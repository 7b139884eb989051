"""A thread with an event loop of its own: what runs there goes on while a handler blocks the main one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any


class LoopThread:
    """Hosts a few coroutines until they return."""

    def __init__(self, name: str, main: Callable[[], Awaitable[Any]]) -> None:
        self._main = main
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread and wait for its loop."""
        self._thread.start()
        self._started.wait()

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have something done on the thread's loop, soon; nothing once it has ended."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(function, *arguments)
            except RuntimeError:
                return

    async def join(self) -> None:
        """Wait for the thread's end without blocking the caller's loop. Raises: what ended it."""
        await asyncio.to_thread(self._thread.join)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._host())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    async def _host(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._started.set()
        await self._main()

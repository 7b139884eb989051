"""One event loop per process, in a thread of its own: what is async in Holdfast, for sync code of Django."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from holdfast.app import Holdfast

T = TypeVar("T")

_lock = threading.Lock()
_threads: dict[int, ServingLoop] = {}


class ServingLoop:
    """Runs coroutines on a loop that lives as long as the process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        run = self._loop.run_forever
        threading.Thread(target=run, name="holdfast-django", daemon=True).start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine; its result can be awaited anywhere."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, while this thread waits."""
        return self.submit(work).result()


def loop_thread() -> ServingLoop:
    """Return the thread of this process; one that was forked makes its own."""
    own = os.getpid()
    with _lock:
        if own not in _threads:
            _threads[own] = ServingLoop()
        return _threads[own]


def close_serving_loop(app: Holdfast) -> None:
    """Close an application's connections of that loop, if there is one; the next use opens them again."""
    found = _threads.get(os.getpid())
    if found is not None:
        found.run(app.aclose())

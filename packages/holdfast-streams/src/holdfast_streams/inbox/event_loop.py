"""One event loop per process, in a thread of its own: async handlers of inboxes, for frameworks that are sync."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def run_on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end while this thread waits; a process that was forked begins a loop of its own."""
    own = os.getpid()
    with _lock:
        loop = _loops.get(own)
        if loop is None:
            loop = _loops[own] = asyncio.new_event_loop()
            run = loop.run_forever
            threading.Thread(target=run, name="holdfast-inbox", daemon=True).start()
    return asyncio.run_coroutine_threadsafe(work, loop).result()

"""Time as the worker sees it, injected so that tests and the simulation move it themselves."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Protocol


class Clock(Protocol):
    """A monotonic clock, sleeping on it, and randomness for jitter."""

    def monotonic(self) -> float:
        """Seconds that never go back, those in which the machine was suspended included."""

    async def sleep(self, seconds: float) -> None:
        """Let that much time pass."""

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        """Wait for an event at most so long; return whether it came."""

    def random(self) -> float:
        """A number in [0, 1)."""


def _clock_that_counts_suspension() -> Callable[[], float]:
    """Leases go on while a machine sleeps: Linux counts that only in CLOCK_BOOTTIME, macOS in CLOCK_MONOTONIC."""
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        if hasattr(time, name):
            return partial(time.clock_gettime, getattr(time, name))
    return time.monotonic


class SystemClock:
    """The real one."""

    monotonic = staticmethod(_clock_that_counts_suspension())
    random = staticmethod(random.random)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        if seconds is None or event.is_set():
            return await event.wait()
        task = asyncio.current_task()
        assert task is not None
        cancelled_before, is_over = task.cancelling(), False

        def end() -> None:
            nonlocal is_over
            is_over = task.cancel()

        # With less work than `asyncio.timeout` does: there are two such waits for every job that comes alone.
        timer = asyncio.get_running_loop().call_later(seconds, end)
        try:
            return await event.wait()
        except asyncio.CancelledError:
            if is_over and task.uncancel() <= cancelled_before:
                return False
            raise
        finally:
            timer.cancel()


async def ends_before(
    clock: Clock, work: Coroutine[Any, Any, Any], event: asyncio.Event, seconds: float
) -> bool:
    """Run something at most so long, and no longer than until the event; return whether it has ended by itself."""
    ended = asyncio.create_task(work)
    cut_short = asyncio.create_task(event.wait())
    ended.add_done_callback(lambda _: cut_short.cancel())
    try:
        await all_ended(clock, [cut_short], seconds)
        return ended.done()
    finally:
        for task in (ended, cut_short):
            task.cancel()
        await asyncio.gather(ended, cut_short, return_exceptions=True)


async def all_ended(
    clock: Clock, tasks: Iterable[asyncio.Future[Any]], seconds: float | None
) -> bool:
    """Wait for tasks at most so long without cancelling them; return whether all have ended."""
    ended = asyncio.Event()
    left = {task for task in tasks if not task.done()}

    def one_less(task: asyncio.Future[Any]) -> None:
        left.discard(task)
        if not left:
            ended.set()

    for task in list(left):
        task.add_done_callback(one_less)
    return not left or await clock.wait(ended, seconds)

"""How long tests wait, by what the machine gives, and waiting for conditions that no signal announces."""

import asyncio
import os
import time
from collections.abc import Callable
from inspect import isawaitable
from typing import TypeVar

T = TypeVar("T")


def _slowness() -> float:
    """How many processes share a processor, as far as the last minute tells; at most what a test run can bear."""
    return min(6.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


USUAL_PATIENCE_S = 60
SLOWNESS = _slowness()
PATIENCE_S = USUAL_PATIENCE_S * SLOWNESS
# It ends what hangs. The machine may have been idle when the run began, and be busy by now.
TEST_TIMEOUT_S = max(300, 120 * SLOWNESS)


def _patience_s() -> float:
    """How long to wait by what the machine gives now."""
    return max(PATIENCE_S, USUAL_PATIENCE_S * _slowness())


async def until(condition: Callable[[], object]) -> None:
    """Let the loop, other threads and processes go on until a condition holds; it may be a coroutine function.

    What takes long is looked at less often: a look may be a query.
    """
    began = time.monotonic()
    async with asyncio.timeout(PATIENCE_S) as limit:
        ends_at = limit.when()
        assert ends_at is not None
        while not await _look(condition):
            limit.reschedule(ends_at + _patience_s() - PATIENCE_S)
            await asyncio.sleep(_pause(began))


def wait_until(
    condition: Callable[[], T | None],
    said: Callable[[], object] = lambda: "what was waited for did not come",
    patience_s: float | None = None,
) -> T:
    """Do the same without a loop, in the thread that asks; return what it found. `said` is what to fail with."""
    began = time.monotonic()
    while not (found := condition()):
        assert time.monotonic() - began < (patience_s or _patience_s()), said()
        time.sleep(_pause(began))
    return found


def _pause(began: float) -> float:
    return min(0.1, max(0.001, (time.monotonic() - began) / 20))


async def _look(condition: Callable[[], object]) -> object:
    found = condition()
    return await found if isawaitable(found) else found


async def breath() -> None:
    """Leave the processor to others: only yielding would keep the interpreter from the threads waited for."""
    await asyncio.sleep(0.001)

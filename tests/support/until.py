"""How long tests wait, by what the machine gives, and waiting for conditions that no signal announces."""

import asyncio
import os
from collections.abc import Callable


def _slowness() -> float:
    """How many processes share a processor, as far as the last minute tells; at most what a test run can bear."""
    return min(6.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


SLOWNESS = _slowness()
PATIENCE_S = 60 * SLOWNESS
TEST_TIMEOUT_S = 120 * SLOWNESS


async def until(condition: Callable[[], object]) -> None:
    """Let the loop and the other threads go on until a condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await breath()


async def breath() -> None:
    """Leave the processor to others: only yielding would keep the interpreter from the threads waited for."""
    await asyncio.sleep(0.001)

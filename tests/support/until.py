"""Waits for conditions that no signal announces, by letting everything else run in between."""

import asyncio
from collections.abc import Callable

PATIENCE_S = 60


async def until(condition: Callable[[], object]) -> None:
    """Let the loop and the other threads go on until a condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await breath()


async def breath() -> None:
    """Leave the processor to others: whoever only yields keeps the interpreter from the threads waited for."""
    await asyncio.sleep(0.001)

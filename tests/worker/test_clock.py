"""The real clock: waits that end by themselves, by their event or by a cancellation."""

import asyncio

import pytest

from holdfast.worker.clock import SystemClock


async def test_a_wait_ends_by_itself_also_in_a_task_that_was_cancelled_before() -> None:
    begun = asyncio.Event()

    async def stubborn() -> bool:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await SystemClock().wait(asyncio.Event(), 0.001)
        raise AssertionError("it was not cancelled")

    task = asyncio.create_task(stubborn())
    await begun.wait()
    task.cancel()
    assert await task is False


async def test_a_wait_can_be_cancelled() -> None:
    task = asyncio.create_task(SystemClock().wait(asyncio.Event(), 60))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_wait_ends_with_its_event() -> None:
    event = asyncio.Event()
    task = asyncio.create_task(SystemClock().wait(event, 60))
    await asyncio.sleep(0)
    event.set()
    assert await task is True

"""Producers are back right after a promotion, whatever the lost primary's address does meanwhile."""

import asyncio
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast import Holdfast, errors
from tests.chaos.standby import Pair
from tests.chaos.test_failover import start_all, started, working
from tests.support.silent_port import silent_port
from tests.support.until import SLOWNESS, until

BACK_S = 2.0 * SLOWNESS
OUTAGE_S = 4.0
EACH = 4


class Producers:
    """Start jobs one after the other, sync and async, and note when each start was acknowledged."""

    def __init__(self, url: str) -> None:
        self._app = Holdfast(url, open_types=True)
        self._stopped = threading.Event()
        self.acknowledged: list[list[float]] = [[] for _ in range(2 * EACH)]

    async def run(self) -> None:
        """Go on until stopped."""
        async with asyncio.TaskGroup() as group:
            for times in self.acknowledged[:EACH]:
                group.create_task(asyncio.to_thread(self._start, times))
            for times in self.acknowledged[EACH:]:
                group.create_task(self._start_async(times))
        await self._app.aclose()

    def stop(self) -> None:
        self._stopped.set()

    def have_all_started(self, since: float) -> bool:
        """Whether each producer had a start acknowledged since then."""
        return all(times and times[-1] > since for times in self.acknowledged)

    def _start(self, times: list[float]) -> None:
        while not self._stopped.wait(0.01):
            try:
                with self._app.transaction() as tx:
                    self._app.start(tx, "work", 1)
            except errors.HoldfastError:
                continue
            times.append(time.monotonic())

    async def _start_async(self, times: list[float]) -> None:
        while not self._stopped.is_set():
            await asyncio.sleep(0.01)  # as often as those in threads
            try:
                async with self._app.transaction() as tx:
                    await self._app.start(tx, "work", 1)
            except errors.HoldfastError:
                continue
            times.append(time.monotonic())


@pytest.mark.parametrize("address", ["refuses", "is silent"])
async def test_every_producer_starts_jobs_again_soon_after_the_promotion(
    address: str, pair: Pair, app: Holdfast
) -> None:
    producers = Producers(pair.url)
    running = asyncio.create_task(producers.run())
    await until(lambda: producers.have_all_started(0))
    port = urlsplit(pair.primary.url).port
    assert port is not None
    with ExitStack() as stack:
        pair.primary.stop("kill")
        if address == "is silent":
            stack.enter_context(silent_port(port))
        await asyncio.sleep(OUTAGE_S)
        await asyncio.to_thread(pair.promote)
        promoted = time.monotonic()
        await until(lambda: producers.have_all_started(promoted))
        producers.stop()
        await running
    first = [min(each for each in times if each > promoted) for times in producers.acknowledged]
    assert max(first) - promoted < BACK_S, [f"{each - promoted:.2f} s" for each in first]


async def test_a_worker_runs_jobs_again_soon_after_the_promotion(
    pair: Pair, app: Holdfast, tmp_path: Path
) -> None:
    port = urlsplit(pair.primary.url).port
    assert port is not None
    with ExitStack() as stack:
        stack.enter_context(working(tmp_path, pair.url))
        await asyncio.to_thread(start_all, app, 0, 5)
        await until(lambda: len(started(tmp_path)) == 5)
        pair.primary.stop("kill")
        stack.enter_context(silent_port(port))
        await asyncio.sleep(OUTAGE_S)
        await asyncio.to_thread(pair.promote)
        promoted = time.monotonic()
        producer = Holdfast(pair.url, open_types=True)
        await asyncio.to_thread(start_all, producer, 0, 5)
        await until(lambda: len(started(tmp_path)) >= 10)
        assert time.monotonic() - promoted < BACK_S
        producer.close()

"""What the tests of the runtime share: a clock moved by hand, and an observer that can be waited for."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

from holdfast.core.cycle import CycleSpec, RunRecord
from holdfast.core.events import Event
from holdfast.core.instants import Instant
from holdfast.scheduler.cycle_run import Shard
from holdfast.scheduler.cycle_runner import CycleResources, CycleRunner, CycleStates, stored_name
from holdfast.scheduler.runner import Mode, TickSummary
from holdfast.scheduler.tick import Tick, TickOptions
from holdfast.storage.database import Database
from holdfast.worker.handler_threads import HandlerThreads
from tests.support.until import PATIENCE_S

SECOND = 1_000_000
NOON = 1_735_732_800 * SECOND
"""2025-01-01T12:00:00Z, where every test begins."""

LEASE_MS = 60_000


class ManualClock:
    """A clock that stands still until it is moved. It also tells the instant for the database's statements."""

    def __init__(self) -> None:
        self.time = 0.0
        self.randomness = 0.0
        self._timers: list[tuple[float, int, asyncio.Future[None], str]] = []
        self._order = count()
        self._set = asyncio.Event()

    def monotonic(self) -> float:
        return self.time

    def random(self) -> float:
        return self.randomness

    def now(self) -> Instant:
        return NOON + int(self.time * SECOND)

    async def sleep(self, seconds: float) -> None:
        await self._timer(seconds)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        if event.is_set():
            return True
        came = asyncio.ensure_future(event.wait())
        waits = [came] if seconds is None else [came, self._timer(seconds)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Move on, and wake everybody whose time has come."""
        self.time += seconds
        while self._timers and self._timers[0][0] <= self.time:
            _, _, timer, _ = heappop(self._timers)
            if not timer.done():
                timer.set_result(None)

    async def asleep(self, within: float = inf) -> float:
        """Wait until somebody sleeps, at most so long; return for how long the first of them still does."""
        async with asyncio.timeout(PATIENCE_S):
            while self._soonest() > within or self._soonest() == inf:
                self._set.clear()
                await self._set.wait()
        return self._soonest()

    async def resting(self, loops: int) -> float:
        """Wait until so many loops of a background mode rest; return for how long the first of them still does."""
        async with asyncio.timeout(PATIENCE_S):
            while len(ends := self._ends_of_rests()) < loops:
                self._set.clear()
                await self._set.wait()
        return min(ends) - self.time

    def _ends_of_rests(self) -> list[float]:
        return [
            at
            for at, _, timer, owner in self._timers
            if not timer.done() and owner.startswith("holdfast loop ")
        ]

    def _soonest(self) -> float:
        while self._timers and self._timers[0][2].done():
            heappop(self._timers)
        return self._timers[0][0] - self.time if self._timers else inf

    def _timer(self, seconds: float) -> asyncio.Future[Any]:
        timer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if seconds <= 0:
            timer.set_result(None)
        task = asyncio.current_task()
        owner = "" if task is None else task.get_name()
        heappush(self._timers, (self.time + seconds, next(self._order), timer, owner))
        self._set.set()
        return timer


class Recorder:
    """An observer whose events can be waited for."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._came = asyncio.Event()

    def observe(self, event: Event) -> None:
        self.events.append(event)
        self._came.set()

    def named(self, name: str) -> list[dict[str, Any]]:
        """The fields of all events of a name so far."""
        return [each.fields for each in self.events if each.name == name]

    async def seen(self, name: str, times: int = 1) -> dict[str, Any]:
        """Wait until an event came so often; return the last one's fields."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.named(name)) < times:
                self._came.clear()
                await self._came.wait()
        return self.named(name)[times - 1]


async def soon(event: asyncio.Event) -> None:
    """Wait for a signal of the test's own."""
    async with asyncio.timeout(PATIENCE_S):
        await event.wait()


async def pause_all(database: Database, paused: bool = True) -> None:
    """Pause or resume everything, in a database that has an identity."""
    await database.run_async(database.store.schema.identify("00000000-0000-7000-8000-000000000001"))
    await database.run_async(database.store.schema.pause(paused, "test"))


class Replica:
    """A process with cycles, in this process: its ticks are those of `holdfast tick` or of the background mode."""

    def __init__(
        self,
        database: Database,
        clock: ManualClock,
        *specs: CycleSpec,
        worker: str = "w-1",
        mode: Mode = "background",
        shard: Shard | None = None,
        lease_ms: int = LEASE_MS,
        options: TickOptions | None = None,
    ) -> None:
        self.recorder = Recorder()
        self._database = database
        self._clock = clock
        self._threads = HandlerThreads(2, "cycle")
        cycles = {stored_name(each, shard): each for each in specs}
        place = CycleResources(
            database, CycleStates(database.store, cycles), self._threads, lease_ms, shard
        )
        self.tick = Tick(
            database,
            [CycleRunner(each, place) for each in specs],
            worker,
            options,
            mode=mode,
            clock=clock,
            observer=self.recorder,
            now=clock.now,
        )

    async def run(self) -> TickSummary:
        """Run one tick."""
        return await self.tick.run()

    async def runs(self, name: str = "cleanup") -> list[RunRecord]:
        """Read the runs of a cycle, newest first."""
        op = self._database.store.runs.page(1_000, LEASE_MS, name, self._clock.now())
        return await self._database.run_async(op)

    async def close(self) -> None:
        """Stop and leave nothing behind."""
        closing = asyncio.create_task(self.tick.close())
        while not closing.done():
            await asyncio.wait({closing}, timeout=0.05)
            self._clock.advance(1)
        await closing
        self._threads.close()

"""What the database says of this process's cycles: registered once, read once per tick for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from holdfast.core.cycle import CycleSpec, CycleState, NewCycle, schedule_text
from holdfast.runtime.runner import RunnerContext
from holdfast.storage.port import Store

STALE_MS = 1_000


class Board:
    """The state of cycles, by the names under which they are stored."""

    def __init__(self, store: Store, cycles: Mapping[str, CycleSpec]) -> None:
        self._store = store
        self._cycles = dict(sorted(cycles.items()))
        self._is_registered = False
        self._read_for = ("", 0)
        self._reading = asyncio.Lock()
        self._states: dict[str, CycleState] = {}

    async def state(self, name: str, context: RunnerContext) -> CycleState:
        """Return a cycle's state as this tick found it."""
        async with self._reading:
            await self._refresh(context)
            return self._states[name]

    async def _refresh(self, context: RunnerContext) -> None:
        """Read once for all cycles of a tick; one that had to wait for its turn sees how it is by then."""
        run_id, read_ms = self._read_for
        if run_id != context.run_id or context.now_ms() - read_ms > STALE_MS:
            if not self._is_registered:
                await self._register(context)
            self._states = await self._read(context)
            if self._states.keys() != self._cycles.keys():
                await self._register(context)
                self._states = await self._read(context)
            self._read_for = (context.run_id, context.now_ms())

    async def _read(self, context: RunnerContext) -> dict[str, CycleState]:
        op = self._store.cycles.states(list(self._cycles), context.now())
        return {each.name: each for each in await context.link.run(op)}

    async def _register(self, context: RunnerContext) -> None:
        """Write down what the code says of the cycles, changed schedules included."""
        rows = [
            NewCycle(name, *schedule_text(each.schedule), each.singleton, str(each.missed))
            for name, each in self._cycles.items()
        ]
        await context.link.run(self._store.cycles.register(rows, context.now()))
        self._is_registered = True

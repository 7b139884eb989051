"""Runs two operations on real PostgreSQL in a chosen order of their statements, each in a transaction of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from typing import Any, TypeAlias

from psycopg import AsyncConnection

from holdfast.storage.operation import Op, Row, Statement, run_async
from holdfast.storage.postgres.connection import PsycopgAsyncExecutor

LOOK_S = 0.002

IsBlocked: TypeAlias = Callable[[int], Awaitable[bool]]
"""Says whether a session waits for a lock."""


@dataclass
class Ended:
    """How one of the two ended."""

    value: Any = None
    error: Exception | None = None


class Stepper(PsycopgAsyncExecutor):
    """Lets one statement through each time it is told to; the commit is the last step."""

    def __init__(self, connection: AsyncConnection[Any], schema: str) -> None:
        super().__init__(connection, schema)
        self._permits = asyncio.Semaphore(0)
        self._asking = asyncio.Event()
        self.ended: Ended | None = None

    async def execute(self, statement: Statement) -> list[Row]:
        await self.gate()
        return await super().execute(statement)

    async def gate(self) -> None:
        """Wait for the word."""
        self._asking.set()
        await self._permits.acquire()

    async def run(self, op: Op[Any]) -> None:
        """Run the operation and commit, step by step."""
        try:
            async with self.connection.transaction():
                value = await run_async(op, self)
                await self.gate()
            self.ended = Ended(value)
        except Exception as error:
            self.ended = Ended(error=error)
        finally:
            self._asking.set()

    async def step(self, is_blocked: IsBlocked) -> None:
        """Give one step; return when it was made, or when it waits for a lock of the other."""
        self._asking.clear()
        self._permits.release()
        await self.is_ready(is_blocked)

    async def is_ready(self, is_blocked: IsBlocked) -> bool:
        """Wait until it asks for a step; False when it has ended or waits for a lock of the other."""
        while not self._asking.is_set():
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._asking.wait()
            except TimeoutError:
                if await is_blocked(self.connection.info.backend_pid):
                    return False
        return self.ended is None


class Orders:
    """The orders in which two operations have made their steps.

    Several schedules lead to the same one: a turn of an operation that has ended or waits for a lock is void.
    """

    def __init__(self) -> None:
        self._ready: dict[tuple[int, ...], tuple[bool, ...]] = {}

    def include(self, schedule: Sequence[int]) -> bool:
        """Say whether a schedule leads to an order that is here."""
        made: tuple[int, ...] = ()
        for turn in turns_of(schedule):
            ready = self._ready.get(made)
            if ready is None:
                return False
            if not any(ready):
                return True
            if ready[turn]:
                made = (*made, turn)
        raise AssertionError("there is always another turn")

    def add(self, made: tuple[int, ...], ready: tuple[bool, ...]) -> None:
        """Note which of the operations can make a step after those that were made."""
        self._ready[made] = ready


def turns_of(schedule: Sequence[int]) -> Iterator[int]:
    """The scheduled turns, then one after the other without end."""
    return chain(schedule, cycle((0, 1)))


async def interleave(
    connections: Sequence[AsyncConnection[Any]],
    schema: str,
    ops: Sequence[Op[Any]],
    schedule: Sequence[int],
    watcher: AsyncConnection[Any],
    orders: Orders,
) -> list[Ended]:
    """Run the operations, giving steps in the scheduled order, then to each in turn until both have ended."""

    async def is_blocked(pid: int) -> bool:
        cursor = await watcher.execute("select cardinality(pg_blocking_pids(%s))", [pid])
        row = await cursor.fetchone()
        return row is not None and row[0] > 0

    steppers = [Stepper(each, schema) for each in connections]
    tasks = [asyncio.create_task(each.run(op)) for each, op in zip(steppers, ops, strict=True)]
    made: tuple[int, ...] = ()
    async with asyncio.timeout(20):
        for turn in turns_of(schedule):
            ready = tuple([await each.is_ready(is_blocked) for each in steppers])
            orders.add(made, ready)
            if all(each.ended for each in steppers):
                break
            if ready[turn]:
                await steppers[turn].step(is_blocked)
                made = (*made, turn)
    await asyncio.gather(*tasks)
    return [each.ended or Ended() for each in steppers]

"""Runs two operations on real PostgreSQL in a chosen order of their statements, each in a transaction of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from holdfast.storage.operation import Op, Row, Statement, run_async
from holdfast.storage.postgres.executor import PsycopgAsyncExecutor

LOOK_S = 0.002


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

    async def step(self, is_blocked: Callable[[int], Any]) -> None:
        """Give one step; return when it was made, or when it waits for a lock of the other."""
        if self.ended is not None or not self._asking.is_set():
            return
        self._asking.clear()
        self._permits.release()
        while not self._asking.is_set():
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._asking.wait()
            except TimeoutError:
                if await is_blocked(self.connection.info.backend_pid):
                    return


async def interleave(
    connections: Sequence[AsyncConnection[Any]],
    schema: str,
    ops: Sequence[Op[Any]],
    schedule: Sequence[int],
    watcher: AsyncConnection[Any],
) -> list[Ended]:
    """Run the operations, giving steps in the scheduled order, then to each in turn until both have ended."""

    async def is_blocked(pid: int) -> bool:
        cursor = await watcher.execute("select cardinality(pg_blocking_pids(%s))", [pid])
        row = await cursor.fetchone()
        return row is not None and row[0] > 0

    steppers = [Stepper(each, schema) for each in connections]
    tasks = [asyncio.create_task(each.run(op)) for each, op in zip(steppers, ops, strict=True)]
    for turn in schedule:
        await asyncio.sleep(0)
        await steppers[turn].step(is_blocked)
    async with asyncio.timeout(20):
        while any(each.ended is None for each in steppers):
            for each in steppers:
                await asyncio.sleep(0)
                await each.step(is_blocked)
    await asyncio.gather(*tasks)
    return [each.ended or Ended() for each in steppers]

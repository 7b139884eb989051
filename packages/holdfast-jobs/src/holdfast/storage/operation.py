"""Operations, neither sync nor async: generators that yield statements and are sent rows, and their two drivers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")

Value = str | int | float | bool | None
Row = tuple[Any, ...]


class Statement(NamedTuple):
    """One named statement of a dialect's catalogue with its parameters; or a call that blocks, made instead of it."""

    name: str
    params: Mapping[str, Value]
    call: Callable[[], list[Row]] | None = None


Op = Generator[Statement, list[Row], T]


class SyncExecutor(Protocol):
    """Runs one named statement on an open connection and returns its rows."""

    def execute(self, statement: Statement) -> list[Row]: ...


class AsyncExecutor(Protocol):
    """Async version of `SyncExecutor`."""

    def execute(self, statement: Statement) -> Awaitable[list[Row]]: ...


def run(op: Op[T], on: SyncExecutor) -> T:
    """Drive an operation to its end over a sync connection."""
    try:
        statement = next(op)
        while True:
            try:
                rows = statement.call() if statement.call else on.execute(statement)
            except Exception as error:
                statement = op.throw(error)
            else:
                statement = op.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


async def run_async(op: Op[T], on: AsyncExecutor) -> T:
    """Drive an operation to its end over an async connection; one in a thread of its own is given all of it at once."""
    run_whole = getattr(on, "run_whole", None)
    if run_whole is not None:
        whole: T = await run_whole(op)
        return whole
    try:
        statement = next(op)
        while True:
            try:
                call = statement.call
                rows = await (asyncio.to_thread(call) if call else on.execute(statement))
            except Exception as error:
                statement = op.throw(error)
            else:
                statement = op.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


def at(op: Op[T], instant: int) -> Op[T]:
    """Run an operation at a given instant: every statement that asks the database's clock gets this one instead."""
    try:
        statement = next(op)
        while True:
            if statement.name == "clock":
                statement = op.send([(instant,)])
                continue
            if statement.params.get("now", instant) is None:
                statement = Statement(statement.name, {**statement.params, "now": instant})
            try:
                rows = yield statement
            except Exception as error:
                statement = op.throw(error)
            else:
                statement = op.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result

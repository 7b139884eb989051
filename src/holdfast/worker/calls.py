"""Calls handlers where they belong: on the loop, in a thread, in a process of their own."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast.core.errors import HandlerInvalid
from holdfast.core.jobtype import JobType
from holdfast.worker.job import Job
from holdfast.worker.middleware import Call, Middleware, wrapped
from holdfast.worker.processes import ProcessHandlers


class Calls:
    """One call per job type, with the middlewares around it."""

    def __init__(
        self,
        types: Mapping[str, JobType],
        middlewares: Sequence[Middleware],
        threads: ThreadPoolExecutor,
        processes: ProcessHandlers,
    ) -> None:
        """Raises: HandlerInvalid for combinations that cannot work."""
        self._threads = threads
        self._processes = processes
        self._calls = {name: wrapped(self._call(each), middlewares) for name, each in types.items()}

    def of(self, name: str) -> Call:
        """The call of a type's handler; a batch handler's takes a list of jobs."""
        return self._calls[name]

    def _call(self, type: JobType) -> Call:
        handler = type.handler
        if handler is None:
            raise HandlerInvalid(f"job type {type.name} has no handler here")
        if type.batch is not None and (type.atomic or type.executor == "process"):
            raise HandlerInvalid(
                f"the batch handler of {type.name} can neither be atomic nor run in a process",
                help="leave batch out, or use a plain handler on the loop or in a thread",
            )
        match type.executor:
            case "process":
                return self._processes.call(type)
            case "thread":
                return self._threaded(handler)
            case "loop":
                call: Call = handler
                return call

    def _threaded(self, handler: Callable[..., Any]) -> Call:
        async def call(job: Job[Any]) -> Any:
            return await self.in_thread(handler, job)

        return call

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run something in a thread, with the caller's context.

        A thread cannot be stopped from outside: told to stop, we wait until it obeys its signal, and what it answers
        still counts. The second cancellation leaves it alone.
        """
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        future = loop.run_in_executor(self._threads, context.run, outcome_of, function, arguments)
        try:
            value, error = await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            value, error = future.result()
        if error is not None:
            raise error
        return value


def outcome_of(
    function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Any, BaseException | None]:
    """Keep an error as a value: a future takes no StopIteration and would never end."""
    try:
        return function(*arguments), None
    except BaseException as error:
        return None, error

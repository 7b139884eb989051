"""Middlewares wrap each attempt in onion order: they see the job, the answer and the error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from holdfast.worker.job import Job

Next = Callable[[], Awaitable[Any]]
Middleware = Callable[[Job[Any], Next], Awaitable[Any]]
"""`async def middleware(job, next): … return await next()`; one that raises fails the attempt."""

Call = Callable[[Job[Any]], Awaitable[Any]]


def wrapped(call: Call, middlewares: Sequence[Middleware]) -> Call:
    """Put the middlewares around a call, the first outermost."""
    for middleware in reversed(middlewares):
        call = _around(middleware, call)
    return call


def _around(middleware: Middleware, inner: Call) -> Call:
    async def call(job: Job[Any]) -> Any:
        return await middleware(job, lambda: inner(job))

    return call

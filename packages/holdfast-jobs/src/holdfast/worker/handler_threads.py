"""Threads for sync handlers. The loop hands each a call, and takes back in one turn all that have ended by then.

A future in the thread, one more on the loop and a byte through the loop's own pipe for each call would cost as much as
the rest of the worker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

from holdfast.worker.wakes import call_on

AROUND_THREAD_CALLS: list[Callable[[], None]] = []
"""What a framework wants done before and after each call in a thread, which keeps its connections from call to call."""


class HandlerThreads:
    """Runs calls in threads, for one loop; at most `size` threads, started when they are needed.

    With an executor of the caller's, calls run there instead. The threads are daemons: a process that ends does not
    wait for a handler that was abandoned.
    """

    def __init__(self, size: int, name: str, executor: futures.Executor | None = None) -> None:
        self._size = size
        self._name = name
        self._executor = executor
        self._loop: asyncio.AbstractEventLoop | None = None
        self._count = 0
        self._idle: list[_ThreadCalls] = []
        self._waiting: deque[_ThreadCall] = deque()
        self._ended: deque[_ThreadCall] = deque()
        self._is_woken = False
        self.is_closed = False

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run something in a thread, with the caller's context.

        A thread cannot be stopped from outside: when cancelled, we wait until it obeys its signal, and what it returns
        still counts. A second cancellation abandons it.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        call = _ThreadCall(self, partial(function, *arguments), self._loop.create_future())
        self._start(call)
        try:
            await call.is_over
        except asyncio.CancelledError:
            if call.result is None:
                call.is_over = self._loop.create_future()
                await call.is_over
        assert call.result is not None
        value, error = call.result
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """End the threads, those that still run something after that; what has not begun does not begin."""
        self.is_closed = True
        for call in self._waiting:
            call.cancel()
        self._ended += self._waiting
        self._waiting.clear()
        self._take_back()
        for thread in self._idle:
            thread.put(None)

    def _start(self, call: _ThreadCall) -> None:
        if self.is_closed:
            raise RuntimeError("the worker has ended, and its threads with it")
        if self._executor is not None:
            self._executor.submit(call.run).add_done_callback(call.on_done)
        elif self._idle:
            # The one that was busy last is still in the processor's cache.
            call.thread = self._idle.pop()
            call.thread.put(call)
        elif self._count < self._size:
            call.thread = SimpleQueue()
            # Before the thread starts, which then begins the call at once and does not wait for its turn again.
            call.thread.put(call)
            name = f"{self._name}_{self._count}"
            Thread(target=_run_calls, args=(call.thread,), name=name, daemon=True).start()
            self._count += 1
        else:
            self._waiting.append(call)

    def give_back(self, call: _ThreadCall) -> None:
        """Have the loop take back a call that has ended. From any thread."""
        self._ended.append(call)
        # Read after the append: if the loop has yet to come, it comes for this call as well.
        if not self._is_woken:
            self._is_woken = True
            call_on(self._loop, self._take_back)

    def _take_back(self) -> None:
        self._is_woken = False
        while self._ended:
            call = self._ended.popleft()
            if call.thread is not None:
                self._idle.append(call.thread)
                if self._waiting:
                    self._start(self._waiting.popleft())
            if not call.is_over.done():
                call.is_over.set_result(None)


@dataclass(eq=False, slots=True)
class _ThreadCall:
    """A call on its way through a thread, which is known by the queue that it takes calls from."""

    threads: HandlerThreads
    work: partial[Any]
    is_over: asyncio.Future[None]
    context: Context = field(default_factory=copy_context)
    result: tuple[Any, BaseException | None] | None = None
    thread: _ThreadCalls | None = None

    def run(self) -> None:
        if self.threads.is_closed:
            self.cancel()
        else:
            self.result = self.context.run(call_catching, self.work)

    def cancel(self) -> None:
        self.result = None, asyncio.CancelledError()

    def on_done(self, submitted: futures.Future[None]) -> None:
        if submitted.cancelled():
            self.cancel()
        self.threads.give_back(self)


_ThreadCalls = SimpleQueue[_ThreadCall | None]


def _run_calls(calls: _ThreadCalls) -> None:
    """Run one call after the other, in a thread of their own, until there is None."""
    while call := calls.get():
        call.run()
        call.threads.give_back(call)
        if call.threads.is_closed:
            return
        # What a call has left behind must not stay for as long as its thread sleeps.
        del call


def call_catching(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Return an error as a value: a future takes no StopIteration and would never end."""
    try:
        _tidy_thread()
        return work(), None
    except BaseException as error:
        return None, error
    finally:
        # What the call has achieved counts; if tidying fails, the next call in this thread fails instead.
        with suppress(Exception):
            _tidy_thread()


def _tidy_thread() -> None:
    for each in AROUND_THREAD_CALLS:
        each()

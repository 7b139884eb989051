"""Parking: ending a function that only waits, in a way that its own code cannot swallow.

An exception would be caught by a bare `except`, wrapped by a TaskGroup or lost in a `gather`. So in an async handler
what waits awaits a future that nobody resolves; once nothing else runs, the task of the whole handler is cancelled,
and what it returns or raises after that does not count. A sync handler runs in a thread, which cannot be left: there
parking is a BaseException, raised by every further call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.observe.context import current_job, parking
from holdfast.worker.attempt import Attempt

SETTLE_S = 0.01
"""Branches between two steps get so long to reach the next one."""
BEHIND_S = 1.0
"""And so long to reach what they waited for in an earlier attempt: a busy loop is slow."""
GRACE_S = 0.5
"""A `finally` that awaits something gets so long."""
RAISED = 3
"""So many calls after parking raise, which lets a `finally` end; a loop that swallows that must not spin."""


class Parked(BaseException):
    """Leaves a sync handler that waits for something."""


class Killed(BaseException):
    """Leaves a handler at a boundary where a test lets its worker die."""


class Parking:
    """Whether one async function is to be parked. On the loop."""

    def __init__(
        self, is_idle: Callable[[], bool], is_behind: Callable[[], bool], attempt: Attempt
    ) -> None:
        """`is_idle` says whether the function waits for something and no step of it runs.

        `is_behind` says whether it has not come yet to what it waited for before.
        """
        self._is_idle = is_idle
        self.is_behind = is_behind
        self._attempt = attempt
        self._root: asyncio.Task[Any] | None = attempt.task
        self._is_own_task = False
        self._left_behind: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._calls = 0
        self._context = current_job.get()
        self.has_begun = False
        self.is_over = False

    async def drive(self, call: Awaitable[Any]) -> Any:
        """Run a handler in a task of its own, which can be left behind once it is parked."""
        loop = asyncio.get_running_loop()
        self._root = self._attempt.own_task = asyncio.create_task(_await(call))
        self._is_own_task = True
        self._left_behind = loop.create_future()
        try:
            await asyncio.wait({self._root, self._left_behind}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # An abort: the handler gets it, and how it ends counts.
            self._root.cancel()
            await asyncio.wait({self._root, self._left_behind}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._left_behind.cancel()
        if not self._root.done():
            # A task that nobody holds is destroyed.
            _left_behind.add(self._root)
            self._root.add_done_callback(_forget)
            return None
        value, error = self._root.result()
        if error is not None:
            raise error
        return value

    def consider(self) -> None:
        """Park soon, if nothing but waiting is left to do."""
        if self.has_begun or self.is_over or self._timer is not None or not self._is_idle():
            return
        self._timer = asyncio.get_running_loop().call_later(SETTLE_S, self._settle)

    def _settle(self) -> None:
        if self.is_behind():
            self._timer = asyncio.get_running_loop().call_later(BEHIND_S, self._park)
        else:
            self._park()

    def _park(self) -> None:
        self._timer = None
        has_ended = self._is_own_task and self._root is not None and self._root.done()
        if has_ended or not self._is_idle():
            return
        self.begin(asyncio.CancelledError)
        if self._root is not None:
            self._root.cancel()
        if self._left_behind is not None:
            asyncio.get_running_loop().call_later(GRACE_S, self._leave_behind, self._left_behind)

    def begin(self, ends_calls: type[BaseException]) -> None:
        """Have what the function calls from now on do nothing. From any thread."""
        self.has_begun = True
        if self._context is not None:
            parking[id(self._context)] = self._context, ends_calls

    def leave(self, root: asyncio.Task[Any] | None = None) -> None:
        """Refuse commands no longer."""
        parking.pop(id(self._context), None)

    @staticmethod
    def _leave_behind(left: asyncio.Future[None]) -> None:
        if not left.done():
            left.set_result(None)

    async def refuse_call(self) -> None:
        """End a call that came after parking had begun: it does nothing."""
        self._calls += 1
        if self._calls > RAISED:
            if self._is_own_task:
                await asyncio.get_running_loop().create_future()
            await asyncio.sleep(0.1)
        raise asyncio.CancelledError

    def refuse_sync_call(self, is_aborted: threading.Event) -> None:
        """End such a call of a sync handler. In its thread. Raises: Parked."""
        self._calls += 1
        if self._calls > RAISED:
            is_aborted.wait(0.1)
        raise Parked

    def close(self) -> None:
        """Park no more: the function has ended."""
        self.is_over = True
        if self._is_own_task and self._root is not None:
            # One that was left behind may still go on.
            self._root.add_done_callback(self.leave)
        else:
            self.leave()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_left_behind: set[asyncio.Task[Any]] = set()


async def _await(call: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """An error is returned: a SystemExit that leaves a task ends the loop as well."""
    try:
        return await call, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return None, error


def _forget(task: asyncio.Task[Any]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()

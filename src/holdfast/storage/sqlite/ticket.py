"""One caller's operation on its way through the writer, and the news of its end in the caller's colour."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from holdfast.storage.sqlite.patience import Patience
from holdfast.storage.statement import Op

T = TypeVar("T")


class Ticket(Generic[T]):
    """An operation, how long its caller waits for the lock, and how long it may take itself."""

    def __init__(self, op: Op[T], wait_s: float, limit_s: float) -> None:
        self.op = op
        self.limit_s = limit_s
        self.patience = Patience(wait_s)
        self.error: BaseException | None = None
        self.result: T

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return False


class SyncTicket(Ticket[T]):
    """An operation whose caller's thread waits."""

    def __init__(self, op: Op[T], wait_s: float, limit_s: float) -> None:
        super().__init__(op, wait_s, limit_s)
        self._done = threading.Lock()
        self._done.acquire()

    def announce(self) -> None:
        """Wake the caller."""
        self._done.release()

    def wait(self) -> T:
        """Wait for the end and return the result, or raise the error."""
        self._done.acquire()
        if self.error is not None:
            raise self.error
        return self.result


class AsyncTicket(Ticket[T]):
    """An operation whose caller awaits a future of its loop."""

    def __init__(self, op: Op[T], wait_s: float, limit_s: float) -> None:
        super().__init__(op, wait_s, limit_s)
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()

    @property
    def is_abandoned(self) -> bool:
        return self.future.cancelled()

    def announce(self) -> None:
        """Resolve the future; in its loop only."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


def deliver(tickets: Iterable[Ticket[Any]]) -> None:
    """Tell all callers; each loop is woken once, however many of its operations have ended."""
    by_loop: dict[asyncio.AbstractEventLoop, list[AsyncTicket[Any]]] = {}
    for each in tickets:
        if isinstance(each, AsyncTicket):
            by_loop.setdefault(each.loop, []).append(each)
        elif isinstance(each, SyncTicket):
            each.announce()
    for loop, mine in by_loop.items():
        # A closed loop has nobody left who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_announce_all, mine)


def _announce_all(tickets: Sequence[AsyncTicket[Any]]) -> None:
    for each in tickets:
        each.announce()

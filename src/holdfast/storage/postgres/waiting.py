"""psycopg connections that wait for their socket with less ceremony; small statements are mostly such waits."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, TypeVar

from psycopg import AsyncConnection, OperationalError
from psycopg import errors as sqlstate
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from psycopg.waiting import Ready, Wait

RV = TypeVar("RV")

# As plain numbers: arithmetic with members of an enumeration costs more than the rest of a wait.
_READ, _WRITE = int(Wait.R), int(Wait.W)


CANCEL_S = 5.0


class LinkConnection(AsyncConnection[Any]):
    """For one user at a time who bounds every wait and gives the connection up when a wait is cut short."""

    async def wait(self, gen: PQGen[RV], interval: float = 0.0) -> RV:
        """Drive one of psycopg's operations to its end. Raises: OperationalError when the socket is gone."""
        return await _driven(gen, self.pgconn.socket)


class PoolConnection(AsyncConnection[Any]):
    """For users who come and go: whoever is cancelled leaves a connection that the next one can use."""

    async def wait(self, gen: PQGen[RV], interval: float = 0.1) -> RV:
        """Drive one of psycopg's operations to its end. Raises: OperationalError when the socket is gone."""
        try:
            return await _driven(gen, self.pgconn.socket)
        except asyncio.CancelledError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                with suppress(OperationalError):
                    await self.cancel_safe(timeout=CANCEL_S)
                with suppress(sqlstate.QueryCanceled):
                    await super().wait(gen, interval)
            raise


async def _driven(gen: PQGen[RV], socket: int) -> RV:
    """Drive an operation while the socket stays registered for the whole of it, and without a timer.

    psycopg registers and forgets the socket and starts a timer for each piece of an answer, and the server sends
    pieces of 8 kB: half of what a claim of 200 jobs costs a worker.
    """
    turn = _Turn(asyncio.get_running_loop(), socket)
    try:
        wanted = next(gen)
        while True:
            wanted = gen.send(await turn.until(wanted))
    except OSError as error:
        raise OperationalError("the connection's socket is closed") from error
    except StopIteration as end:
        result: RV = end.value
        return result
    finally:
        turn.over()


class _Turn:
    """The socket's readiness during one operation."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: int) -> None:
        self._loop = loop
        self._socket = socket
        self._waiter: asyncio.Future[Ready] | None = None
        self._reads = False

    async def until(self, wanted: Wait) -> Ready:
        """Wait until the socket can do what is wanted."""
        self._waiter = self._loop.create_future()
        if wanted & _READ and not self._reads:
            self._loop.add_reader(self._socket, self._can, Ready.R)
            self._reads = True
        if not wanted & _WRITE:
            return await self._waiter
        self._loop.add_writer(self._socket, self._can, Ready.W)
        try:
            return await self._waiter
        finally:
            self._loop.remove_writer(self._socket)

    def over(self) -> None:
        """Forget the socket."""
        if self._reads:
            self._loop.remove_reader(self._socket)

    def _can(self, ready: Ready) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(ready)

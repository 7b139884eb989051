"""Ends the wait for a server that hangs: its kernel still acknowledges packets, so no timeout of TCP does.

A statement may take long for good reasons: a lock, a large report, a commit whose standby is away. So time alone ends
nothing. While a connection is lent for long, its server is asked for a sign of life on a new socket, before any login,
and only one that gives none there is given up.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections import defaultdict
from contextlib import closing, suppress
from typing import Any, Generic, TypeAlias, TypeVar

from psycopg import AsyncConnection, Connection, OperationalError

from holdfast.core.errors import DatabaseUnreachable

SILENT_S = 5.0
"""A connection that is lent for so long may wait for a server that hangs."""
ANSWER_S = 10.0
"""How long a server may take to react: a busy machine is slow, and is not given up."""

CLOSE_S = 1.0

_ENCRYPTION_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
"""The first words of libpq to any server, which answers them with a letter."""

SocketAddress: TypeAlias = tuple[str, int]
C = TypeVar("C", bound=Connection[Any] | AsyncConnection[Any])


def is_answering(address: SocketAddress) -> bool:
    """Say whether a server reacts to a new connection; a refusal is an answer too."""
    try:
        with closing(_connect(*address)) as line:
            line.sendall(_ENCRYPTION_REQUEST)
            line.recv(1)
    except TimeoutError:
        return False
    except OSError:
        # Nobody listens, or there is no way: the connections themselves hear of that.
        return True
    return True


def _connect(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port), ANSWER_S)
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(ANSWER_S)
    try:
        line.connect(f"{host}/.s.PGSQL.{port}")
    except OSError:
        line.close()
        raise
    return line


def shut_down(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """End a connection for those that wait on it."""
    if not connection.closed:
        with socket.socket(fileno=os.dup(connection.fileno())) as line, suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)


class LentConnections(Generic[C]):
    """The connections of a pool that are in use, since when, and those among them whose server was given up."""

    def __init__(self) -> None:
        self._since: dict[C, float] = {}
        self._given_up: dict[C, DatabaseUnreachable] = {}

    def add(self, connection: C) -> None:
        """A connection is lent."""
        self._since[connection] = time.monotonic()

    def remove(self, connection: C) -> None:
        """A connection came back."""
        self._since.pop(connection, None)
        self._given_up.pop(connection, None)

    def trouble(self, connection: C) -> DatabaseUnreachable | None:
        """Return the error of a lent connection whose server hangs."""
        return self._given_up.get(connection)

    def __len__(self) -> int:
        return len(self._since)

    def overdue(self) -> dict[SocketAddress, list[tuple[C, float]]]:
        """Return what has been lent for long, by its server."""
        found: dict[SocketAddress, list[tuple[C, float]]] = defaultdict(list)
        before = time.monotonic() - SILENT_S
        for connection, since in self._since.copy().items():
            if since <= before:
                # One that was closed meanwhile has no address any more.
                with suppress(OperationalError):
                    info = connection.info
                    found[info.hostaddr or info.host, info.port].append((connection, since))
        return found

    def give_up(self, address: SocketAddress, lent: list[tuple[C, float]]) -> None:
        """End the waits on connections to a server that hangs, unless they are back by now."""
        for connection, since in lent:
            if self._since.get(connection) == since:
                self._given_up[connection] = DatabaseUnreachable(
                    f"the server hangs: {address[0]}:{address[1]} accepts connections but has not responded "
                    f"for {ANSWER_S:g} s",
                    help="check what blocks it: disk, memory, or a stopped process",
                )
                shut_down(connection)


class ThreadWatch(LentConnections[C]):
    """Looks after the servers of connections lent to threads, on a thread that ends when none is lent."""

    def __init__(self) -> None:
        super().__init__()
        self._timer: threading.Timer | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def add(self, connection: C) -> None:
        """A connection is lent."""
        super().add(connection)
        if self._timer is None:
            with self._lock:
                if self._timer is None:
                    self._look_later()

    def close(self) -> None:
        """Look no more; a look that has begun ends by itself."""
        with self._lock:
            timer, self._timer = self._timer, None
            self._is_closed = True
        if timer is not None:
            timer.cancel()
            timer.join(CLOSE_S)

    def _look_later(self) -> None:
        if self._is_closed:
            return
        self._timer = threading.Timer(SILENT_S, self._look)
        self._timer.daemon = True
        self._timer.start()

    def _look(self) -> None:
        try:
            for address, lent in self.overdue().items():
                if not is_answering(address):
                    self.give_up(address, lent)
        finally:
            with self._lock:
                self._timer = None
                if len(self):
                    self._look_later()


class LoopWatch(LentConnections[C]):
    """Looks after the servers of connections lent to the tasks of one event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    def add(self, connection: C) -> None:
        """A connection is lent."""
        super().add(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SILENT_S, self._begin)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        try:
            for address, lent in self.overdue().items():
                if not await asyncio.to_thread(is_answering, address):
                    self.give_up(address, lent)
        finally:
            self._timer = self._looking = None
            if len(self):
                self._timer = asyncio.get_running_loop().call_later(SILENT_S, self._begin)

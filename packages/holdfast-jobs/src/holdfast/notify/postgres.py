"""Hints over PostgreSQL's LISTEN and NOTIFY, on connections of their own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections import deque
from collections.abc import Sequence

from holdfast.core.errors import MissingExtra, NoConnection
from holdfast.notify.encoding import channel_name
from holdfast.notify.server_notifier import Deliver, ListenerTimings, Purpose, ServerNotifier

try:
    from psycopg import OperationalError
    from psycopg.sql import SQL, Identifier
except ImportError as error:
    raise MissingExtra(
        "hints over PostgreSQL need psycopg", help='pip install "holdfast-jobs[postgres]"'
    ) from error

from holdfast.storage.postgres.connection import (
    connection_string,
    notify_statement,
    parse_url,
    remember_host,
)
from holdfast.storage.postgres.hosts import connect_async
from holdfast.storage.postgres.psycopg_internals import LinkConnection
from holdfast.storage.postgres.shortage import shortage_of

STATEMENT_TIMEOUT_MS = 5_000
_NO_ROOM = "the server has no room for more connections, and handlers' transactions come first"


def postgres_notifier(
    url: str, schema: str, listen_url: str | None = None, *, timings: ListenerTimings | None = None
) -> ServerNotifier:
    """Return a notifier on this server; `listen_url` bypasses a pooler that does not support LISTEN."""
    channel = channel_name(schema)
    urls: dict[Purpose, str] = {"hint sender": url, "hint listener": listen_url or url}
    for each in urls.values():
        parse_url(each)

    async def connect(purpose: Purpose) -> PostgresConnection:
        shortage = shortage_of(urls[purpose])
        if shortage.is_on:
            raise NoConnection(_NO_ROOM)
        # A hint is about what is committed already, so its own commit need not wait for the disk.
        text = connection_string(urls[purpose], purpose, STATEMENT_TIMEOUT_MS, durable=False)
        connection = await connect_async(
            LinkConnection, text, autocommit=True, prepare_threshold=None
        )
        remember_host(urls[purpose], connection)
        opened = PostgresConnection(connection, channel)
        shortage.add(opened)
        return opened

    return ServerNotifier(connect, listener_timings=timings)


class PostgresConnection:
    """A `server_notifier.ServerConnection` over one connection of the driver."""

    def __init__(self, connection: LinkConnection, channel: str) -> None:
        self._connection = connection
        self._channel = channel
        # A channel of its own, so that the echoes of one listener do not wake all others.
        self._own_channel = f"{channel}_{secrets.token_hex(4)}"
        self._arrived: deque[str] = deque()
        self._watched: int | None = None
        self._deliver: Deliver | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._gave_way = False
        connection.add_notify_handler(lambda notify: self._arrived.append(notify.payload))

    async def publish(self, payloads: Sequence[str]) -> None:
        await self._notify(self._channel, payloads)

    async def subscribe(self) -> None:
        for channel in (self._channel, self._own_channel):
            await self._execute(SQL("listen {}").format(Identifier(channel)).as_bytes(None))
        self._watch()

    async def echo(self, payload: str) -> None:
        await self._notify(self._own_channel, [payload])
        # The driver watched the socket for its answer, and forgot it.
        self._watch()

    async def receive(self, timeout: float, deliver: Deliver) -> None:
        loop = asyncio.get_running_loop()
        self._waiter, self._deliver = loop.create_future(), deliver
        timer = loop.call_later(timeout, self._end_wait)
        try:
            self._on_input()
            await self._waiter
        finally:
            timer.cancel()
            self._deliver = None

    def give_way(self, entirely: bool) -> None:
        """See `shortage.GivesWay`: whoever listens here polls instead."""
        self._gave_way = True
        self._shut_down_socket()

    async def close(self) -> None:
        self._stop_watching()
        self._connection.give_up()

    def _watch(self) -> None:
        # For as long as it listens, without psycopg's generator or a task: the thread that a hint wakes waits for it.
        self._connection.forget_socket()
        self._watched = self._connection.pgconn.socket
        asyncio.get_running_loop().add_reader(self._watched, self._on_input)

    def _stop_watching(self) -> None:
        if self._watched is not None:
            asyncio.get_running_loop().remove_reader(self._watched)
            self._watched = None

    def _on_input(self) -> None:
        try:
            self._take_in()
        except Exception as error:
            self._stop_watching()
            self._end_wait(error)
        while self._arrived and self._deliver is not None:
            if self._deliver(self._arrived.popleft()):
                self._end_wait()

    def _end_wait(self, error: Exception | None = None) -> None:
        self._deliver = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error) if error else self._waiter.set_result(None)

    def _take_in(self) -> None:
        session = self._connection.pgconn
        try:
            session.consume_input()
        except OperationalError:
            if self._gave_way:
                raise NoConnection(_NO_ROOM) from None
            raise
        while (found := session.notifies()) is not None:
            self._arrived.append(found.extra.decode())

    async def _notify(self, channel: str, payloads: Sequence[str]) -> None:
        await self._execute(b"; ".join(notify_statement(channel, each) for each in payloads))

    async def _execute(self, statement: bytes) -> None:
        running = asyncio.ensure_future(self._connection.execute(statement))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            # Cancelled itself, psycopg would wait for the server to confirm, and a dead one never does.
            self._shut_down_socket()
            await asyncio.gather(running, return_exceptions=True)
            raise

    def _shut_down_socket(self) -> None:
        """Shut the socket down for those that wait on it, without closing it under them."""
        with contextlib.suppress(OSError, OperationalError):
            ours = socket.socket(fileno=self._connection.pgconn.socket)
            try:
                ours.shutdown(socket.SHUT_RDWR)
            finally:
                ours.detach()

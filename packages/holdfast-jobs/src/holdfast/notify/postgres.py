"""Hints over PostgreSQL's LISTEN and NOTIFY, on connections of their own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Sequence
from typing import Any

from holdfast.core.errors import MissingExtra, NoConnection
from holdfast.notify.encoding import channel_name
from holdfast.notify.server_notifier import ListenerTimings, Purpose, ServerNotifier

try:
    from psycopg import AsyncConnection, OperationalError
    from psycopg.sql import SQL, Composed, Identifier, Literal
except ImportError as error:
    raise MissingExtra(
        "hints over PostgreSQL need psycopg", help='pip install "holdfast-jobs[postgres]"'
    ) from error

from holdfast.storage.postgres.connection import connection_string, parse_url, remember_host
from holdfast.storage.postgres.hosts import connect_async
from holdfast.storage.postgres.psycopg_internals import LinkConnection
from holdfast.storage.postgres.shortage import shortage_of

STATEMENT_TIMEOUT_MS = 5_000
_NO_ROOM = "the server has no room for more connections, and handlers' transactions come first"
# A command and not a query of pg_notify(): it needs no plan.
PUBLISH = SQL("notify {channel}, {payload}")


def postgres_notifier(
    url: str,
    schema: str,
    listen_url: str | None = None,
    *,
    timings: ListenerTimings | None = None,
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

    def __init__(self, connection: AsyncConnection[Any], channel: str) -> None:
        self._connection = connection
        self._channel = channel
        # A channel of its own, so that the echoes of one listener do not wake all others.
        self._own_channel = f"{channel}_{secrets.token_hex(4)}"
        self._arrived: list[str] = []
        self._gave_way = False
        connection.add_notify_handler(lambda notify: self._arrived.append(notify.payload))

    async def publish(self, payloads: Sequence[str]) -> None:
        await self._notify(self._channel, payloads)

    async def subscribe(self) -> None:
        for channel in (self._channel, self._own_channel):
            await self._execute(SQL("listen {}").format(Identifier(channel)))

    async def echo(self, payload: str) -> None:
        await self._notify(self._own_channel, [payload])

    async def receive(self, timeout: float) -> Sequence[str]:
        # psycopg's own generator costs a listener more than all else between a commit and its hint.
        if not self._arrived:
            await self._wait_for_input(timeout)
            self._take_in()
        payloads = list(self._arrived)
        self._arrived.clear()
        return payloads

    def give_way(self, entirely: bool) -> None:
        """See `shortage.GivesWay`: whoever listens here polls instead."""
        self._gave_way = True
        self._shut_down_socket()

    async def close(self) -> None:
        # Only close the socket; terminating politely could wait for a dead peer.
        self._connection.pgconn.finish()

    async def _wait_for_input(self, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        session = self._connection.pgconn.socket
        loop.add_reader(session, _resolve, waiter)
        timer = loop.call_later(timeout, _resolve, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            loop.remove_reader(session)

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
        name = Identifier(channel)
        commands = (PUBLISH.format(channel=name, payload=Literal(each)) for each in payloads)
        await self._execute(SQL("; ").join(commands))

    async def _execute(self, statement: Composed) -> None:
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


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)

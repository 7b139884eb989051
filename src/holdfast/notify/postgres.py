"""Hints over PostgreSQL's LISTEN and NOTIFY, on connections of their own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Sequence
from typing import Any, LiteralString

from holdfast.core.errors import MissingExtra
from holdfast.notify.connection import Purpose
from holdfast.notify.encoding import channel_name
from holdfast.notify.listener import Patience
from holdfast.notify.sender import Pace
from holdfast.notify.server_notifier import LineNotifier

try:
    from psycopg import AsyncConnection, OperationalError
    from psycopg.sql import SQL, Composed, Identifier
except ImportError as error:
    raise MissingExtra(
        "hints over PostgreSQL need psycopg", help='pip install "holdfast-jobs[postgres]"'
    ) from error

from holdfast.storage.postgres.connection import connection_string, parse_url

STATEMENT_TIMEOUT_MS = 5_000
PUBLISH = "select pg_notify(%s, payload) from unnest(%s::text[]) as payload"


def postgres_notifier(
    url: str,
    schema: str,
    *,
    listen_url: str | None = None,
    pace: Pace | None = None,
    patience: Patience | None = None,
) -> LineNotifier:
    """Return a notifier on this server; `listen_url` leads around a pooler that does not pass LISTEN."""
    channel = channel_name(schema)
    urls: dict[Purpose, str] = {"hint sender": url, "hint listener": listen_url or url}
    for each in urls.values():
        parse_url(each)

    async def dial(purpose: Purpose) -> PostgresLine:
        # A hint says what is committed already, so its own commit need not wait for the disk.
        text = connection_string(urls[purpose], purpose, STATEMENT_TIMEOUT_MS, durable=False)
        connection = await AsyncConnection.connect(text, autocommit=True, prepare_threshold=None)
        return PostgresLine(connection, channel)

    return LineNotifier(dial, pace, patience)


class PostgresLine:
    """See `line.Line`."""

    def __init__(self, connection: AsyncConnection[Any], channel: str) -> None:
        self._connection = connection
        self._channel = channel
        # A channel of its own, so that a fleet's proofs do not wake the fleet.
        self._own_channel = f"{channel}_{secrets.token_hex(4)}"

    async def publish(self, payloads: Sequence[str]) -> None:
        await self._execute(PUBLISH, [self._channel, list(payloads)])

    async def subscribe(self) -> None:
        for channel in (self._channel, self._own_channel):
            await self._execute(SQL("listen {}").format(Identifier(channel)))

    async def echo(self, payload: str) -> None:
        await self._execute(PUBLISH, [self._own_channel, [payload]])

    async def receive(self, timeout: float) -> Sequence[str]:
        arriving = self._connection.notifies(timeout=timeout, stop_after=1)
        async with contextlib.aclosing(arriving) as notifications:
            return [notification.payload async for notification in notifications]

    async def close(self) -> None:
        # The socket is all we want to be rid of; a polite goodbye could wait for a dead peer.
        self._connection.pgconn.finish()

    async def _execute(
        self, statement: LiteralString | Composed, params: list[Any] | None = None
    ) -> None:
        running = asyncio.ensure_future(self._connection.execute(statement, params))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            # Cancelled itself, psycopg would wait for the server to confirm, and a dead one never does.
            self._cut_off()
            await asyncio.gather(running, return_exceptions=True)
            raise

    def _cut_off(self) -> None:
        """End the connection for whoever waits on it, without closing what they still hold."""
        with contextlib.suppress(OSError, OperationalError):
            ours = socket.socket(fileno=self._connection.pgconn.socket)
            try:
                ours.shutdown(socket.SHUT_RDWR)
            finally:
                ours.detach()

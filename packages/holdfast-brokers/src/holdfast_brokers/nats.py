"""Hints over core NATS subjects."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

from holdfast.core.errors import MissingExtra
from holdfast.notify.encoding import channel_name
from holdfast.notify.server_notifier import Deliver, ListenerTimings, Purpose, ServerNotifier

try:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
except ImportError as error:
    raise MissingExtra(
        "hints over NATS need nats-py", help='pip install "holdfast-jobs[nats]"'
    ) from error

ANSWER_TIMEOUT_S = 5
LOST = "the connection to NATS was lost"


def nats_notifier(
    url: str, schema: str, listen_url: str | None = None, *, timings: ListenerTimings | None = None
) -> ServerNotifier:
    """Return a notifier on these servers, several separated by commas."""
    subject = channel_name(schema)

    async def connect(purpose: Purpose) -> NatsConnection:
        connection = NatsConnection(subject)
        try:
            await connection.open(url.split(","), f"holdfast {purpose}")
        except BaseException:
            await connection.close()
            raise
        return connection

    return ServerNotifier(connect, listener_timings=timings)


class NatsConnection:
    """A `server_notifier.ServerConnection` without the client's own reconnecting: the listener must see every loss."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._own_subject = f"{subject}_{secrets.token_hex(4)}"
        self._client = Client()
        self._lost = asyncio.Event()
        # None is the end of the connection.
        self._arrived: asyncio.Queue[str | None] = asyncio.Queue()

    async def open(self, servers: list[str], name: str) -> None:
        """Connect, trying each server at most twice and without a delay: the listener has its own backoff."""
        await self._client.connect(
            servers,
            name=name,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=ANSWER_TIMEOUT_S,
            closed_cb=self._on_closed,
            error_cb=self._on_error,
        )

    async def publish(self, payloads: Sequence[str]) -> None:
        for payload in payloads:
            await self._client.publish(self._subject, payload.encode())
        await self._flush()

    async def subscribe(self) -> None:
        for subject in (self._subject, self._own_subject):
            await self._client.subscribe(subject, cb=self._on_message)
        await self._flush()

    async def echo(self, payload: str) -> None:
        await self._client.publish(self._own_subject, payload.encode())

    async def receive(self, timeout: float, deliver: Deliver) -> None:
        try:
            async with asyncio.timeout(timeout):
                payload = await self._arrived.get()
        except TimeoutError:
            return
        if payload is None:
            raise ConnectionError(LOST)
        deliver(payload)

    async def close(self) -> None:
        await self._client.close()

    async def _on_message(self, message: Msg) -> None:
        self._arrived.put_nowait(message.data.decode("utf-8", "replace"))

    async def _on_error(self, error: Exception) -> None:
        # After some errors the client does not report that it closed; and a slow consumer missed hints too.
        await self._on_closed()

    async def _on_closed(self) -> None:
        self._lost.set()
        self._arrived.put_nowait(None)

    async def _flush(self) -> None:
        """Wait until the server has everything, or until the connection is lost, which flush does not notice."""
        flushed = asyncio.create_task(self._client.flush(ANSWER_TIMEOUT_S))
        lost = asyncio.create_task(self._lost.wait())
        try:
            await asyncio.wait((flushed, lost), return_when=asyncio.FIRST_COMPLETED)
            if not flushed.done():
                raise ConnectionError(LOST)
            flushed.result()
        finally:
            flushed.cancel()
            lost.cancel()

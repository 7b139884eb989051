"""Hints over Redis publish and subscribe."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from holdfast.core.errors import ConfigError, MissingExtra
from holdfast.notify.encoding import channel_name
from holdfast.notify.server_notifier import Deliver, ListenerTimings, Purpose, ServerNotifier

try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
except ImportError as error:
    raise MissingExtra(
        "hints over Redis need redis-py", help='pip install "holdfast-jobs[redis]"'
    ) from error

ANSWER_TIMEOUT_S = 5.0


def redis_notifier(
    url: str, schema: str, listen_url: str | None = None, *, timings: ListenerTimings | None = None
) -> ServerNotifier:
    """Return a notifier on this server.

    Applications that share the server and the schema's name receive each other's hints: they poll once more, no harm.
    """
    channel = channel_name(schema)
    _check(url)

    async def connect(purpose: Purpose) -> RedisConnection:
        client = _client(url, f"holdfast-{purpose.replace(' ', '-')}")
        connection = RedisConnection(client, channel)
        try:
            await client.ping()
        except BaseException:
            await connection.close()
            raise
        return connection

    return ServerNotifier(connect, listener_timings=timings)


def _client(url: str, name: str) -> Redis:
    # Without retries: redis-py would silently reconnect, and hints would be missed.
    return Redis.from_url(
        url,
        client_name=name,
        decode_responses=True,
        encoding_errors="replace",
        retry=Retry(NoBackoff(), 0),
        socket_connect_timeout=ANSWER_TIMEOUT_S,
        socket_keepalive=True,
    )


def _check(url: str) -> None:
    try:
        _client(url, "holdfast")
    except ValueError as error:
        raise ConfigError(
            f"Redis rejects the notifier's URL: {error}", help="write it as redis://host:6379/0"
        ) from None


class RedisConnection:
    """A `server_notifier.ServerConnection` over one connection of the driver."""

    def __init__(self, client: Redis, channel: str) -> None:
        self._client = client
        self._channel = channel
        self._own_channel = f"{channel}_{secrets.token_hex(4)}"
        self._subscription = client.pubsub(ignore_subscribe_messages=True)

    async def publish(self, payloads: Sequence[str]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for payload in payloads:
            pipeline.publish(self._channel, payload)
        await pipeline.execute()

    async def subscribe(self) -> None:
        await self._subscription.subscribe(self._channel, self._own_channel)

    async def echo(self, payload: str) -> None:
        await self._client.publish(self._own_channel, payload)

    async def receive(self, timeout: float, deliver: Deliver) -> None:
        message: dict[str, Any] | None = await self._subscription.get_message(timeout=timeout)
        if message is not None:
            deliver(str(message["data"]))

    async def close(self) -> None:
        await self._subscription.aclose()  # type: ignore[no-untyped-call]
        await self._client.aclose()

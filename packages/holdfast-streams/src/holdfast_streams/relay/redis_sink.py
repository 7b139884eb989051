"""Streams of Redis or Valkey as a sink: one stream per line, whose ids are the positions.

Redis keeps the last id that a stream has given, whatever is trimmed, and refuses one that is "equal or smaller". The
batch is a transaction that holds only if nobody has written meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import OutOfMemoryError, RedisError, ResponseError, WatchError

from holdfast_streams.brokers import RedisStream
from holdfast_streams.errors import BrokerAway, EventRefused, SecondWriter
from holdfast_streams.relay.cloud_events import ID_HEADERS
from holdfast_streams.relay.sink import LineEnd, OutgoingMessage, Position, Stored

ANSWER_S = 5.0
DATA, _POSITION = "data", "Holdfast-Position"
MAX_VALUE_BYTES = 512 * 1024 * 1024

_PLACE_BITS = 48
"""An id has two numbers of 64 bits: the first is the place, with the epochs after the first above it."""


class RedisSink:
    """See `sink.Sink`."""

    def __init__(self, stream: RedisStream) -> None:
        self._stream = stream.stream
        # Without retries: an append whose answer is lost must not be sent again without looking.
        self._client: Any = Redis.from_url(
            stream.url,
            client_name="holdfast-relay",
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=ANSWER_S,
            socket_timeout=ANSWER_S,
        )

    async def open(self, creates: bool) -> None:
        try:
            await self._client.ping()
        except (RedisError, OSError) as error:
            raise _away(error) from error

    async def resume(self, line: int) -> LineEnd:
        key = self.key_of(line)
        try:
            tail = await self._tail(self._client, key)
            newest = await self._client.xrevrange(key, count=1) if tail.position else []
        except (RedisError, OSError) as error:
            raise _away(error) from error
        if newest and _position(newest[0][0]) == tail.position:
            return LineEnd(tail.position, _text(newest[0][1], *ID_HEADERS))
        return tail

    async def _tail(self, client: Any, key: str) -> LineEnd:
        try:
            facts = await client.xinfo_stream(key)
        except ResponseError as error:
            if "no such key" in str(error).lower():
                return LineEnd()
            raise
        return LineEnd(_position(facts["last-generated-id"]))

    async def append(
        self, line: int, expected: LineEnd, batch: Sequence[OutgoingMessage]
    ) -> LineEnd:
        key = self.key_of(line)
        try:
            async with self._client.pipeline(transaction=True) as pipeline:
                await pipeline.watch(key)
                tail = await self._tail(pipeline, key)
                if tail.position != expected.position:
                    raise SecondWriter(f"{key} ends at another message than expected")
                pipeline.multi()
                for each in batch:
                    fields = {**each.headers, _POSITION: each.position.on(line), DATA: each.data}
                    pipeline.xadd(key, fields, id=id_of(each.position))
                await pipeline.execute()
        except WatchError as error:
            raise SecondWriter(f"{key} was written to meanwhile") from error
        except ResponseError as error:
            if "equal or smaller" in str(error):
                raise SecondWriter(f"Redis says: {error}") from error
            if "string exceeds maximum allowed size" in str(error):
                raise EventRefused(f"Redis says: {error}") from error
            raise _away(error) from error
        except (RedisError, OSError) as error:
            raise _away(error) from error
        end = batch[-1]
        return LineEnd(end.position, end.id)

    async def read_after(self, line: int, position: Position, limit: int) -> list[Stored]:
        key, after = self.key_of(line), f"({id_of(position)}"
        try:
            found = await self._client.xrange(key, min=after, count=limit)
        except (RedisError, OSError) as error:
            raise _away(error) from error
        return [
            Stored(
                _position(id),
                _text(fields, *ID_HEADERS),
                _text(fields, "ce-type", "Holdfast-Event"),
            )
            for id, fields in found
        ]

    def refusal(self, line: int, message: OutgoingMessage) -> str | None:
        if len(message.data) > MAX_VALUE_BYTES:
            return f"the event has {len(message.data):,} bytes, and Redis takes {MAX_VALUE_BYTES:,}"
        return None

    async def close(self) -> None:
        with suppress(RedisError, OSError):
            await self._client.aclose()

    def key_of(self, line: int) -> str:
        """Return the key of a line's stream."""
        return f"{self._stream}:{line}"


def id_of(position: Position) -> str:
    """Return a position as the id of an entry."""
    return f"{((position.epoch - 1) << _PLACE_BITS) + position.place}-{position.late}"


def _position(id: bytes | str) -> Position:
    first, _, late = (id.decode() if isinstance(id, bytes) else id).partition("-")
    epoch, place = divmod(int(first), 1 << _PLACE_BITS)
    return Position(epoch + 1, place, int(late))


def _text(fields: Mapping[bytes, bytes], *names: str) -> str:
    found = (fields.get(name.encode()) for name in names)
    return next((each.decode() for each in found if each is not None), "")


def _away(error: Exception) -> BrokerAway:
    if isinstance(error, OutOfMemoryError) or "OOM" in str(error):
        return BrokerAway(f"Redis is full: {error}", "full")
    if isinstance(error, ResponseError):
        return BrokerAway(f"Redis refuses: {error}", "unfit")
    return BrokerAway(f"Redis cannot be reached: {str(error) or type(error).__name__}")

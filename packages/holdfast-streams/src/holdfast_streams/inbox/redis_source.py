"""An inbox's stream in Redis or Valkey: a consumer group that processes share.

What a process has read and not acknowledged is claimed by others once it has been silent for long enough.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.core.errors import MissingExtra

try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError, ResponseError
except ImportError as error:
    raise MissingExtra(
        "an inbox of Redis needs redis-py", help='pip install "holdfast-jobs[streams,redis]"'
    ) from error

from holdfast_streams.brokers import RedisStream
from holdfast_streams.errors import BrokerAway
from holdfast_streams.inbox.broker_source import (
    MISSING_HELP,
    BrokerDelivery,
    PlacedMessage,
    message_id,
    message_key,
)
from holdfast_streams.inbox.message import RawMessage

ANSWER_S = 5.0
DATA = "data"
"""The field with a message's body; a message without it is all of its fields, as a JSON object."""

LOOK_S = 1.0
"""How often other processes' messages and new streams are looked for."""

_ERRORS = (RedisError, OSError)


class RedisSource:
    """See `broker_source.BrokerSource`."""

    def __init__(self, inbox: str, stream: RedisStream, worker: str, idle_s: float) -> None:
        self._inbox = inbox
        self._stream = stream
        self._group = stream.group or inbox
        self._worker = worker
        self._idle_ms = int(idle_s * 1000)
        self._keys: list[str] = []
        self._looked = 0.0
        self._later: list[tuple[float, BrokerDelivery]] = []
        self._client = _make_client(stream)

    async def open(self) -> None:
        self._client = _make_client(self._stream)
        self._keys, self._looked = [], 0.0
        try:
            await self._client.ping()
        except _ERRORS as error:
            raise _away(error) from error

    async def fetch(self, limit: int, wait_s: float) -> list[BrokerDelivery]:
        now = time.monotonic()
        due = [each for at, each in self._later if at <= now][:limit]
        if due:
            self._later = [each for each in self._later if each[1] not in due]
            return due
        # One that is to be tried again is waited for no longer than until then.
        wait_s = min([wait_s, *(at - now for at, _ in self._later)])
        try:
            if now - self._looked >= LOOK_S or not self._keys:
                self._looked = now
                await self._look_for_streams()
                if found := await self._claim(limit):
                    return found
            return await self._read(limit, wait_s)
        except _ERRORS as error:
            raise _away(error) from error

    async def _look_for_streams(self) -> None:
        names = self._stream.lines
        async with self._client.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.exists(name)
            there = await pipeline.execute()
        for name, is_there in zip(names, there, strict=True):
            if is_there and name not in self._keys:
                try:
                    await self._client.xgroup_create(name, self._group, id="0")
                except ResponseError as error:
                    if "BUSYGROUP" not in str(error):
                        raise
                self._keys.append(name)

    async def _claim(self, limit: int) -> list[BrokerDelivery]:
        """Take over what processes left that are gone. What this one waits to try again is its own already."""
        waiting = {each.handle for _, each in self._later}
        for key in self._keys:
            answer = await self._client.xautoclaim(
                key, self._group, self._worker, self._idle_ms, "0-0", limit
            )
            entries = [each for each in answer[1] if each[1] and (key, each[0]) not in waiting]
            if entries:
                first, last = entries[0][0], entries[-1][0]
                pending = await self._client.xpending_range(
                    key, self._group, first, last, len(answer[1]) + limit, self._worker
                )
                counts = {each["message_id"]: int(each["times_delivered"]) for each in pending}
                return [
                    self._delivery(key, id, fields, counts.get(id, 2)) for id, fields in entries
                ]
        return []

    async def _read(self, limit: int, wait_s: float) -> list[BrokerDelivery]:
        if not self._keys:
            raise _name_missing(self._stream)
        try:
            answer: Any = await self._client.xreadgroup(
                self._group,
                self._worker,
                dict.fromkeys(self._keys, ">"),
                count=limit,
                block=max(1, int(wait_s * 1000)),
            )
        except ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            # A stream was deleted; it is found again when it is back.
            self._keys = []
            return []
        return [self._delivery(key, id, fields, 1) for key, id, fields in _entries(answer)]

    def _delivery(
        self, key: str, id: bytes, fields: Mapping[bytes, bytes], attempts: int
    ) -> BrokerDelivery:
        return BrokerDelivery(_raw(self._inbox, key, id, fields), attempts, (key, id))

    async def ack(self, deliveries: Sequence[BrokerDelivery]) -> None:
        try:
            async with self._client.pipeline(transaction=False) as pipeline:
                for key, ids in _by_key(deliveries).items():
                    pipeline.xack(key, self._group, *ids)
                await pipeline.execute()
        except _ERRORS as error:
            raise _away(error) from error

    async def retry_later(self, delivery: BrokerDelivery, delay_s: float) -> None:
        again = BrokerDelivery(delivery.raw, delivery.attempts + 1, delivery.handle)
        self._later.append((time.monotonic() + delay_s, again))

    async def keep(self, deliveries: Sequence[BrokerDelivery]) -> None:
        held = [*deliveries, *(each for _, each in self._later)]
        try:
            for key, ids in _by_key(held).items():
                await self._client.xclaim(key, self._group, self._worker, 0, ids, justid=True)
        except _ERRORS as error:
            raise _away(error) from error

    async def close(self) -> None:
        try:
            for key in self._keys:
                pending = await self._client.xpending_range(
                    key, self._group, "-", "+", 1, self._worker
                )
                if not pending:
                    await self._client.xgroup_delconsumer(key, self._group, self._worker)
        except _ERRORS:
            pass
        with suppress(*_ERRORS):
            await self._client.aclose()


class RedisLines:
    """See `broker_source.LinedSource`. Without a group: where to go on is what the database says."""

    def __init__(self, inbox: str, stream: RedisStream) -> None:
        self._inbox = inbox
        self._stream = stream
        self._client = _make_client(stream)

    @property
    def lines(self) -> list[str]:
        return self._stream.lines

    async def open(self) -> None:
        self._client = _make_client(self._stream)
        try:
            there = await self._client.exists(*self._stream.lines)
        except _ERRORS as error:
            raise _away(error) from error
        if not there:
            raise _name_missing(self._stream)

    async def begin(self, line: str, place: str | None) -> RedisFeed:
        return RedisFeed(self._client, self._inbox, line, place or "0-0")

    async def close(self) -> None:
        with suppress(*_ERRORS):
            await self._client.aclose()


class RedisFeed:
    """See `broker_source.LineFeed`. A relay's messages have their places in the log for ids, also in a new stream."""

    def __init__(self, client: Redis, inbox: str, key: str, last: str) -> None:
        self._client = client
        self._inbox = inbox
        self._key = key
        self._last = last

    async def fetch(self, limit: int, wait_s: float) -> list[PlacedMessage]:
        try:
            answer = await self._client.xread(
                {self._key: self._last}, count=limit, block=max(1, int(wait_s * 1000))
            )
        except _ERRORS as error:
            raise _away(error) from error
        found: list[PlacedMessage] = []
        for key, id, fields in _entries(answer):
            raw = _raw(self._inbox, key, id, fields)
            self._last = id.decode()
            found.append(PlacedMessage(raw, self._last, message_key(raw.headers)))
        return found

    async def close(self) -> None:
        """There is nothing to close: the connection is the source's."""


def _make_client(stream: RedisStream) -> Redis:
    return Redis.from_url(
        stream.url,
        client_name="holdfast-inbox",
        retry=Retry(NoBackoff(), 0),
        socket_connect_timeout=ANSWER_S,
        # Longer than any fetch waits for messages.
        socket_timeout=ANSWER_S,
        socket_keepalive=True,
    )


def _raw(inbox: str, key: str, id: bytes, fields: Mapping[bytes, bytes]) -> RawMessage:
    texts = {name.decode("utf-8", "replace"): value for name, value in fields.items()}
    body = texts.pop(DATA, None)
    headers = {name.lower(): value.decode("utf-8", "replace") for name, value in texts.items()}
    if body is None:
        body = msgspec.json.encode(headers)
    return RawMessage(inbox, message_id(headers, f"{key} {id.decode()}"), body, headers, key)


def _entries(answer: Any) -> Iterator[tuple[str, bytes, Mapping[bytes, bytes]]]:
    """Return what was read, by stream, whichever way the client nests it."""
    for key, entries in answer.items() if isinstance(answer, dict) else answer or []:
        flat = entries[0] if entries and isinstance(entries[0], list) else entries
        for id, fields in flat:
            yield key.decode(), id, fields


def _by_key(deliveries: Sequence[BrokerDelivery]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for each in deliveries:
        key, id = each.handle
        found.setdefault(key, []).append(id)
    return found


def _name_missing(stream: RedisStream) -> BrokerAway:
    return BrokerAway(f"Redis has no stream {stream.stream}", help=MISSING_HELP)


def _away(error: Exception) -> BrokerAway:
    return BrokerAway(f"Redis cannot be read: {str(error) or type(error).__name__}")

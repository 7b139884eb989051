"""Relays that feed a broker, and what its stream has in the end."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import nats
import nats.errors
import redis.asyncio

from holdfast_streams import JetStream, RedisStream
from holdfast_streams.relay.jetstream_sink import JetStreamSink
from holdfast_streams.relay.redis_sink import RedisSink
from holdfast_streams.relay.sink import Position, Sink, Stored
from tests.streams.scene import Scene
from tests.support.until import until

LINES = 16


def sink_of(to: JetStream | RedisStream) -> Sink:
    return JetStreamSink(to) if isinstance(to, JetStream) else RedisSink(to)


@asynccontextmanager
async def reading(to: JetStream | RedisStream) -> AsyncIterator[Sink]:
    """A sink to look into a stream with."""
    sink = sink_of(to)
    await sink.open(creates=True)
    try:
        yield sink
    finally:
        await sink.close()


async def stored(sink: Sink) -> list[Stored]:
    """All that a stream has, line by line in order."""
    found = []
    for line in range(LINES):
        found += await sink.read_after(line, Position(1, 0), 100_000)
    return found


async def messages(to: JetStream) -> list[Any]:
    """All messages of a stream as a subscriber gets them, in the stream's order."""
    found: list[Any] = []

    async def is_read() -> bool:
        # A cluster that lost a node may be without a leader for a while.
        try:
            found[:] = await _read_all(to)
        except nats.errors.Error:
            return False
        return True

    await until(is_read)
    return found


async def _read_all(to: JetStream) -> list[Any]:
    client = await nats.connect(to.url.split(","))
    try:
        context = client.jetstream()
        count = (await context.stream_info(to.stream)).state.messages
        if not count:
            return []
        subscription = await context.subscribe(f"{to.stream}.>", ordered_consumer=True)
        return [await subscription.next_msg(timeout=10) for _ in range(count)]
    finally:
        await client.close()


async def numbers(to: JetStream | RedisStream) -> list[tuple[str, int]]:
    """Keys and numbers of all that a broker has, in its order: JetStream's, or that of each line in Redis."""
    if isinstance(to, JetStream):
        return [(m.headers["ce-subject"], json.loads(m.data)["n"]) for m in await messages(to)]
    client: Any = redis.asyncio.Redis.from_url(to.url)
    found = [
        (fields[b"ce-subject"].decode(), json.loads(fields[b"data"])["n"])
        for line in range(LINES)
        for _, fields in await client.xrange(f"{to.stream}:{line}")
    ]
    await client.aclose()
    return found


async def check_each_once(to: JetStream | RedisStream, total: int) -> None:
    """Read what a broker has: each number below the total once, in order per key."""
    found = await numbers(to)
    assert len(found) == total
    assert sorted(n for _, n in found) == list(range(total))
    assert order_breaks(found) == 0


def published(scene: Scene) -> set[str]:
    """The ids of all events in the log."""
    with scene.app.transaction() as tx:
        table = "holdfast.log" if scene.is_postgres else "holdfast_log"
        rows = tx.execute(f"select id from {table}").fetchall()  # noqa: S608
    return {str(row[0]) for row in rows}


def order_breaks(found: list[tuple[str, int]]) -> int:
    """How often a number of a key came after a later one."""
    last: dict[str, int] = defaultdict(lambda: -1)
    broken = 0
    for key, n in found:
        broken += n <= last[key]
        last[key] = n
    return broken

"""Brokers for tests, each with a stream: what is sent to them, and what they still hold."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import nats
import pytest
import redis.asyncio

from holdfast_streams import JetStream, RedisStream
from tests.notify.servers import LeashedServer
from tests.streams.broker_servers import jetstream_server, redis_server


class Broker(Protocol):
    """A broker's stream."""

    server: LeashedServer
    source: JetStream | RedisStream

    async def send(self, *documents: Any, headers: dict[str, str] | None = None) -> None:
        """Send documents, bytes as they are."""

    async def open_messages(self) -> int:
        """How many messages were not acknowledged."""


def encoded(document: Any) -> bytes:
    return document if isinstance(document, bytes) else msgspec.json.encode(document)


class NatsBroker:
    """JetStream with its files in the server's folder."""

    def __init__(self) -> None:
        self.server = jetstream_server()
        self.url = f"nats://127.0.0.1:{self.server.port}"
        self.source = JetStream(self.url, stream="PAYMENTS", durable="shop")

    async def make_stream(self) -> None:
        client = await nats.connect(self.url)
        await client.jetstream().add_stream(name="PAYMENTS", subjects=["payments.>"])
        await client.close()

    async def send(self, *documents: Any, headers: dict[str, str] | None = None) -> None:
        client = await nats.connect(self.url)
        for each in documents:
            await client.jetstream().publish("payments.paid", encoded(each), headers=headers)
        await client.close()

    async def open_messages(self) -> int:
        client = await nats.connect(self.url)
        facts = await client.jetstream().consumer_info("PAYMENTS", "shop")
        await client.close()
        return (facts.num_ack_pending or 0) + (facts.num_pending or 0)


class RedisBroker:
    """A stream of Redis that outlives the server."""

    def __init__(self) -> None:
        self.server = redis_server(keeps=True)
        self.url = f"redis://127.0.0.1:{self.server.port}/0"
        self.source = RedisStream(self.url, stream="payments", group="shop")

    async def make_stream(self) -> None:
        client = redis.asyncio.Redis.from_url(self.url)
        await client.xgroup_create("payments", "shop", id="0", mkstream=True)
        await client.aclose()

    async def send(self, *documents: Any, headers: dict[str, str] | None = None) -> None:
        client = redis.asyncio.Redis.from_url(self.url)
        for each in documents:
            fields: dict[Any, Any] = {**(headers or {}), "data": encoded(each)}
            await client.xadd("payments", fields)
        await client.aclose()

    async def open_messages(self) -> int:
        client = redis.asyncio.Redis.from_url(self.url)
        (group,) = await client.xinfo_groups("payments")
        await client.aclose()
        return int(group["pending"]) + int(group["lag"] or 0)


KINDS: dict[str, type[NatsBroker | RedisBroker]] = {"nats": NatsBroker, "redis": RedisBroker}

STRAIGHT = [("postgres", "nats"), ("sqlite", "redis")]
CROSSED = [("postgres", "redis"), ("sqlite", "nats")]


def _pairs(always: list[tuple[str, str]], tortured: list[tuple[str, str]]) -> pytest.MarkDecorator:
    params = [
        *(pytest.param(*each, id="-".join(each)) for each in always),
        *(pytest.param(*each, id="-".join(each), marks=pytest.mark.lasting) for each in tortured),
    ]
    return pytest.mark.parametrize(("url", "broker_kind"), params, indirect=["url"])


PAIRS = _pairs(STRAIGHT, CROSSED)
"""Each store and each broker once, because what reads a broker knows of no store; the rest with `-m lasting`."""

CROSSED_PAIRS = _pairs(CROSSED, [*STRAIGHT, ("other_postgres", "redis")])
"""The other way round, for tests of processes that are killed: so each pair is in every run of the tests."""

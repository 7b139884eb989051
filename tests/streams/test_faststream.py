"""A relay through FastStream: each event at least once, in order per key, whatever the broker goes through."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import nats
import pytest
from faststream.nats import NatsBroker

from holdfast_streams import FastStreamTarget
from holdfast_streams.errors import BrokerAway
from holdfast_streams.relay import faststream_sink
from holdfast_streams.relay.faststream_sink import FastStreamSink
from holdfast_streams.relay.sink import Position
from tests.notify.servers import LeashedServer
from tests.streams.broker_servers import jetstream_server
from tests.streams.relay_scene import order_breaks
from tests.streams.scene import Scene
from tests.streams.sink_conformance import messages
from tests.support.until import until


@pytest.fixture
def server() -> Iterator[LeashedServer]:
    with jetstream_server() as server:
        yield server


def url_of(server: LeashedServer) -> str:
    return f"nats://127.0.0.1:{server.port}"


def target(server: LeashedServer) -> FastStreamTarget:
    """A publisher whose messages a stream keeps."""
    broker = NatsBroker(url_of(server), max_reconnect_attempts=-1, reconnect_time_wait=0)
    return FastStreamTarget(broker, broker.publisher("orders", stream="KEPT"), "orders")


async def make_stream(server: LeashedServer) -> None:
    client = await nats.connect(url_of(server))
    await client.jetstream().add_stream(name="KEPT", subjects=["orders"])
    await client.close()


async def kept(server: LeashedServer) -> list[Any]:
    """All messages, in the order of the stream."""
    client = await nats.connect(url_of(server))
    context = client.jetstream()
    count = (await context.stream_info("KEPT")).state.messages
    found = [await context.get_msg("KEPT", number) for number in range(1, count + 1)]
    await client.close()
    return found


async def test_events_are_published_in_order_and_go_on_where_the_database_says(
    scene: Scene, server: LeashedServer
) -> None:
    await make_stream(server)
    scene.streams.relay("order.*", to=target(server), name="feed")
    scene.streams.register()
    for n in range(20):
        scene.publish(n, key=f"k{n % 3}")
    async with scene.working():
        await until(lambda: all(each.lag == 0 for each in scene.lines("feed")))
    again = Scene(scene.url)
    again.streams.relay("order.*", to=target(server), name="feed")
    again.publish(20, key="k2")
    async with again.working():
        await until(lambda: all(each.lag == 0 for each in again.lines("feed")))
    found = await kept(server)
    numbers = [(each.headers["ce-subject"], json.loads(each.data)["n"]) for each in found]
    assert sorted(n for _, n in numbers) == list(range(21))
    assert order_breaks(numbers) == 0
    assert found[0].headers["ce-type"] == "order.paid"


async def test_while_the_broker_is_away_events_wait(scene: Scene, server: LeashedServer) -> None:
    await make_stream(server)
    scene.streams.relay("order.*", to=target(server), name="feed")
    scene.streams.register()
    async with scene.working():
        scene.publish(1, key="a")
        await until(lambda: all(each.lag == 0 for each in scene.lines("feed")))
        server.stop()
        scene.publish(2, key="a")
        await until(lambda: any(each.blocked == "away" for each in scene.lines("feed")))
        server.start()
        await until(lambda: all(each.lag == 0 for each in scene.lines("feed")))
    found = [json.loads(each.data)["n"] for each in await kept(server)]
    # One that was published while the answer was lost may be there twice; none is missing.
    assert set(found) == {1, 2}


async def test_a_second_writer_is_not_refused(server: LeashedServer) -> None:
    await make_stream(server)
    first, second = FastStreamSink(target(server)), FastStreamSink(target(server))
    batch = messages(1, 2)
    for sink in (first, second):
        await sink.open(creates=True)
        end = await sink.append(3, await sink.resume(3), batch)
        assert (end.position, end.id) == (Position(1, 2), batch[-1].id)
    assert [each.headers["Holdfast-Position"] for each in await kept(server)] == [
        *("1/3/1/0", "1/3/2/0"),
        *("1/3/1/0", "1/3/2/0"),
    ]
    await first.close()
    await second.close()


async def test_a_broker_that_cannot_be_reached_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faststream_sink, "ANSWER_S", 0.5)
    broker = NatsBroker("nats://127.0.0.1:1", allow_reconnect=False, connect_timeout=1)
    sink = FastStreamSink(FastStreamTarget(broker, broker.publisher("orders"), "orders"))
    with pytest.raises(BrokerAway, match="FastStream cannot publish"):
        await sink.open(creates=True)
    await sink.close()


class StuckBroker:
    """A broker that does not answer when it is stopped, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    async def publish(self, message: bytes, headers: dict[str, str]) -> None:
        """Take a message."""

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Disconnect."""
        if self._error is not None:
            raise self._error
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("error", [None, ConnectionError("the broker is away")])
async def test_a_broker_that_cannot_be_stopped_is_left(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    monkeypatch.setattr(faststream_sink, "ANSWER_S", 0.05)
    broker = StuckBroker(error)
    sink = FastStreamSink(FastStreamTarget(broker, broker, "orders"))
    await sink.open(creates=True)
    async with asyncio.timeout(10):
        await sink.close()

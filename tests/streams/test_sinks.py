"""Sinks against real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast_streams import JetStream, RedisStream
from holdfast_streams.errors import BrokerAway, EventRefused, StreamUnfit
from holdfast_streams.relay.jetstream_sink import JetStreamSink
from holdfast_streams.relay.redis_sink import RedisSink
from holdfast_streams.relay.sink import LineEnd
from tests.notify.servers import LeashedServer, nats_server
from tests.streams.broker_servers import jetstream_server, redis_server
from tests.streams.sink_conformance import MakeSink, SinkConformance, messages, places


class TestJetStream(SinkConformance):
    @pytest.fixture
    def server(self) -> Iterator[LeashedServer]:
        with jetstream_server() as server:
            yield server

    @pytest.fixture
    def make_sink(self, server: LeashedServer) -> MakeSink:
        stream = JetStream(f"nats://127.0.0.1:{server.port}", stream="ORDERS")
        return lambda: JetStreamSink(stream)

    async def test_a_stream_that_is_gone_is_not_made_again_by_itself(
        self, make_sink: MakeSink
    ) -> None:
        sink = make_sink()
        with pytest.raises(StreamUnfit, match="holdfast streams recreate"):
            await sink.open(creates=False)
        await sink.close()

    async def test_a_server_without_jetstream_is_named(self) -> None:
        with nats_server() as plain:
            sink = JetStreamSink(JetStream(f"nats://127.0.0.1:{plain.port}", stream="ORDERS"))
            with pytest.raises(BrokerAway, match=r"HF186.*without JetStream.*-js") as caught:
                await sink.open(creates=True)
            assert caught.value.state == "away"
            await sink.close()

    async def test_a_stream_without_atomic_batches_is_not_fed(self, server: LeashedServer) -> None:
        sink = JetStreamSink(JetStream(f"127.0.0.1:{server.port}", stream="ORDERS"))
        await sink.open(creates=True)
        await ask(sink, "STREAM.UPDATE", name="ORDERS", subjects=["ORDERS.>"], allow_atomic=False)
        sink._is_fit = False
        with pytest.raises(StreamUnfit, match="allow_atomic=True"):
            await sink.open(creates=True)
        await sink.close()

    async def test_a_message_that_is_too_large_is_refused_for_itself(
        self, server: LeashedServer
    ) -> None:
        sink = JetStreamSink(JetStream(f"127.0.0.1:{server.port}", stream="ORDERS"))
        await sink.open(creates=True)
        (large,) = messages(1, size=2_000_000)
        assert "1,048,576" in (sink.refusal(0, large) or "")
        await ask(
            sink,
            "STREAM.UPDATE",
            name="ORDERS",
            subjects=["ORDERS.>"],
            allow_atomic=True,
            max_msg_size=1_000,
        )
        # The limit was lowered after it was read, so the server is the one who says it.
        for batch in (messages(1, size=2_000), [*messages(1), *messages(2, size=2_000)]):
            with pytest.raises(EventRefused):
                await sink.append(0, LineEnd(), batch)
        assert await places(sink, 0) == []
        await sink.close()

    @pytest.mark.parametrize("headers", [None, {"Holdfast-Position": "the first one"}])
    async def test_messages_of_others_below_a_line_are_found(
        self, server: LeashedServer, headers: dict[str, str] | None
    ) -> None:
        sink = JetStreamSink(JetStream(f"127.0.0.1:{server.port}", stream="ORDERS"))
        await sink.open(creates=True)
        assert sink._client is not None
        await sink._client.jetstream().publish("ORDERS.3.order.paid", b"{}", headers=headers)
        with pytest.raises(StreamUnfit, match="no relay wrote"):
            await sink.resume(3)
        await sink.close()

    async def test_a_filter_that_does_not_cover_its_batch_is_never_sent(
        self, server: LeashedServer
    ) -> None:
        class Unfiltered(JetStreamSink):
            """A planted defect: the filter names another line."""

            def _wildcard(self, line: int) -> str:
                return super()._wildcard(line + 1)

        sink = Unfiltered(JetStream(f"127.0.0.1:{server.port}", stream="ORDERS"))
        await sink.open(creates=True)
        with pytest.raises(AssertionError):
            await sink.append(0, LineEnd(), messages(1))
        await sink.close()

    def test_subjects_follow_the_template(self) -> None:
        stream = JetStream("nats://x", stream="ORDERS")
        (message,) = messages(1)
        assert JetStreamSink(stream).subject_of(3, message) == "ORDERS.3.order.paid"
        keyed = JetStreamSink(stream, "shop.eu.{line}.{key}.{event}")
        assert keyed.subject_of(3, message) == "shop.eu.3.k.order.paid"
        assert keyed._wildcard(3) == "shop.eu.3.>"


async def ask(sink: JetStreamSink, what: str, **config: Any) -> None:
    answer = await sink._ask(f"{what}.{config['name']}", {"storage": "file", **config})
    assert "error" not in answer, answer


class TestRedis(SinkConformance):
    @pytest.fixture
    def server(self) -> Iterator[LeashedServer]:
        with redis_server() as server:
            yield server

    @pytest.fixture
    def make_sink(self, server: LeashedServer) -> MakeSink:
        stream = RedisStream(f"redis://127.0.0.1:{server.port}/0", stream="orders")
        return lambda: RedisSink(stream)

    async def test_a_trimmed_line_still_says_where_to_go_on(self, make_sink: MakeSink) -> None:
        sink = make_sink()
        assert isinstance(sink, RedisSink)
        tail = await sink.append(0, LineEnd(), messages(1, 2, 3))
        await sink._client.xtrim("orders:0", maxlen=0, approximate=False)
        assert (await sink.resume(0)).position == tail.position
        await sink.append(0, await sink.resume(0), messages(4))
        await sink.close()

    async def test_an_id_that_is_equal_or_smaller_is_refused_by_redis_itself(
        self, make_sink: MakeSink
    ) -> None:
        sink = make_sink()
        assert isinstance(sink, RedisSink)
        await sink.append(0, LineEnd(), messages(5))
        with pytest.raises(Exception, match="equal or smaller"):
            await sink._client.xadd("orders:0", {"data": b""}, id="5-0")
        await sink.close()

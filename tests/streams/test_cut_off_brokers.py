"""Brokers that a network cuts off: publishing goes on, and afterwards nothing is missing and nothing is there twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import pytest

from holdfast.core.retry import Retry
from holdfast_chaos.proxy import FaultyProxy
from holdfast_streams import JetStream, Message, RedisStream
from holdfast_streams.inbox import jetstream_source, redis_source
from holdfast_streams.inbox.inbox_store import INBOXES
from holdfast_streams.relay import jetstream_sink, redis_sink
from tests.notify.servers import LeashedServer
from tests.streams.broker_servers import jetstream_server, redis_server
from tests.streams.inbox_brokers import KINDS, PAIRS
from tests.streams.inbox_scene import InboxScene
from tests.streams.relay_scene import check_each_once, reading, stored
from tests.streams.scene import Scene
from tests.support.until import until

SHORT_S = 0.5
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <(function|socket):pytest.PytestUnraisableExceptionWarning"
)
"""The clients of both brokers leave connections to the collector that ended while they were being opened."""


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a broker that does not answer given up sooner."""
    for module in (jetstream_sink, redis_sink, jetstream_source, redis_source):
        monkeypatch.setattr(module, "ANSWER_S", SHORT_S)


@pytest.fixture
def server(broker_kind: str) -> Iterator[LeashedServer]:
    with jetstream_server() if broker_kind == "nats" else redis_server() as server:
        yield server


@pytest.fixture
def direct(broker_kind: str, server: LeashedServer) -> JetStream | RedisStream:
    """The stream as its server has it, past the network."""
    if broker_kind == "nats":
        return JetStream(f"nats://127.0.0.1:{server.port}", stream="ORDERS")
    return RedisStream(f"redis://127.0.0.1:{server.port}/0", stream="orders")


@pytest.fixture
def line(direct: JetStream | RedisStream) -> Iterator[FaultyProxy]:
    """The network between the relay and its broker."""
    with FaultyProxy(direct.url) as line:
        yield line


def lag_of(scene: Scene) -> int:
    """How many places of the log the relay has still to read."""
    return sum(each.lag for each in scene.lines("feed"))


def break_line(line: FaultyProxy, fault: str, direct: JetStream | RedisStream) -> None:
    """Cut the network; a mute one still brings what is sent to the broker."""
    if fault == "mute" and isinstance(direct, RedisStream):
        # Before it appends, it asks where the line ends.
        line.mute_from("QUEUED")
    else:
        getattr(line, fault)()


@pytest.mark.parametrize("fault", ["cut", "swallow", "mute"])
@PAIRS
async def test_while_a_relay_is_cut_off_publishing_goes_on_and_then_each_event_is_there_once(
    scene: Scene, direct: JetStream | RedisStream, line: FaultyProxy, fault: str
) -> None:
    scene.streams.relay("order.*", to=replace(direct, url=line.url), name="feed", since="earliest")
    scene.streams.register()
    async with reading(direct) as sink, scene.working():
        for n in range(20):
            scene.publish(n, key=f"k{n % 5}")
        await until(lambda: lag_of(scene) == 0)
        break_line(line, fault, direct)
        for n in range(20, 60):
            scene.publish(n, key=f"k{n % 5}")
        await until(lambda: any(each.blocked == "away" for each in scene.lines("feed")))
        assert lag_of(scene) > 0
        # With a mute network, some of it has arrived without the relay's knowing.
        assert (len(await stored(sink)) > 20) == (fault == "mute")
        line.pass_all()
        await until(lambda: lag_of(scene) == 0)
    await check_each_once(direct, 60)


@pytest.mark.parametrize("fault", ["cut", "swallow", "mute"])
@PAIRS
async def test_an_inbox_that_was_cut_off_takes_each_message_once(
    inbox: InboxScene, broker_kind: str, fault: str
) -> None:
    broker = KINDS[broker_kind]()
    with broker.server, FaultyProxy(broker.url) as line:
        await broker.make_stream()

        @inbox.streams.inbox(replace(broker.source, url=line.url))
        def paid(message: Message[Any], tx: Any) -> None:
            inbox.note(message, tx)

        await broker.send(*({"n": n} for n in range(20)))
        async with inbox.working():
            await until(lambda: bool(inbox.taken()))
            getattr(line, fault)()
            await broker.send(*({"n": n} for n in range(20, 40)))
            await until(lambda: bool(inbox.told("inbox_away")))
            assert len(inbox.taken()) <= 20
            line.pass_all()
            await inbox.until_taken(*range(40))

            async def is_drained() -> bool:
                return await broker.open_messages() == 0

            # Acknowledgements that were lost are sent again with what is delivered again.
            await until(is_drained)
        assert sorted(inbox.taken()) == list(range(40))


@pytest.mark.parametrize("order", [None, "key"])
@PAIRS
async def test_an_inbox_of_an_unknown_stream_names_it_and_takes_all_of_it_once_it_is_there(
    inbox: InboxScene,
    broker_kind: str,
    order: Literal["key"] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[int] = []
    delay_ms = Retry.delay_ms

    def note(retry: Retry, failures: int, random: float) -> int:
        tries.append(failures)
        return delay_ms(retry, failures, random)

    monkeypatch.setattr(Retry, "delay_ms", note)
    broker = KINDS[broker_kind]()
    with broker.server:
        source: Any = broker.source
        if order and isinstance(source, JetStream):
            source = replace(source, filter="payments.paid")

        @inbox.streams.inbox(source, order=order)
        def paid(message: Message[Any], tx: Any) -> None:
            inbox.note(message, tx)

        async with inbox.working():
            await until(lambda: bool(inbox.told("inbox_away")))
            (told, *_) = inbox.told("inbox_away")
            assert "[HF186]" in told["error"]
            assert f"has no stream {broker.source.stream} (create it" in told["error"]

            def errors() -> list[str | None]:
                return [each.error for each in inbox.app.database.read(INBOXES.all())]

            await until(lambda: errors() == [told["error"]])
            # Each further try waits longer, and none says that the broker is back.
            await until(lambda: len(tries) >= 3)
            assert tries[:3] == [1, 2, 3]
            assert (len(inbox.told("inbox_away")), inbox.told("inbox_back")) == (1, [])
            await broker.make_stream()
            await broker.send({"n": 1}, {"n": 2})
            await inbox.until_taken(1, 2)
            await until(lambda: len(inbox.told("inbox_back")) == 1)

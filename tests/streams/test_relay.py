"""Relays: each event is in the stream once, in order per key, whatever broker and database go through."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import nats
import pytest
from click.testing import CliRunner, Result
from nats.js.api import StreamConfig
from prometheus_client import CollectorRegistry

from holdfast.cli.main import cli
from holdfast.observe.prometheus import PrometheusObserver
from holdfast_files import add_large_values
from holdfast_files.errors import FilesUnreachable
from holdfast_streams import JetStream, RedisStream, StreamEvent
from holdfast_streams.reader_store import READERS
from holdfast_streams.relay.jetstream_sink import JetStreamSink
from holdfast_streams.relay.redis_sink import RedisSink
from holdfast_streams.relay.relay import RelayDelivery
from holdfast_streams.relay.relay_store import RELAYS
from holdfast_streams.relay.sink import Sink
from tests.notify.servers import LeashedServer
from tests.streams.broker_servers import jetstream_server, redis_server
from tests.streams.relay_scene import LINES, messages, order_breaks, published, reading, stored
from tests.streams.scene import Scene
from tests.support.until import until


@pytest.fixture
def server() -> Iterator[LeashedServer]:
    with jetstream_server() as server:
        yield server


@pytest.fixture
def to(server: LeashedServer) -> JetStream:
    return JetStream(f"nats://127.0.0.1:{server.port}", stream="ORDERS")


@pytest.fixture
async def sink(to: JetStream) -> AsyncIterator[Sink]:
    async with reading(to) as sink:
        yield sink


def declare(scene: Scene, to: JetStream | RedisStream, **options: Any) -> None:
    scene.streams.relay("order.*", to=to, name="feed", **options)
    scene.streams.register()


async def invoke(scene: Scene, *words: str) -> Result:
    """Run a command, which has an event loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, cli, [*words, "--url", scene.url])


async def until_stored(scene: Scene, sink: Sink) -> None:
    """Wait until the stream has all of the log, and the database knows."""

    async def is_all() -> bool:
        found = [each.id for each in await stored(sink)]
        return set(found) == published(scene)

    await until(is_all)
    await until(lambda: all(each.lag == 0 for each in scene.lines("feed")))


def check_once(scene: Scene, found: list[Any]) -> None:
    ids = [each.id for each in found]
    assert len(ids) == len(set(ids))
    assert set(ids) == published(scene)
    positions = [(each.position.epoch, each.position.place) for each in found]
    assert len(set(positions)) <= len(positions)


async def test_events_become_cloud_events_in_the_order_of_their_keys(
    scene: Scene, to: JetStream, sink: Sink
) -> None:
    declare(scene, to)
    for n in range(40):
        scene.publish(n, key=f"k{n % 4}")
    scene.publish(99, event="mail.sent")
    async with scene.working():
        await until(lambda: all(each.lag == 0 for each in scene.lines("feed")))
        await until_stored(scene, sink)
    found = await messages(to)
    assert len(found) == 40
    assert order_breaks([(m.headers["ce-subject"], json.loads(m.data)["n"]) for m in found]) == 0
    first = next(m for m in found if json.loads(m.data)["n"] == 0)
    epoch, line, place, late = first.headers["Holdfast-Position"].split("/")
    assert first.subject == f"ORDERS.{line}.order.paid"
    assert (epoch, late) == ("1", "0")
    assert int(line) == line_of("k0")
    assert 0 < int(place) <= scene.lines("feed")[int(line)].position
    assert first.headers["ce-specversion"] == "1.0"
    assert first.headers["ce-type"] == "order.paid"
    assert first.headers["ce-source"] == "holdfast:feed"
    assert first.headers["ce-time"].endswith("Z")
    assert first.headers["content-type"] == "application/json"


async def test_raw_messages_encoded_ones_and_tombstones(
    scene: Scene, server: LeashedServer
) -> None:
    raw = JetStream(f"nats://127.0.0.1:{server.port}", stream="RAW")
    packed = JetStream(f"nats://127.0.0.1:{server.port}", stream="PACKED")

    def encode(event: StreamEvent[Any]) -> bytes:
        return f"{event.key}={event.data['n']}".encode()

    scene.streams.relay("order.*", to=raw, raw=True)
    scene.streams.relay("order.*", to=packed, encode=encode, content_type="text/plain")
    scene.streams.register()
    scene.publish(1, key="zu häuser")
    with scene.app.transaction() as tx:
        scene.app.publish(tx, "order.gone", None, key="zu häuser")
    async with scene.working():
        await until(lambda: all(each.lag == 0 for each in scene.lines("RAW")))
        await until(lambda: all(each.lag == 0 for each in scene.lines("PACKED")))
    first, gone = await messages(raw)
    assert json.loads(first.data) == {"n": 1}
    assert first.headers["Holdfast-Key"] == "zu%20h%C3%A4user"
    assert "ce-id" not in first.headers
    assert gone.data == b""
    first, gone = await messages(packed)
    assert first.data == "zu häuser=1".encode()
    assert first.headers["content-type"] == "text/plain"
    assert gone.data == b""
    assert "content-type" not in gone.headers


async def test_a_broker_that_is_away_costs_lag_and_no_publish(
    scene: Scene, to: JetStream, server: LeashedServer
) -> None:
    declare(scene, to)
    async with scene.working():
        scene.publish(1, key="a")
        await until(lambda: all(each.lag == 0 for each in scene.lines("feed")))
        server.stop()
        scene.publish(2, 3, key="a")
        await until(lambda: scene.lines("feed")[line_of("a")].blocked == "away")
        await until(lambda: scene.told("stream_blocked"))
        assert scene.lines("feed")[line_of("a")].lag == 2
        server.start()
        async with reading(to) as sink:
            await until_stored(scene, sink)
            check_once(scene, await stored(sink))
        await until(lambda: not any(each.blocked for each in scene.lines("feed")))


async def test_what_a_process_appended_before_it_died_is_taken_over(
    scene: Scene, to: JetStream, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(scene, to)
    # An error that nobody expects ends all lines of a worker, which begins again after a pause that doubles.
    move, dies = RelayDelivery._move, [True] * 3

    def die(self: RelayDelivery, *args: Any) -> Any:
        if dies and args[3] is not None:
            dies.pop()
            raise RuntimeError("the process died here")
        return (yield from move(self, *args))

    monkeypatch.setattr(RelayDelivery, "_move", die)
    for n in range(30):
        scene.publish(n, key=f"k{n % 7}")
    async with scene.working():
        await until(lambda: not dies)
        await until_stored(scene, sink)
    check_once(scene, await stored(sink))


async def test_what_a_stream_lost_is_sent_again_in_order(
    scene: Scene, to: JetStream, sink: Sink
) -> None:
    assert isinstance(sink, JetStreamSink)
    declare(scene, to)
    async with scene.working():
        for n in range(60):
            scene.publish(n, key=f"k{n % 7}")
        await until_stored(scene, sink)
    lost = 0
    for sequence in range(31, 61):
        # The stream forgets its newest messages, as after a power cut.
        answer = await sink._ask("STREAM.MSG.DELETE.ORDERS", {"seq": sequence})
        lost += bool(answer.get("success"))
    assert lost == 30
    async with scene.working():
        await until_stored(scene, sink)
    found = await messages(to)
    assert len(found) == 60
    assert order_breaks([(m.headers["ce-subject"], json.loads(m.data)["n"]) for m in found]) == 0
    assert sum(each["events"] for each in scene.told("stream_refilled")) == 30


async def test_a_stream_that_is_gone_is_refilled_once_it_exists_again(
    scene: Scene, to: JetStream, sink: Sink
) -> None:
    assert isinstance(sink, JetStreamSink)
    declare(scene, to)
    async with scene.working():
        scene.publish(*range(20), key="a")
        await until_stored(scene, sink)
    await sink._ask("STREAM.DELETE.ORDERS")
    async with scene.working():
        await until(lambda: all(each.blocked == "unfit" for each in scene.lines("feed")))
        assert "holdfast streams recreate" in (scene.lines("feed")[0].error or "")
        words = ["streams", "recreate", "feed", "--reason", "disks"]
        assert (await invoke(scene, *words)).exit_code == 0
        await until(lambda: not any(each.blocked for each in scene.lines("feed")))
        await until_stored(scene, sink)
    check_once(scene, await stored(sink))
    (entry, *_) = json.loads((await invoke(scene, "audit", "list", "-o", "json")).stdout)
    assert (entry["action"], entry["reason"]) == ("stream.recreate", "disks")
    refused = await invoke(scene, "streams", "recreate", "feed")
    assert (refused.exit_code, "HF198" in refused.output) == (4, True)


async def test_a_stream_that_takes_no_atomic_batches_is_fed_once_it_is_changed_as_the_message_says(
    scene: Scene, to: JetStream
) -> None:
    client = await nats.connect(to.url)
    wanted = StreamConfig(name="ORDERS", subjects=["ORDERS.>"])
    await client.jetstream().add_stream(wanted)
    declare(scene, to)
    scene.publish(*range(5), key="a")
    async with scene.working():
        await until(lambda: any(each.blocked == "unfit" for each in scene.lines("feed")))
        (error, *_) = [each.error or "" for each in scene.lines("feed") if each.blocked]
        assert "StreamConfig(…, allow_atomic=True)" in error
        await client.jetstream().update_stream(wanted.evolve(allow_atomic=True))
        await until(lambda: all(each.lag == 0 for each in scene.lines("feed")))
    assert len(await messages(to)) == 5
    await client.close()


async def test_what_a_relay_does_is_measured(scene: Scene, to: JetStream, sink: Sink) -> None:
    assert isinstance(sink, JetStreamSink)
    registry = CollectorRegistry()
    scene.app.observe(PrometheusObserver(registry))
    declare(scene, to)

    def measured(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"reader": "feed", **labels})

    async with scene.working():
        scene.publish(*range(20), key="a")
        await until(lambda: measured("holdfast_stream_events_total") == 20)
        line = str(line_of("a"))
        await until(lambda: measured("holdfast_stream_lag_events", line=line) == 0)
        assert (measured("holdfast_stream_run_duration_seconds_count") or 0) > 0
        with scene.app.transaction() as tx:
            scene.app.publish(tx, "order.paid", {"text": "x" * 1_048_400}, key="b")
        await until(lambda: measured("holdfast_stream_parked_total") == 1)
    await sink._ask("STREAM.DELETE.ORDERS")
    async with scene.working():
        await until(lambda: measured("holdfast_stream_blocked_total", state="unfit") == LINES)
        await sink._create()
        await until(lambda: measured("holdfast_stream_refilled_total") == 20)


async def test_what_a_stream_has_removed_by_its_limits_is_not_sent_again(
    scene: Scene, to: JetStream, sink: Sink
) -> None:
    assert isinstance(sink, JetStreamSink)
    declare(scene, to)
    async with scene.working():
        scene.publish(*range(20), key="a")
        await until_stored(scene, sink)
    await sink._ask("STREAM.PURGE.ORDERS")
    async with scene.working():
        scene.publish(20, key="a")
        await until(lambda: all(each.lag == 0 for each in scene.lines("feed")))
    (last,) = await messages(to)
    assert json.loads(last.data) == {"n": 20}
    assert scene.told("stream_refilled") == []


async def test_events_of_a_restored_database_wait_until_its_stream_is_rebased(
    scene: Scene, to: JetStream, sink: Sink
) -> None:
    declare(scene, to)
    async with scene.working():
        scene.publish(1, 2, 3, key="a")
        await until_stored(scene, sink)
    set_back(scene, places=2)
    scene.publish(12, 13, 14, key="a")
    async with scene.working():
        await until(lambda: any(each.blocked == "ahead" for each in scene.lines("feed")))
        (line,) = [each for each in scene.lines("feed") if each.blocked]
        known = await stored(sink)
        assert f"order.paid {known[1].id} at place {known[1].position.place}" in (line.error or "")
        assert known[0].id not in (line.error or "")
        assert len(await stored(sink)) == 3
        assert await scene.app.database.run_async(RELAYS.rebase("feed")) == [line.line]
        await until(lambda: all(each.lag == 0 for each in scene.lines("feed")))
    found = [json.loads(each.data)["n"] for each in await messages(to)]
    assert found == [1, 2, 3, 12, 13, 14]
    assert [each.position.epoch for each in await stored(sink)] == [1, 1, 1, 2, 2, 2]
    # In the new epoch all is as before.
    async with scene.working():
        scene.publish(15, key="a")
        await until(lambda: all(each.lag == 0 for each in scene.lines("feed")))
    assert len(await stored(sink)) == 7


def set_back(scene: Scene, places: int) -> None:
    """Set the database back, as a restore does: the last places are as if they had never been."""
    line = line_of("a")
    place = scene.lines("feed")[line].position - places
    prefix = "holdfast." if scene.is_postgres else "holdfast_"
    with scene.app.transaction() as tx:
        tx.execute(f"delete from {prefix}log where line = {line} and place > {place}")  # noqa: S608
        if scene.is_postgres:
            tx.execute(f"select setval('holdfast.log_line_{line}', {place})")
        else:
            tx.execute(f"update holdfast_log_line set place = {place} where line = {line}")  # noqa: S608
        sent = {"epoch": 1, "place": place, "late": 0, "sequence": 1, "base": place - 1}
        tx.execute(
            f"update {prefix}log_position set position = {place}, sent = '{json.dumps(sent)}'"  # noqa: S608
            f" where line = {line}"
        )


async def test_an_event_that_is_too_large_holds_its_key_and_not_its_line(
    scene: Scene, to: JetStream, sink: Sink
) -> None:
    assert isinstance(sink, JetStreamSink)
    await sink._ask(
        "STREAM.UPDATE.ORDERS",
        {
            "name": "ORDERS",
            "subjects": ["ORDERS.>"],
            "storage": "file",
            "allow_atomic": True,
            "max_msg_size": 2_000,
        },
    )
    declare(scene, to)
    scene.publish(1, key="a")
    with scene.app.transaction() as tx:
        scene.app.publish(tx, "order.paid", {"n": 2, "note": "x" * 3_000}, key="a")
    scene.publish(3, key="a")
    scene.publish(*range(10, 20), key="b")
    async with scene.working():
        await until(lambda: all(each.lag == 0 for each in scene.lines("feed")))
        states = [(each.state, each.error) for each in scene.parked_events("feed")]
        assert [state for state, _ in states] == ["failed", "held"]
        assert "2,000" in (states[0][1] or "")
        assert len(await stored(sink)) == 11
        await scene.app.database.run_async(READERS.retry_parked("feed", None))
        await until(lambda: len(scene.told("stream_parked")) == 2)
        await sink._ask(
            "STREAM.UPDATE.ORDERS",
            {
                "name": "ORDERS",
                "subjects": ["ORDERS.>"],
                "storage": "file",
                "allow_atomic": True,
                "max_msg_size": 10_000,
            },
        )
    async with scene.working():
        await scene.app.database.run_async(READERS.retry_parked("feed", None))
        await until(lambda: scene.parked_events("feed") == [])
        await until_stored(scene, sink)
        scene.publish(4, key="a")
        await until_stored(scene, sink)
    found = [json.loads(each.data)["n"] for each in await messages(to)]
    assert [n for n in found if n < 10] == [1, 2, 3, 4]
    async with scene.working():
        # Late ones are where they are after a restart too.
        await until(lambda: all(each.worker for each in scene.lines("feed")))
        scene.publish(5, key="a")
        await until_stored(scene, sink)
    check_once(scene, await stored(sink))


@pytest.mark.parametrize(
    ("options", "error", "again"),
    [
        ({}, "publish it with key=, or declare the relay with order=None", None),
        (
            {"order": None, "subject": "ORDERS.{line}.{key}.{event}"},
            "the relay's subject has one: publish it with key=",
            "ORDERS.{line}.{event}",
        ),
    ],
    ids=["order", "subject"],
)
async def test_an_event_without_the_key_that_its_relay_needs_is_parked_and_no_other(
    scene: Scene, to: JetStream, options: dict[str, Any], error: str, again: str | None
) -> None:
    declare(scene, to, **options)
    scene.publish(1, 2)
    scene.publish(3, 4, key="a")
    async with scene.working():
        await until(lambda: all(each.lag == 0 for each in scene.lines("feed")))
    parked = scene.parked_events("feed")
    assert [each.state for each in parked] == ["failed", "failed"]
    assert all(error in (each.error or "") for each in parked)
    assert [json.loads(each.data)["n"] for each in await messages(to)] == [3, 4]
    # As the message says: nothing is lost.
    mended = Scene(scene.url)
    declare(mended, to, order=None, subject=again)
    async with mended.working():
        await mended.app.database.run_async(READERS.retry_parked("feed", None))
        await until(lambda: mended.parked_events("feed") == [])
    found = sorted(json.loads(each.data)["n"] for each in await messages(to))
    assert found == [1, 2, 3, 4]


async def test_large_data_that_is_out_of_reach_is_waited_for(
    scene: Scene, to: JetStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = add_large_values(scene.app, str(tmp_path / "files"), over="4KB")

    def refuse(*_: Any, **__: Any) -> bytes:
        raise FilesUnreachable("the bucket does not answer")

    declare(scene, to)
    with scene.app.transaction() as tx:
        scene.app.publish(tx, "order.paid", {"n": 1, "text": "x" * 5_000}, key="a")
    with monkeypatch.context() as patches:
        patches.setattr(values.files, "get", refuse)
        async with scene.working():
            await until(lambda: any("HF213" in str(each.error) for each in scene.lines("feed")))
            patches.undo()
            await until(lambda: all(each.lag == 0 for each in scene.lines("feed")))
    assert scene.parked_events("feed") == []
    assert [json.loads(each.data)["n"] for each in await messages(to)] == [1]


async def test_late_ones_that_a_stream_lost_are_sent_again_too(
    scene: Scene, to: JetStream, sink: Sink
) -> None:
    assert isinstance(sink, JetStreamSink)
    broken = True

    def encode(event: StreamEvent[Any]) -> bytes:
        if broken and event.data["n"] == 2:
            raise ValueError("not yet")
        return json.dumps(event.data).encode()

    declare(scene, to, encode=encode)
    scene.publish(1, 2, 3, key="a")
    scene.publish(10, 11, key="b")
    async with scene.working():
        await until(lambda: len(scene.parked_events("feed")) == 2)
        broken = False
        await scene.app.database.run_async(READERS.retry_parked("feed", None))
        await until(lambda: scene.parked_events("feed") == [])
        await until_stored(scene, sink)
    found = [(each.metadata.sequence.stream, json.loads(each.data)) for each in await messages(to)]
    for sequence, data in found:
        if data["n"] in (2, 3):
            await sink._ask("STREAM.MSG.DELETE.ORDERS", {"seq": sequence})
    async with scene.working():
        await until_stored(scene, sink)
        scene.publish(4, key="a")
        await until_stored(scene, sink)
    numbers = [json.loads(each.data)["n"] for each in await messages(to)]
    assert [n for n in numbers if n < 10] == [1, 2, 3, 4]
    check_once(scene, await stored(sink))


async def test_a_rewound_relay_sends_again_in_a_new_epoch(
    scene: Scene, to: JetStream, sink: Sink
) -> None:
    declare(scene, to)
    async with scene.working():
        scene.publish(1, 2, key="a")
        await until_stored(scene, sink)
        await scene.app.database.run_async(READERS.rewind("feed", 0))

        async def is_twice() -> bool:
            return len(await stored(sink)) == 4

        await until(is_twice)
    first, second, *again = [each.position for each in await stored(sink)]
    assert again == [first._replace(epoch=2), second._replace(epoch=2)]


async def test_redis_has_each_event_once_and_is_refilled_when_it_forgot(scene: Scene) -> None:
    with redis_server() as server:
        to = RedisStream(f"redis://127.0.0.1:{server.port}/0", stream="orders")
        declare(scene, to)
        for n in range(40):
            scene.publish(n, key=f"k{n % 4}")
        async with reading(to) as sink:
            async with scene.working():
                await until_stored(scene, sink)
                check_once(scene, await stored(sink))
            assert isinstance(sink, RedisSink)
            await sink._client.flushall()
            async with scene.working():
                await until_stored(scene, sink)
            check_once(scene, await stored(sink))
            ((_, fields), *_) = await sink._client.xrange(f"orders:{line_of('k0')}", count=1)
            assert fields[b"ce-type"] == b"order.paid"
            assert json.loads(fields[b"data"])["n"] in range(4)


def line_of(key: str) -> int:
    return crc32(key.encode()) % LINES

"""Events and messages that end the process which takes them: they are found, parked, and end no more when retried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.core.retry import Retry
from holdfast.storage.id_generator import new_id
from holdfast_streams import JetStream, Message, StreamEvent
from holdfast_streams.delivery import DIED
from holdfast_streams.inbox.inbox_store import INBOXES
from holdfast_streams.inbox.ordered_loop import OrderedLoop
from holdfast_streams.reader_store import LINES, READERS, SUSPECTED_AFTER, LineToken
from holdfast_streams.relay.relay import MAX_DEATHS
from tests.streams.broker_servers import jetstream_server
from tests.streams.inbox_scene import InboxScene
from tests.streams.relay_scene import reading, stored
from tests.streams.scene import Scene
from tests.streams.test_ordered_inboxes import NatsLines, keyed
from tests.support.until import until
from tests.support.worker_process import worker_process

ONCE = Retry(base="20ms", cap="20ms", max_attempts=1)
MAX = SUSPECTED_AFTER + 4 * 1


def register(scene: Scene) -> None:
    scene.app.database.run(READERS.register("revenue", "consumer", ["order.*"], None))


def die(scene: Scene, times: int, reader: str = "revenue") -> None:
    """Claim all lines as processes do that end before they give them back."""
    for _ in range(times):
        scene.app.database.run(LINES.claim(reader, "gone", new_id(), 16, 0))


def failures(scene: Scene) -> list[int]:
    return [each.failures for each in scene.lines("revenue") if each.failures]


def consume(scene: Scene, sizes: list[int], **options: Any) -> None:
    """A consumer that notes how many events it gets at a time."""

    @scene.streams.consumer("order.*", name="revenue", retry=ONCE, **options)
    def take(events: list[StreamEvent[Any]], tx: Any) -> None:
        sizes.append(len(events))
        for each in events:
            scene.insert(tx, each)


async def test_a_line_that_processes_ended_with_is_read_one_by_one_for_as_long_as_a_block(
    scene: Scene,
) -> None:
    register(scene)
    die(scene, 2)
    scene.publish(*range(6), key="a")
    # Nothing was to be read when the first two ended, and who claims first finds nobody before.
    die(scene, 4)
    assert failures(scene) == [SUSPECTED_AFTER]
    sizes: list[int] = []
    consume(scene, sizes, batch=4)
    async with scene.working():
        await scene.until_taken(*range(6))
    assert sizes == [1, 1, 1, 1, 2]
    assert failures(scene) == []


async def test_an_event_that_was_begun_alone_too_often_is_parked_untried(scene: Scene) -> None:
    register(scene)
    scene.publish(-1, 2, 3, key="a")
    (line,) = [each for each in scene.lines("revenue") if each.lag]
    run, token = scene.app.database.run, new_id()
    run(LINES.claim("revenue", "gone", token, 16, 0))
    assert run(LINES.fail(LineToken("revenue", line.line, token), MAX, DIED))
    sizes: list[int] = []
    consume(scene, sizes)
    async with scene.working():
        await scene.until_taken(2, 3)
    (parked,) = scene.parked_events("revenue")
    assert (parked.state, parked.error) == ("failed", f"processes ended {MAX} times with it")
    assert len(scene.told("stream_parked")) == 1


async def test_what_raises_has_all_its_tries_although_processes_have_ended(scene: Scene) -> None:
    register(scene)
    scene.publish(1, 2, key="a")
    die(scene, 4)
    calls: list[int] = []

    @scene.streams.consumer(
        "order.*", name="revenue", retry=Retry(base="1ms", cap="1ms", max_attempts=3)
    )
    def take(event: StreamEvent[Any], tx: Any) -> None:
        calls.append(event.data["n"])
        if calls.count(1) <= 3:
            raise ValueError("not yet")
        scene.insert(tx, event)

    async with scene.working():
        await scene.until_taken(1, 2)
    assert scene.parked_events("revenue") == []


APPLICATION = """
import os

from holdfast import Holdfast
from holdfast.core.retry import Retry
from holdfast_streams import StreamEvent, add_streams

app = Holdfast()
streams = add_streams(app)
sign = "%s" if os.environ["HOLDFAST_URL"].startswith("postgres") else "?"
WRITE = f"insert into taken (n, key, place, at_process) values ({sign}, {sign}, {sign}, {sign})"

@streams.consumer("order.*", name="revenue", order="key", retry=Retry(base="20ms", max_attempts=1))
def take(events: list[StreamEvent], tx) -> None:
    for event in events:
        if event.data["n"] < 0:
            os._exit(9)
        tx.execute(WRITE, (event.data["n"], event.key, event.place, os.getpid()))
"""


@pytest.mark.lasting
@pytest.mark.timeout(180)
async def test_an_event_that_kills_its_process_is_parked_and_kills_one_when_it_is_retried(
    scene: Scene, tmp_path: Path
) -> None:
    register(scene)
    scene.publish(1, -1, 2, key="a")
    scene.publish(10, key="b")
    (tmp_path / "shop.py").write_text(APPLICATION)
    variables = {"HOLDFAST_URL": scene.url, "HOLDFAST_STREAMS_TAKEOVER_MS": "1000"}
    parked, kills = scene.parked_events, 0
    while not parked("revenue"):
        with worker_process(tmp_path, f"worker{kills}", "shop:app", **variables) as worker:
            await until(lambda worker=worker: worker.poll() is not None or parked("revenue"))  # type: ignore[misc]
            assert worker.poll() in (None, 9)
            kills += worker.poll() is not None
    assert kills <= MAX + SUSPECTED_AFTER
    with worker_process(tmp_path, "after", "shop:app", **variables) as worker:
        await scene.until_taken(1, 10)
        await until(lambda: len(parked("revenue")) == 2)
        scene.app.database.run(READERS.retry_parked("revenue", None))
        await until(lambda: worker.poll() is not None)
    with worker_process(tmp_path, "last", "shop:app", **variables):
        scene.publish(11, key="b")
        await scene.until_taken(1, 10, 11)
        failed, held = parked("revenue")
        assert (failed.state, failed.error, held.state) == ("failed", DIED, "held")
        scene.app.database.run(READERS.skip_parked("revenue", [failed.id]))
        await scene.until_taken(1, 2, 10, 11)
    scene.app.close()


async def test_a_retried_event_counts_as_failed_until_it_was_taken(scene: Scene) -> None:
    seen: list[Any] = []
    fixed: list[bool] = []

    @scene.streams.consumer("order.*", name="revenue", retry=ONCE, order="key")
    def take(event: StreamEvent[Any], tx: Any) -> None:
        if event.data["n"] < 0:
            if not fixed:
                raise ValueError("not yet")
            seen.extend((each.state, each.attempts) for each in scene.parked_events("revenue"))
        scene.insert(tx, event)

    scene.streams.register()
    scene.publish(-1, 2, 3, key="a")
    async with scene.working():
        await until(lambda: len(scene.parked_events("revenue")) == 3)
        (failed, held, _) = scene.parked_events("revenue")
        assert (failed.attempts, held.state) == (3, "held")
        fixed.append(True)
        retry = scene.app.database.run_async
        # One that is held does not pass the one it waits for.
        assert await retry(READERS.retry_parked("revenue", [held.id])) == []
        assert len(await retry(READERS.retry_parked("revenue", [failed.id]))) == 3
        await scene.until_taken(-1, 2, 3)
        await until(lambda: scene.parked_events("revenue") == [])
    assert seen == [("failed", 4), ("held", 0), ("held", 0)]
    assert scene.taken() == [-1, 2, 3]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_retried_message_counts_as_failed_until_it_was_taken(
    inbox: InboxScene, is_async: bool
) -> None:
    seen: list[Any] = []

    def look(message: Message[Any]) -> None:
        seen.extend((each.state, each.error) for each in inbox.parked())
        if len(seen) == 1:
            raise ValueError("not yet")

    if is_async:

        @inbox.streams.inbox.http("shop", verify=bool, id=bool)
        async def take_async(message: Message[Any], tx: Any) -> None:
            look(message)
            await tx.execute(inbox.write, (message.data["n"], message.id, None))

    else:

        @inbox.streams.inbox.http("shop", verify=bool, id=bool)
        def take(message: Message[Any], tx: Any) -> None:
            look(message)
            inbox.note(message, tx)

    from holdfast_streams.inbox.message import RawMessage

    raw = RawMessage("shop", "evt_1", b'{"n": 1}', {})
    inbox.streams.register()
    run = inbox.app.database.run
    run(INBOXES.park(new_id(), raw, '"eyJuIjogMX0="', "ValueError: no", 1, None))
    run(INBOXES.retry_parked("shop", None))
    async with inbox.working():
        await until(lambda: [each.attempts for each in inbox.parked()] == [2])
        await until(lambda: [each.error for each in inbox.parked()] == ["ValueError: not yet"])
        await inbox.app.database.run_async(INBOXES.retry_parked("shop", None))
        await inbox.until_taken(1)
        await until(lambda: inbox.parked() == [])
    assert seen == [("failed", DIED)] * 2


async def test_an_inbox_in_order_goes_on_one_by_one_for_as_long_as_a_batch(
    inbox: InboxScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, sizes = NatsLines(), list[int]()
    together = OrderedLoop._take_together

    async def take_together(self: OrderedLoop, line: Any, found: Any) -> None:
        sizes.append(len(found))
        await together(self, line, found)

    monkeypatch.setattr(OrderedLoop, "_take_together", take_together)
    try:
        await broker.make_stream()

        @inbox.streams.inbox(broker.source, order="key", name="paid", batch=3)
        def paid(message: Message[Any], tx: Any) -> None:
            tx.execute(inbox.write, (message.data["n"], message.data["key"], None))

        ((line, _),) = keyed("a", 0)
        lines, run = [f"payments.{line}.>"], inbox.app.database.run
        run(INBOXES.begin_lines("paid", lines))
        for _ in range(SUSPECTED_AFTER + 1):
            run(INBOXES.claim_lines("paid", lines, "gone", new_id(), 1, 0, None))
        await broker.send_lines(*keyed("a", *range(5)))
        async with inbox.working():
            await inbox.until_taken(*range(5))
    finally:
        broker.server.close()
    assert sizes == [1, 1, 1, 2]


async def test_an_event_whose_encoding_ends_processes_is_parked_by_its_relay(scene: Scene) -> None:
    with jetstream_server() as server:
        to = JetStream(f"nats://127.0.0.1:{server.port}", stream="ORDERS")
        scene.streams.relay("order.*", to=to, name="revenue", encode=lambda event: b"{}")
        scene.streams.register()
        scene.publish(1, 2, key="a")
        scene.publish(3, key="b")
        (line,) = [each for each in scene.lines("revenue") if each.lag > 1 or each.lag == 1][:1]
        run, token = scene.app.database.run, new_id()
        run(LINES.claim("revenue", "gone", token, 16, 0))
        held = LineToken("revenue", line.line, token)
        assert run(LINES.fail(held, SUSPECTED_AFTER + MAX_DEATHS, DIED))
        async with scene.working():
            await until(lambda: all(each.lag == 0 for each in scene.lines("revenue")))
        parked = scene.parked_events("revenue")
        assert parked[0].error == f"processes ended {SUSPECTED_AFTER + MAX_DEATHS} times with it"
        async with reading(to) as sink:
            assert len(await stored(sink)) + len(parked) == 3

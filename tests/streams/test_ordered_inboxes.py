"""Inboxes that keep the order of keys: one process a line, whatever dies, and a parked message holds its key."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
import redis.asyncio

from holdfast.core.errors import InvalidOption
from holdfast.core.retry import Retry
from holdfast.settings import load_settings
from holdfast_streams import JetStream, Message, RedisStream
from holdfast_streams.inbox.inbox_store import INBOXES
from holdfast_streams.inbox.ordered_loop import OrderedLoop
from tests.streams.inbox_brokers import PAIRS, NatsBroker, RedisBroker, encoded
from tests.streams.inbox_scene import InboxScene
from tests.support.tables import one
from tests.support.until import until
from tests.support.warm_python import WarmProcess
from tests.support.worker_process import worker_process

SOON = Retry(base="20ms", cap="20ms", max_attempts=2)
LINES = 16


class NatsLines(NatsBroker):
    """A stream of JetStream with lines, as a relay has them."""

    def __init__(self) -> None:
        super().__init__()
        self.source = JetStream(self.url, stream="PAYMENTS", filter="payments.{line}.>")

    async def send_lines(self, *messages: tuple[int, dict[str, Any]]) -> None:
        """Send documents, each in a line, under its key."""
        client = await nats.connect(self.url)
        for line, document in messages:
            headers = {"ce-subject": document["key"]} | document.pop("headers", {})
            await client.jetstream().publish(
                f"payments.{line}.paid", encoded(document), headers=headers
            )
        await client.close()


class RedisLines(RedisBroker):
    """Streams of Redis, one for each line."""

    def __init__(self) -> None:
        super().__init__()
        self.source = RedisStream(self.url, stream="payments")

    async def make_stream(self) -> None:
        """It is made by what is sent."""

    async def send_lines(self, *messages: tuple[int, dict[str, Any]]) -> None:
        """Send documents, each in a line, under its key."""
        client = redis.asyncio.Redis.from_url(self.url)
        for line, document in messages:
            headers = {"ce-subject": document["key"]} | document.pop("headers", {})
            fields: dict[Any, Any] = {**headers, "data": encoded(document)}
            await client.xadd(f"payments:{line}", fields)
        await client.aclose()


AnyBroker = NatsLines | RedisLines


KINDS: dict[str, type[AnyBroker]] = {"nats": NatsLines, "redis": RedisLines}


@pytest.fixture
def broker(broker_kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[AnyBroker]:
    """A server."""
    monkeypatch.setenv("HOLDFAST_STREAMS_TAKEOVER_MS", "1500")
    found = KINDS[broker_kind]()
    yield found
    found.server.close()


def declare(scene: InboxScene, broker: AnyBroker, **options: Any) -> None:
    """An inbox that writes down what it gets, and fails at what is below zero."""

    @scene.streams.inbox(broker.source, retry=SOON, order="key", **options)
    def paid(message: Message[Any], tx: Any) -> None:
        tx.execute(scene.write, (message.data["n"], message.data["key"], None))
        if message.data["n"] < 0:
            raise ValueError(f"{message.data['n']} cannot be paid")


def keyed(key: str, *numbers: int) -> list[tuple[int, dict[str, Any]]]:
    """Messages of a key, in its line."""
    line = sum(key.encode()) % LINES
    return [(line, {"n": n, "key": key}) for n in numbers]


@PAIRS
async def test_messages_are_taken_in_order_and_nothing_is_noted_but_the_place(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    await broker.make_stream()
    declare(inbox, broker, batch=7)
    await broker.send_lines(*keyed("a", *range(20)), *keyed("b", *range(100, 120)))
    async with inbox.working():
        await inbox.until_taken(*range(20), *range(100, 120))
        await broker.send_lines(*keyed("a", 20))
        await inbox.until_taken(*range(21), *range(100, 120))
    taken = inbox.taken()
    assert [n for n in taken if n < 100] == list(range(21))
    assert [n for n in taken if n >= 100] == list(range(100, 120))
    assert inbox.remembered() == 0


@PAIRS
async def test_a_second_process_goes_on_where_the_first_one_stopped(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    await broker.make_stream()
    declare(inbox, broker)
    await broker.send_lines(*keyed("a", 1, 2))
    async with inbox.working():
        await inbox.until_taken(1, 2)
    again = InboxScene(inbox.url)
    declare(again, broker)
    await broker.send_lines(*keyed("a", 3))
    async with again.working():
        await again.until_taken(1, 2, 3)


@PAIRS
async def test_what_waits_behind_a_parked_message_of_its_key_is_taken_after_it(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    await broker.make_stream()
    declare(inbox, broker)
    await broker.send_lines(*keyed("a", 1, -1, 2), *keyed("q", 10), *keyed("a", 3))
    async with inbox.working():
        # "q" is in the line of "a", which goes on.
        await inbox.until_taken(1, 10)
        await until(lambda: [each.state for each in inbox.parked()] == ["failed", "due", "due"])
        (failed, *_) = inbox.parked()
        assert failed.attempts == 2
        await inbox.app.database.run_async(INBOXES.retry_parked("paid", [failed.id]))
        await until(lambda: [each.attempts for each in inbox.parked()] == [3, 1, 1])
        assert sorted(inbox.taken()) == [1, 10]
        await inbox.app.database.run_async(INBOXES.skip_parked("paid", [failed.id]))
        await inbox.until_taken(1, 10, 2, 3)
        await broker.send_lines(*keyed("a", 4))
        await inbox.until_taken(1, 10, 2, 3, 4)
    assert [n for n in inbox.taken() if n < 10] == [1, 2, 3, 4]


@PAIRS
async def test_what_cannot_be_read_is_parked_and_holds_its_key(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    await broker.make_stream()

    @inbox.streams.inbox(broker.source, order="key", name="paid")
    def take(message: Message[dict[str, int | str]], tx: Any) -> None:
        tx.execute(inbox.write, (message.data["n"], message.data["key"], None))

    bad: list[tuple[int, dict[str, Any]]] = [(1, {"key": "a", "n": [1]})]
    await broker.send_lines(*bad, (1, {"key": "a", "n": 2}), (1, {"key": "b", "n": 3}))
    async with inbox.working():
        await inbox.until_taken(3)
        assert [each.state for each in inbox.parked()] == ["failed", "due"]


@PAIRS
async def test_a_position_that_no_relay_wrote_is_not_relied_on(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    await broker.make_stream()
    declare(inbox, broker)
    strange = {"Holdfast-Position": "the first one"}
    await broker.send_lines((3, {"n": 1, "key": "a", "headers": strange}), *keyed("b", 2))
    async with inbox.working():
        await inbox.until_taken(1, 2)
    assert inbox.parked() == []


@PAIRS
async def test_a_key_that_no_text_of_the_database_may_be_is_held_as_well(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    await broker.make_stream()
    declare(inbox, broker)
    await broker.send_lines(*((3, {"n": n, "key": "a\0b"}) for n in (-1, 2)))
    await broker.send_lines((3, {"n": 3, "key": "c"}))
    async with inbox.working():
        await inbox.until_taken(3)
        assert [each.state for each in inbox.parked()] == ["failed", "due"]


@PAIRS
async def test_a_tick_takes_what_there_is(inbox: InboxScene, broker: AnyBroker) -> None:
    await broker.make_stream()
    declare(inbox, broker)
    await broker.send_lines(*keyed("a", 1, 2), *keyed("b", 3))
    tick = inbox.app.assembly(load_settings({})).tick()
    await tick.run()
    await tick.close()
    assert sorted(inbox.taken()) == [1, 2, 3]
    await inbox.app.aclose()


@PAIRS
async def test_an_id_of_the_application_s_own_is_remembered_as_well(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    await broker.make_stream()
    declare(inbox, broker, id=lambda raw: raw.headers["payment"])
    twice = [(3, {"n": n, "key": "a", "headers": {"payment": f"p{n}"}}) for n in (1, 1, 2)]
    await broker.send_lines(*twice)
    async with inbox.working():
        await inbox.until_taken(1, 2)
    assert inbox.remembered() == 2


@PAIRS
async def test_while_the_broker_is_away_the_inbox_says_so_and_goes_on_when_it_is_back(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    await broker.make_stream()
    declare(inbox, broker)
    await broker.send_lines(*keyed("a", 1))
    async with inbox.working():
        await inbox.until_taken(1)
        broker.server.stop()
        await until(lambda: bool(inbox.told("inbox_away")))

        def states() -> list[str]:
            return [each.state for each in inbox.app.database.read(INBOXES.all())]

        await until(lambda: states() == ["away"])
        broker.server.start()
        await broker.send_lines(*keyed("a", 2))
        await inbox.until_taken(1, 2)
        await until(lambda: states() == ["running"])


async def test_a_stream_that_was_lost_and_refilled_is_read_by_the_places_of_its_log(
    inbox: InboxScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = NatsLines()
    try:
        await broker.make_stream()
        declare(inbox, broker)

        def relayed(*places: int) -> list[tuple[int, dict[str, Any]]]:
            return [
                (5, {"n": n, "key": "a", "headers": {"Holdfast-Position": f"1/5/{n}/0"}})
                for n in places
            ]

        await broker.send_lines(*relayed(1, 2, 3))
        async with inbox.working():
            await inbox.until_taken(1, 2, 3)
        client = await nats.connect(broker.url)
        await client.jetstream().delete_stream("PAYMENTS")
        await client.close()
        await broker.make_stream()
        # Others come first now, so the same messages have other numbers.
        await broker.send_lines(*keyed("b", 50, 51), *relayed(2, 3, 4))
        again = InboxScene(inbox.url)
        declare(again, broker)
        async with again.working():
            await again.until_taken(1, 2, 3, 4, 50, 51)
    finally:
        broker.server.close()


async def test_a_stream_that_removes_what_was_read_is_named(inbox: InboxScene) -> None:
    broker = NatsLines()
    try:
        client = await nats.connect(broker.url)
        await client.jetstream().add_stream(
            name="PAYMENTS", subjects=["payments.>"], retention="workqueue"
        )
        await client.close()
        declare(inbox, broker)
        async with inbox.working():
            await until(lambda: bool(inbox.told("inbox_away")))
        assert "removes messages that were read" in inbox.told("inbox_away")[0]["error"]
    finally:
        broker.server.close()


def test_lines_are_those_of_the_relay_or_the_subjects_that_are_named() -> None:
    assert JetStream("n", "ORDERS").lines[::15] == ["ORDERS.0.>", "ORDERS.15.>"]
    assert JetStream("n", "S", filter=["a.0.>", "a.4.>"]).lines == ["a.0.>", "a.4.>"]
    assert len(JetStream("n", "S", filter="a.{line}.>").filters) == LINES
    assert RedisStream("r", "orders").lines[:2] == ["orders", "orders:0"]


def test_there_is_one_order(inbox: InboxScene) -> None:
    with pytest.raises(InvalidOption):
        inbox.streams.inbox(JetStream("n", "S"), order="time")  # type: ignore[arg-type]
    inbox.app.close()


# ---- Processes that die

APPLICATION = """
import os, signal
from pathlib import Path

from holdfast import Holdfast
from holdfast.core.retry import Retry
from holdfast_streams import JetStream, Message, RedisStream, add_streams

app = Holdfast()
streams = add_streams(app)
sign = "%s" if os.environ["HOLDFAST_URL"].startswith("postgres") else "?"
WRITE = f"insert into taken (n, key, at_process) values ({sign}, {sign}, {sign})"
broker = os.environ["BROKER"]
if broker.startswith("nats"):
    source = JetStream(broker, stream="PAYMENTS", filter="payments.{line}.>")
else:
    source = RedisStream(broker, stream="payments")

@streams.inbox(source, name="paid", order="key", batch=5, retry=Retry(base="20ms", max_attempts=1))
def paid(message: Message, tx) -> None:
    n = message.data["n"]
    if n < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    tx.execute(WRITE, (n, message.data["key"], os.getpid()))
"""


@contextmanager
def working_process(folder: Path, url: str, broker: AnyBroker) -> Iterator[WarmProcess]:
    """A worker that does not outlive the block."""
    (folder / "shop.py").write_text(APPLICATION)
    variables = {"HOLDFAST_URL": url, "BROKER": broker.url, "HOLDFAST_STREAMS_TAKEOVER_MS": "1000"}
    words = ("shop:app", "--log-level", "error")
    with worker_process(folder, "log", *words, **variables) as process:
        yield process


def by_key(scene: InboxScene) -> dict[str, list[int]]:
    """What was taken of each key, in the order of writing."""
    found: dict[str, list[int]] = defaultdict(list)
    order = "turn" if scene.is_postgres else "rowid"
    with scene.app.transaction() as tx:
        for key, n in tx.execute(f"select key, n from taken order by {order}").fetchall():  # noqa: S608
            found[key].append(n)
    return found


@PAIRS
async def test_three_processes_of_which_some_are_killed_and_stopped_keep_the_order_of_keys(
    inbox: InboxScene, broker: AnyBroker, tmp_path: Path
) -> None:
    await broker.make_stream()
    if inbox.is_postgres:
        with inbox.app.transaction() as tx:
            tx.execute("alter table taken add column turn bigserial")
    keys, count = [f"k{n}" for n in range(24)], 20
    sent = [each for n in range(count) for key in keys for each in keyed(key, n)]
    half = len(sent) // 2
    await broker.send_lines(*sent[:half])
    total = len(sent)
    with ExitStack() as stack:
        stack.enter_context(working_process(tmp_path, inbox.url, broker))
        await until(lambda: len(inbox.taken()) > 5)
        with working_process(tmp_path, inbox.url, broker) as second:
            await broker.send_lines(*sent[half:])
            before = len(inbox.taken())
            await until(lambda: len(inbox.taken()) > min(before, total - 1))
            if inbox.is_postgres:
                # A file would be locked by what is stopped in the middle of a write.
                second.send_signal(signal.SIGSTOP)
            stack.enter_context(working_process(tmp_path, inbox.url, broker))
            await until(lambda: len(inbox.taken()) == total)
            second.send_signal(signal.SIGCONT)
    assert by_key(inbox) == {key: list(range(count)) for key in keys}
    await inbox.app.aclose()


@PAIRS
async def test_a_message_that_kills_its_process_is_parked_after_some_tries(
    inbox: InboxScene, broker: AnyBroker, tmp_path: Path
) -> None:
    await broker.make_stream()
    await broker.send_lines(*keyed("a", 1, -1, 2), *keyed("q", 10))
    for _ in range(20):
        with working_process(tmp_path, inbox.url, broker) as worker:
            await until(lambda worker=worker: worker.poll() is not None or inbox.parked())  # type: ignore[misc]
            if inbox.parked():
                await inbox.until_taken(1, 10)
                break
    failed, behind = inbox.parked()
    assert "processes ended 4 times" in (failed.error or "")
    assert (failed.state, behind.state) == ("failed", "due")
    await inbox.app.aclose()


async def test_what_a_process_wrote_that_lost_its_line_is_rolled_back_and_taken_once(
    postgres_url: str,
) -> None:
    scene, broker = InboxScene(postgres_url), NatsLines()
    began, go = threading.Event(), threading.Event()

    @scene.streams.inbox(broker.source, order="key", name="paid")
    def take(message: Message[Any], tx: Any) -> None:
        tx.execute(scene.write, (message.data["n"], message.data["key"], None))
        began.set()
        go.wait(30)

    try:
        await broker.make_stream()
        await broker.send_lines((7, {"n": 1, "key": "a"}))
        run, thief = scene.app.database.run, "0190163d-8694-739b-aea5-966c26f8ad91"
        async with scene.working():
            await asyncio.to_thread(began.wait, 30)
            later = int(time.time() * 1e6) + 3_600_000_000
            line = ["payments.7.>"]
            assert run(INBOXES.claim_lines("paid", line, "other", thief, 1, 1, later))
            go.set()
            await until(
                lambda: scene.told("inbox_line_lost") == [{"inbox": "paid", "line": line[0]}]
            )
            assert scene.taken() == []
            run(INBOXES.release_lines("paid", {line[0]: thief}))
            await scene.until_taken(1)
    finally:
        broker.server.close()


async def test_a_place_is_moved_only_under_the_token_and_from_where_it_was(
    inbox: InboxScene,
) -> None:
    run = inbox.app.database.run
    run(INBOXES.begin_lines("paid", ["a"]))
    token = "0190163d-8694-739b-aea5-966c26f8ad91"
    (held,) = run(INBOXES.claim_lines("paid", ["a"], "w", token, 1, 60_000, None))
    assert run(INBOXES.move_line("paid", "a", held.token, None, "1"))
    assert not run(INBOXES.move_line("paid", "a", held.token, None, "2"))
    assert not run(INBOXES.move_line("paid", "a", token[:-1] + "2", "1", "2"))
    assert run(INBOXES.line_place("paid", "a", token)) == ["1"]
    run(INBOXES.release_lines("paid", {"a": token}))
    assert run(INBOXES.line_place("paid", "a", token)) == []
    assert run(one("inbox_parked_keys", inbox="paid")) == []
    inbox.app.close()


@PAIRS
async def test_a_line_that_was_not_renewed_in_time_is_not_taken_further(
    inbox: InboxScene, broker: AnyBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, sort, taking = OrderedLoop._take_together, OrderedLoop._sort, list[Any]()

    async def note_line(self: OrderedLoop, line: Any, found: Any) -> None:
        taking.append(line)
        await take(self, line, found)

    async def sort_late(self: OrderedLoop, found: Any) -> Any:
        # The last thing that is awaited before the line's time is looked at: no renewal comes in between.
        sorted = await sort(self, found)
        if len(taking) == 1:
            taking[0].until = self._clock.monotonic()
        return sorted

    monkeypatch.setenv("HOLDFAST_STREAMS_TAKEOVER_MS", "1000")
    monkeypatch.setattr(OrderedLoop, "_take_together", note_line)
    monkeypatch.setattr(OrderedLoop, "_sort", sort_late)
    await broker.make_stream()
    declare(inbox, broker)
    await broker.send_lines(*keyed("a", 1))
    async with inbox.working():
        await inbox.until_taken(1)
    assert taking[0].token != taking[-1].token, "it is taken by who claims the line anew"

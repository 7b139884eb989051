"""Inboxes of brokers: each message once in the database, whatever is delivered again, and none blocks another."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest
import pytest_asyncio
import redis.asyncio
import redis.exceptions

from holdfast import Seal
from holdfast.core.retry import Retry
from holdfast.settings import load_settings
from holdfast_streams import JetStream, Message, RedisStream
from holdfast_streams.inbox import redis_source
from holdfast_streams.inbox.broker_source import message_id
from holdfast_streams.inbox.inbox_store import INBOXES
from holdfast_streams.inbox.jetstream_source import JetStreamSource
from holdfast_streams.inbox.redis_source import RedisLines, RedisSource
from holdfast_streams.relay.redis_sink import RedisSink
from tests.streams.inbox_brokers import KINDS, PAIRS, NatsBroker, RedisBroker
from tests.streams.inbox_scene import InboxScene
from tests.support.until import until

SOON = Retry(base="50ms", cap="50ms", max_attempts=2)

AnyBroker = NatsBroker | RedisBroker


@pytest_asyncio.fixture
async def broker(broker_kind: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AnyBroker]:
    """A server with a stream."""
    monkeypatch.setenv("HOLDFAST_STREAMS_TAKEOVER_MS", "1500")
    found = KINDS[broker_kind]()
    await found.make_stream()
    yield found
    found.server.close()


def declare(scene: InboxScene, broker: AnyBroker, **options: Any) -> None:
    """An inbox that writes down what it gets, and fails at what is below zero."""

    @scene.streams.inbox(broker.source, retry=SOON, **options)
    def paid(message: Message[Any], tx: Any) -> None:
        scene.note(message, tx)
        if message.data["n"] < 0:
            raise ValueError(f"{message.data['n']} cannot be paid")


async def until_drained(broker: AnyBroker) -> None:
    """Wait until every message is acknowledged."""

    async def is_drained() -> bool:
        return await broker.open_messages() == 0

    await until(is_drained)


@PAIRS
async def test_messages_are_taken_and_acknowledged_after_their_commit(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    declare(inbox, broker, batch=7)
    await broker.send(*({"n": n} for n in range(20)))
    async with inbox.working():
        await inbox.until_taken(*range(20))
        await broker.send({"n": 20})
        await inbox.until_taken(*range(21))
        await until_drained(broker)
    assert sum(each["messages"] for each in inbox.told("inbox_received")) == 21


@PAIRS
async def test_an_async_handler_gets_lists_and_starts_jobs(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    @inbox.app.job("ship")
    async def ship(job: Any) -> None: ...

    @inbox.streams.inbox(broker.source)
    async def paid(messages: list[Message[Any]], tx: Any) -> None:
        for each in messages:
            await inbox.app.start(tx, "ship", each.data)
            await tx.execute(inbox.write, (each.data["n"], each.id, None))

    await broker.send({"n": 1}, {"n": 2})
    async with inbox.working():
        await inbox.until_taken(1, 2)
        await until_drained(broker)
        jobs = await inbox.app.aio.jobs.list()
        assert sorted(each.input["n"] for each in jobs.items) == [1, 2]


@PAIRS
async def test_what_a_producer_sends_twice_is_one_message(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    declare(inbox, broker, id=lambda raw: raw.headers["payment"])
    for n in (1, 1, 2):
        await broker.send({"n": n}, headers={"payment": f"p{n}"})
    async with inbox.working():
        await inbox.until_taken(1, 2)
        await until_drained(broker)
    assert sorted(inbox.taken()) == [1, 2]
    assert sum(each["messages"] for each in inbox.told("inbox_duplicate")) == 1


@PAIRS
async def test_a_message_of_a_relay_is_recognised_by_its_place_in_the_log_it_comes_from(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    declare(inbox, broker)
    # As a stream that was lost and filled again has them: other places in the stream, the same in the log.
    for place in (7, 8, 7, 8, 9):
        headers = {"Holdfast-Position": f"1/3/{place}/0", "ce-id": f"event {place}"}
        await broker.send({"n": place}, headers=headers)
    async with inbox.working():
        await inbox.until_taken(7, 8, 9)
        await until_drained(broker)
    assert sorted(inbox.taken()) == [7, 8, 9]


@PAIRS
async def test_what_cannot_be_read_is_parked_and_the_others_go_on(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    declare(inbox, broker)
    await broker.send({"n": 1}, b"not JSON", {"n": 2})
    async with inbox.working():
        await inbox.until_taken(1, 2)
        await until_drained(broker)
    (parked,) = inbox.parked("paid")
    assert parked.error is not None
    assert "HF193" not in parked.error
    assert "cannot be read" in parked.error
    assert len(inbox.told("inbox_parked")) == 1


@PAIRS
async def test_a_message_that_keeps_failing_is_parked_and_can_be_retried_and_skipped(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    declare(inbox, broker)
    await broker.send({"n": 1}, {"n": -1}, {"n": 2}, {"n": -2})
    async with inbox.working():
        await inbox.until_taken(1, 2)
        await until(lambda: len(inbox.parked("paid")) == 2)
        await until_drained(broker)
        assert {each.attempts for each in inbox.parked()} == {2}
        assert len(inbox.told("inbox_failed")) == 2
        await inbox.app.database.run_async(INBOXES.retry_parked("paid", [inbox.parked()[0].id]))
        await until(lambda: [each.attempts for each in inbox.parked()] == [3, 2])
        await inbox.app.database.run_async(INBOXES.skip_parked("paid", [inbox.parked()[0].id]))
        assert len(inbox.parked()) == 1
    assert sorted(inbox.taken()) == [1, 2]


@PAIRS
async def test_a_message_whose_handler_ends_the_transaction_is_parked_and_the_others_go_on(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    @inbox.streams.inbox(broker.source, retry=SOON)
    def paid(message: Message[Any], tx: Any) -> None:
        inbox.note(message, tx)
        if message.data["n"] < 0:
            tx.execute("rollback")

    await broker.send({"n": 1}, {"n": -2}, {"n": 3})
    async with inbox.working():
        await inbox.until_taken(1, 3)
        await until_drained(broker)
    (parked,) = inbox.parked("paid")
    assert parked.error is not None
    assert "NoTransaction" in parked.error


@PAIRS
async def test_a_parked_message_is_taken_by_a_handler_that_was_fixed(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    declare(inbox, broker)
    await broker.send({"n": -1}, headers={"who": "ana"})
    async with inbox.working():
        await until(lambda: len(inbox.parked("paid")) == 1)
    fixed = InboxScene(inbox.url)
    seen: list[Message[Any]] = []

    @fixed.streams.inbox(broker.source, name="paid")
    def take(message: Message[Any], tx: Any) -> None:
        seen.append(message)
        fixed.note(message, tx)

    fixed.app.database.run(INBOXES.retry_parked("paid", None))
    async with fixed.working():
        await fixed.until_taken(-1)
    assert (seen[0].data, seen[0].headers["who"]) == ({"n": -1}, "ana")
    assert fixed.parked() == []


@PAIRS
async def test_the_body_of_a_parked_message_is_sealed_and_opened_by_who_has_the_key(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    key = Seal.new_key()
    sealing = InboxScene(inbox.url, seal=Seal({"2026-11": key}))
    declare(sealing, broker)
    await broker.send({"n": -1, "card": "4111"})
    async with sealing.working():
        await until(lambda: len(sealing.parked("paid")) == 1)
    table = "holdfast.inbox_parked" if inbox.is_postgres else "holdfast_inbox_parked"
    with inbox.app.transaction() as tx:
        ((body,),) = tx.execute(f"select body from {table}").fetchall()  # noqa: S608
    assert "$sealed" in body
    assert base64.b64encode(b'"card":"4111"')[4:-4].decode() not in body
    assert "4111" not in body

    def retry_with(**options: Any) -> tuple[InboxScene, list[Any]]:
        scene, seen = InboxScene(inbox.url, **options), list[Any]()

        @scene.streams.inbox(broker.source, name="paid")
        def take(message: Message[Any], tx: Any) -> None:
            seen.append(message.data)

        scene.app.database.run(INBOXES.retry_parked("paid", None))
        return scene, seen

    without, seen = retry_with()
    async with without.working():
        await until(lambda: [each.state for each in inbox.parked()] == ["failed"])
        await until(lambda: bool(without.told("inbox_parked")))
    assert seen == []
    with_key, seen = retry_with(seal=Seal({"2026-11": key}))
    async with with_key.working():
        await until(lambda: seen == [{"n": -1, "card": "4111"}])
        await until(lambda: inbox.parked() == [])
    await inbox.app.aclose()


@PAIRS
async def test_while_the_broker_is_away_the_inbox_says_so_and_goes_on_when_it_is_back(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    declare(inbox, broker)
    await broker.send({"n": 1})
    async with inbox.working():
        await inbox.until_taken(1)
        broker.server.stop()
        await until(lambda: bool(inbox.told("inbox_away")))

        def states() -> list[str]:
            return [each.state for each in inbox.app.database.read(INBOXES.all())]

        await until(lambda: states() == ["away"])
        broker.server.start()
        await broker.send({"n": 2})
        await inbox.until_taken(1, 2)
        await until(lambda: bool(inbox.told("inbox_back")))
        await until(lambda: states() == ["running"])
    assert states() == ["idle"]


@PAIRS
async def test_what_a_process_that_is_gone_had_fetched_is_taken_by_another(
    inbox: InboxScene, broker: AnyBroker
) -> None:
    declare(inbox, broker)
    await broker.send({"n": 1}, {"n": 2})
    dead: Any
    if isinstance(broker, NatsBroker):
        dead = JetStreamSource("paid", broker.source, 1.5)
    else:
        assert isinstance(broker.source, RedisStream)
        dead = RedisSource("paid", broker.source, "dead", 1.5)
    await dead.open()
    assert len(await dead.fetch(10, 1)) == 2
    async with inbox.working():
        await inbox.until_taken(1, 2)
        await until_drained(broker)
    await dead.close()


async def test_streams_that_a_relay_keeps_per_line_in_redis_are_all_read(inbox: InboxScene) -> None:
    broker = RedisBroker()
    client = redis.asyncio.Redis.from_url(broker.url)
    for line in (0, 3, 15):
        await client.xadd(f"orders:{line}", {"data": f'{{"n": {line}}}'})
    inbox.streams.inbox(RedisStream(broker.url, "orders"), name="paid")(
        lambda message, tx: inbox.note(message, tx)
    )
    async with inbox.working():
        await inbox.until_taken(0, 3, 15)
        await client.xadd("orders:7", {"data": '{"n": 7}'})
        await client.xadd("orders:0", {"n": "1", "data": '{"n": 1}'})
        await inbox.until_taken(0, 1, 3, 7, 15)
    await client.aclose()
    broker.server.close()


async def test_a_stream_that_was_made_anew_is_not_taken_for_the_old_one(inbox: InboxScene) -> None:
    broker = NatsBroker()
    await broker.make_stream()
    declare(inbox, broker)
    await broker.send({"n": 1})
    async with inbox.working():
        await inbox.until_taken(1)
        client = await nats.connect(broker.url)
        await client.jetstream().delete_stream("PAYMENTS")
        await client.close()
        await broker.make_stream()
        await broker.send({"n": 2})
        await inbox.until_taken(1, 2)
    broker.server.close()


@PAIRS
async def test_a_tick_takes_what_there_is(inbox: InboxScene, broker: AnyBroker) -> None:
    declare(inbox, broker)
    await broker.send({"n": 1}, {"n": 2})
    tick = inbox.app.assembly(load_settings({})).tick()
    await tick.run()
    await tick.close()
    assert sorted(inbox.taken()) == [1, 2]
    await inbox.app.aclose()


def test_what_a_message_is_recognised_by() -> None:
    position = {"holdfast-position": "1/2/3/0", "ce-id": "e", "nats-msg-id": "m"}
    assert message_id(position, "S 1") == "1/2/3/0 e"
    assert message_id({"nats-msg-id": "m", "ce-id": "e"}, "S 1") == "m"
    assert message_id({"ce-id": "e", "ce-source": "/shop"}, "S 1") == "/shop e"
    assert message_id({}, "S 1") == "S 1"


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("nats://a:1,b:2", ["nats://a:1", "nats://b:2"]),
        ("nats://u:p@a:1,nats://b:2", ["nats://u:p@a:1", "nats://b:2"]),
        ("tls://a,b", ["tls://a", "tls://b"]),
        ("a,b", ["nats://a", "nats://b"]),
    ],
)
def test_one_address_may_name_several_servers(url: str, servers: list[str]) -> None:
    assert JetStream(url, "S").servers == servers


def test_no_answer_of_redis_is_waited_for_forever_whatever_its_client_does_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redis_source, "ANSWER_S", 0.5)
    source = RedisSource("paid", RedisStream("redis://127.0.0.1:1/0", "paid"), "worker-1", 15)
    lines = RedisLines("paid", RedisStream("redis://127.0.0.1:1/0", "paid"))
    for client in (source._client, lines._client):
        assert client.connection_pool.connection_kwargs["socket_timeout"] == 0.5


async def test_a_client_of_redis_that_cannot_be_closed_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = RedisStream("redis://127.0.0.1:1/0", "paid")
    source, lines, sink = (
        RedisSource("paid", stream, "w", 15),
        RedisLines("paid", stream),
        RedisSink(stream),
    )

    async def refuse() -> None:
        raise redis.exceptions.TimeoutError("Timed out closing connection after 5")

    for each in (source, lines, sink):
        monkeypatch.setattr(each._client, "aclose", refuse)
        await each.close()


async def test_an_inbox_reads_only_the_subjects_of_its_filter(inbox: InboxScene) -> None:
    broker = NatsBroker()
    try:
        await broker.make_stream()
        client = await nats.connect(broker.url)
        for line in (0, 1, 2, 3):
            await client.jetstream().publish(f"payments.{line}.paid", b'{"n":%d}' % line)
        await client.close()
        seen: list[int] = []

        @inbox.streams.inbox(
            JetStream(broker.url, "PAYMENTS", "some", ["payments.0.>", "payments.2.>"]), name="some"
        )
        def take(message: Message[Any], tx: Any) -> None:
            seen.append(message.data["n"])

        async with inbox.working():
            await until(lambda: len(seen) >= 2)
        assert sorted(seen) == [0, 2]
    finally:
        broker.server.close()

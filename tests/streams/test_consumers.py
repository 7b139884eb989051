"""Consumers: what they get, in which order, and that rows and position commit together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from holdfast import Holdfast
from holdfast.core.errors import HandlerInvalid, InvalidName, InvalidOption
from holdfast.core.retry import Retry
from holdfast.notify.base import LOG_HINT
from holdfast.settings import load_settings
from holdfast_files import add_large_values
from holdfast_files.errors import FilesUnreachable
from holdfast_streams import StreamEvent
from holdfast_streams.consumer import ConsumerDelivery
from holdfast_streams.errors import DuplicateReader
from holdfast_streams.line_shares import LineBeat
from holdfast_streams.reader_loop import ReaderLoop
from holdfast_streams.reader_store import READERS
from tests.streams.scene import Scene
from tests.support.until import until


class Paid(msgspec.Struct):
    """The data of an event."""

    n: int


AT_ONCE = Retry(base="0s", cap="0s", max_attempts=2)


def project(scene: Scene, **options: Any) -> None:
    """Declare a consumer that writes down what it gets, and fails at what is below zero."""

    @scene.streams.consumer("order.*", name="revenue", retry=AT_ONCE, **options)
    def take(events: list[StreamEvent[Any]], tx: Any) -> None:
        for each in events:
            scene.insert(tx, each)
        for each in events:
            if each.data["n"] < 0:
                raise ValueError(f"{each.data['n']} cannot be paid")

    scene.streams.register()


async def test_a_consumer_gets_what_is_published_after_it_was_registered(scene: Scene) -> None:
    @scene.streams.consumer("order.*", name="revenue", batch=10)
    def take(events: list[StreamEvent[Any]], tx: Any) -> None:
        for each in events:
            scene.insert(tx, each)

    scene.publish(0)
    scene.streams.register()
    scene.publish(1, 2, 3)
    scene.publish(4, event="mail.sent")
    async with scene.working():
        await scene.until_taken(1, 2, 3)
        scene.publish(5, 6)
        await scene.until_taken(1, 2, 3, 5, 6)
        await until(lambda: all(each.lag == 0 for each in scene.lines("revenue")))


async def test_an_async_consumer_of_single_events_gets_typed_data_in_the_order_of_its_key(
    scene: Scene,
) -> None:
    kinds = set()

    @scene.streams.consumer("order.paid", since="earliest")
    async def feed(event: StreamEvent[Paid], tx: Any) -> None:
        kinds.add(type(event.data))
        await tx.execute(scene.write, (event.data.n, event.key, event.place))

    scene.publish(*range(20), key="a")
    async with scene.working():
        await scene.until_taken(*range(20))
    assert scene.taken() == list(range(20))
    assert kinds == {Paid}


async def test_an_event_is_logged_once_and_makes_no_chain_unless_a_handler_subscribes(
    scene: Scene,
) -> None:
    for name in ("first", "second"):

        @scene.streams.consumer("order.*", name=name)
        def take(event: StreamEvent[Any], tx: Any) -> None: ...

    scene.streams.register()
    with scene.app.transaction() as tx:
        assert scene.app.publish(tx, "order.paid", {"n": 1}) == []
    with scene.app.transaction() as tx:
        (waiting,) = scene.app.publish(tx, "mail.sent", {"n": 2})
    assert waiting.type == "mail.sent"
    assert sum(each.lag for each in scene.lines("first")) == 1
    assert sum(each.lag for each in scene.lines("second")) == 1


async def test_a_publisher_that_knows_no_consumer_logs_for_those_that_are_registered(
    scene: Scene,
) -> None:
    project(scene)
    other = Holdfast(scene.url)
    with other.transaction() as tx:
        assert other.publish(tx, "order.paid", {"n": 1}) == []
    other.close()
    async with scene.working():
        await scene.until_taken(1)


@pytest.mark.parametrize("since", ["earliest", timedelta(hours=1), "2020-01-01"])
async def test_a_new_consumer_can_begin_in_the_past(scene: Scene, since: Any) -> None:
    @scene.streams.consumer("order.*", name="early")
    def nothing(events: list[StreamEvent[Any]], tx: Any) -> None: ...

    scene.streams.register()
    scene.publish(1, 2)
    project(scene, since=since)
    async with scene.working():
        await scene.until_taken(1, 2)


POSTGRES_EARLIER = "update holdfast.log set at = at - %s * interval '1 s' where data like %s"
SQLITE_EARLIER = "update holdfast_log set at = at - ? * 1000000 where data like ?"


async def test_what_was_published_since_is_read_though_an_earlier_time_has_a_later_place(
    scene: Scene,
) -> None:
    @scene.streams.consumer("order.*", name="early")
    def nothing(events: list[StreamEvent[Any]], tx: Any) -> None: ...

    scene.streams.register()
    scene.publish(1, 2, 3, key="a")
    statement = POSTGRES_EARLIER if scene.is_postgres else SQLITE_EARLIER
    with scene.app.transaction() as tx:
        for n, minutes in ((1, 180), (2, 30), (3, 120)):
            tx.execute(statement, (minutes * 60, f'%"n":{n}%'))
    project(scene, since=timedelta(hours=1))
    async with scene.working():
        await scene.until_taken(2, 3)


async def test_rows_and_position_are_rolled_back_together_and_only_what_fails_alone_is_parked(
    scene: Scene,
) -> None:
    project(scene, batch=50)
    scene.publish(*range(7), -1, *range(7, 20), key="a")
    async with scene.working():
        await scene.until_taken(*range(20))
    assert scene.taken() == list(range(20))
    (parked,) = scene.parked_events("revenue")
    assert parked.state == "failed"
    assert parked.error is not None
    assert "-1 cannot be paid" in parked.error
    assert len(scene.told("stream_parked")) == 1
    assert scene.told("stream_retried")


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_event_whose_handler_ends_the_transaction_is_parked_alone(
    scene: Scene, is_async: bool
) -> None:
    declare = scene.streams.consumer("order.*", name="revenue", retry=AT_ONCE, batch=50)
    if is_async:

        @declare
        async def take(events: list[StreamEvent[Any]], tx: Any) -> None:
            for each in events:
                await tx.execute(scene.write, (each.data["n"], each.key, each.place))
            if any(each.data["n"] < 0 for each in events):
                await tx.execute("rollback")

    else:

        @declare
        def take_sync(events: list[StreamEvent[Any]], tx: Any) -> None:
            for each in events:
                scene.insert(tx, each)
            if any(each.data["n"] < 0 for each in events):
                tx.execute("rollback")

    await check_parked_alone(scene)


DEFERRED = (
    "create temporary table once (n integer unique deferrable initially deferred) on commit drop"
)


@pytest.mark.parametrize(
    "statements",
    [("select 1 / 0",), (DEFERRED, "insert into once values (1), (1)")],
    ids=["an error that was caught", "a deferred constraint"],
)
async def test_an_event_whose_transaction_cannot_commit_is_parked_alone(
    postgres_url: str, statements: Sequence[str]
) -> None:
    scene = Scene(postgres_url)

    @scene.streams.consumer("order.*", name="revenue", retry=AT_ONCE, batch=50)
    def take(events: list[StreamEvent[Any]], tx: Any) -> None:
        for each in events:
            scene.insert(tx, each)
        if any(each.data["n"] < 0 for each in events):
            for statement in statements:
                with suppress(psycopg.errors.DivisionByZero):
                    tx.execute(statement)

    await check_parked_alone(scene)


async def check_parked_alone(scene: Scene) -> None:
    """Of some events the one that cannot be taken is parked, and the others go on at once."""
    scene.streams.register()
    scene.publish(1, 2, -3, 4, key="a")
    async with scene.working():
        await scene.until_taken(1, 2, 4)
        await until(lambda: len(scene.parked_events("revenue")) == 1)
        scene.publish(5, key="a")
        await scene.until_taken(1, 2, 4, 5)
    assert len(scene.told("stream_parked")) == 1


async def test_with_order_by_key_later_events_of_a_parked_event_s_key_are_held_behind_it(
    scene: Scene,
) -> None:
    project(scene, batch=50, order="key")
    # Both keys are in one line, whichever that is: what is held is a key, not a line.
    scene.publish(1, -2, 3, key="a")
    scene.publish(4, 5, key="b")
    async with scene.working():
        await scene.until_taken(1, 4, 5)
        await until(lambda: len(scene.parked_events("revenue")) == 2)
        scene.publish(6, key="a")
        await until(lambda: len(scene.parked_events("revenue")) == 3)
        assert [each.state for each in scene.parked_events("revenue")] == ["failed", "held", "held"]
        scene.app.database.run(READERS.retry_parked("revenue", None))
        await until(lambda: len(scene.told("stream_parked")) == 2)
        assert sorted(scene.taken()) == [1, 4, 5]
        scene.app.database.run(READERS.skip_parked("revenue", None))
        await scene.until_taken(1, 3, 4, 5, 6)
        await until(lambda: scene.parked_events("revenue") == [])
        scene.publish(7, key="a")
        await scene.until_taken(1, 3, 4, 5, 6, 7)
    order = scene.taken()
    assert order.index(3) < order.index(6) < order.index(7)


async def test_data_of_another_type_is_parked_and_the_line_goes_on(scene: Scene) -> None:
    @scene.streams.consumer("order.*", name="revenue")
    def take(events: list[StreamEvent[Paid]], tx: Any) -> None:
        for each in events:
            tx.execute(scene.write, (each.data.n, each.key, each.place))

    scene.streams.register()
    scene.publish(1, key="a")
    with scene.app.transaction() as tx:
        scene.app.publish(tx, "order.paid", {"n": "many"}, key="a")
    scene.publish(2, key="a")
    async with scene.working():
        await scene.until_taken(1, 2)
    (parked,) = scene.parked_events("revenue")
    assert parked.error is not None
    assert "ValidationError" in parked.error


class Priced(msgspec.Struct):
    """Data that its own code refuses, in a way that no decoder expects."""

    n: int

    def __post_init__(self) -> None:
        assert self.n > 0, "a price is above zero"


async def test_data_that_the_code_of_its_type_refuses_is_parked_and_the_line_goes_on(
    scene: Scene,
) -> None:
    @scene.streams.consumer("order.*", name="revenue")
    def take(events: list[StreamEvent[Priced]], tx: Any) -> None:
        for each in events:
            tx.execute(scene.write, (each.data.n, each.key, each.place))

    scene.streams.register()
    scene.publish(1, -2, 3, key="a")
    async with scene.working():
        await scene.until_taken(1, 3)
    (parked,) = scene.parked_events("revenue")
    assert "AssertionError: a price is above zero" in str(parked.error)


async def test_large_data_that_is_out_of_reach_is_waited_for(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, reading = threading.get_ident(), list[int]()
    values = add_large_values(scene.app, str(tmp_path / "files"), over="4KB")

    def refuse(*_: Any, **__: Any) -> bytes:
        reading.append(threading.get_ident())
        raise FilesUnreachable("the bucket does not answer")

    project(scene)
    with scene.app.transaction() as tx:
        scene.app.publish(tx, "order.paid", {"n": 1, "text": "x" * 5_000})
    with monkeypatch.context() as patches:
        patches.setattr(values.files, "get", refuse)
        async with scene.working():
            await until(lambda: any("HF213" in str(each.error) for each in scene.lines("revenue")))
            patches.undo()
            await scene.until_taken(1)
    assert scene.parked_events("revenue") == []
    assert loop not in reading


async def test_what_a_caller_rolls_back_is_not_read(scene: Scene) -> None:
    project(scene)
    with suppress(RuntimeError), scene.app.transaction() as tx:
        scene.app.publish(tx, "order.paid", {"n": 1}, key="a")
        raise RuntimeError
    scene.publish(2, key="a")
    async with scene.working():
        await scene.until_taken(2)


async def test_a_paused_consumer_reads_nothing_until_it_is_resumed_and_a_rewound_one_reads_again(
    scene: Scene,
) -> None:
    project(scene)
    async with scene.working():
        scene.publish(1)
        await scene.until_taken(1)
        await scene.app.database.run_async(READERS.pause("revenue", True))
        scene.publish(2)
        scene.app.notifier.send([LOG_HINT])
        await until(lambda: all(each.worker is None for each in scene.lines("revenue")))
        assert scene.taken() == [1]
        await scene.app.database.run_async(READERS.pause("revenue", False))
        await scene.until_taken(1, 2)
        # Not with `run`: this loop's readers may hold the rows, and could not go on.
        await scene.app.database.run_async(READERS.rewind("revenue", 0))
        await scene.until_taken(1, 1, 2, 2)


async def test_commits_cost_no_heartbeat_of_the_lines(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every commit to a file is a hint to look, that of a heartbeat too.
    monkeypatch.setenv("HOLDFAST_STREAMS_TAKEOVER_MS", "600000")
    project(scene)
    async with scene.working():
        scene.publish(0)
        await scene.until_taken(0)
        before = len(scene.told("stream_lag"))
        for n in range(1, 21):
            scene.publish(n)
            await scene.until_taken(*range(n + 1))
        assert len(scene.told("stream_lag")) - before <= 3 * len(scene.lines("revenue"))


async def test_a_tick_reads_what_there_is(scene: Scene) -> None:
    project(scene)
    scene.publish(1, 2, 3)
    tick = scene.app.assembly(load_settings({})).tick()
    summary = await tick.run()
    await tick.close()
    assert sorted(scene.taken()) == [1, 2, 3]
    assert summary.failed_runners == []
    await scene.app.aclose()


def test_what_cannot_be_a_consumer_is_refused(scene: Scene) -> None:
    def handler(events: Any, tx: Any) -> None: ...

    def wrong(job: int, tx: Any) -> None: ...

    streams = scene.streams
    streams.consumer("order.*", name="one")(handler)
    with pytest.raises(DuplicateReader):
        streams.consumer("order.*", name="one")(handler)
    with pytest.raises(InvalidName):
        streams.consumer()(handler)
    with pytest.raises(InvalidName):
        streams.consumer("order[0-9]", name="two")(handler)
    with pytest.raises(InvalidOption):
        streams.consumer("order.*", name="two", batch=2_001)(handler)
    with pytest.raises(InvalidOption):
        streams.consumer("order.*", name="two", order="line")(handler)  # type: ignore[arg-type]
    with pytest.raises(HandlerInvalid):
        streams.consumer("order.*", name="two")(wrong)
    with pytest.raises(InvalidOption):
        streams.consumer("order.*", name="two", since="yesterday")(handler)


async def test_a_process_that_is_asked_to_stop_while_it_takes_lines_gives_them_back_and_ends(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, run, ended = ReaderLoop._apply, ReaderLoop.run, asyncio.Event()

    def stop_and_apply(self: ReaderLoop, found: LineBeat, group: asyncio.TaskGroup) -> None:
        if found.claimed:
            self.stop()
        apply(self, found, group)

    async def note_end(self: ReaderLoop) -> None:
        await run(self)
        ended.set()

    monkeypatch.setattr(ReaderLoop, "_apply", stop_and_apply)
    monkeypatch.setattr(ReaderLoop, "run", note_end)
    project(scene)
    async with scene.working():
        await until(ended.is_set)
        rows = await scene.app.database.run_async(READERS.lines())
        assert {each.worker for each in rows} == {None}


async def test_a_consumer_is_not_called_for_a_line_that_was_not_renewed_in_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, tried, called = ConsumerDelivery._call, 0, 0

    @scene.streams.consumer("order.*", name="revenue", retry=AT_ONCE)
    def take(event: StreamEvent[Any], tx: Any) -> None:
        nonlocal called
        called += 1
        scene.insert(tx, event)

    async def call_late(self: ConsumerDelivery, held: Any, *given: Any) -> None:
        nonlocal tried
        tried += 1
        if tried == 1:
            held.until = self.clock.monotonic()
        assert called == 0
        await call(self, held, *given)

    scene.streams.register()
    scene.publish(1)
    monkeypatch.setattr(ConsumerDelivery, "_call", call_late)
    async with scene.working():
        await scene.until_taken(1)
    assert called == 1
    assert tried > 1

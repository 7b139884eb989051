"""What every sink must do, run against a real broker of each kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from holdfast.storage.id_generator import new_id
from holdfast_streams.errors import BrokerAway, SecondWriter
from holdfast_streams.relay.sink import MAX_MESSAGES, LineEnd, OutgoingMessage, Position, Sink
from tests.notify.servers import LeashedServer
from tests.support.until import until

MakeSink = Callable[[], Sink]


def messages(*places: int, epoch: int = 1, size: int = 10) -> list[OutgoingMessage]:
    """Messages at places of an epoch."""
    return [
        OutgoingMessage(
            Position(epoch, place),
            id := new_id(),
            "order.paid",
            "k",
            {"ce-id": id, "ce-type": "order.paid"},
            b"x" * size,
        )
        for place in places
    ]


async def places(sink: Sink, line: int) -> list[int]:
    """What a line has, by place."""
    return [each.position.place for each in await sink.read_after(line, Position(1, 0), 5_000)]


class SinkConformance:
    """Subclasses have a fixture `make_sink`, which makes sinks of one stream, and `server`."""

    @pytest.fixture
    async def sinks(self, make_sink: MakeSink) -> AsyncIterator[list[Sink]]:
        """Four writers of one stream."""
        found = [make_sink() for _ in range(4)]
        for each in found:
            await each.open(creates=True)
        yield found
        for each in found:
            await each.close()

    async def test_an_empty_line_has_no_last_message(self, sinks: list[Sink]) -> None:
        assert (await sinks[0].resume(3)).position is None
        assert await places(sinks[0], 3) == []

    async def test_what_was_appended_is_where_another_goes_on(self, sinks: list[Sink]) -> None:
        first, second, *_ = sinks
        batch = messages(1, 2, 5)
        tail = await first.append(3, await first.resume(3), batch)
        found = await second.resume(3)
        assert (found.position, found.id) == (Position(1, 5), batch[-1].id)
        assert found == tail
        await second.append(3, found, messages(6))
        assert await places(first, 3) == [1, 2, 5, 6]

    async def test_a_writer_that_is_not_the_last_one_is_refused_and_writes_nothing(
        self, sinks: list[Sink]
    ) -> None:
        first, second, *_ = sinks
        empty = await first.resume(0)
        await second.append(0, empty, messages(1, 2))
        for batch in (messages(1, 2), messages(3, 4), messages(9)):
            with pytest.raises(SecondWriter):
                await first.append(0, empty, batch)
        assert await places(first, 0) == [1, 2]
        again = await first.resume(0)
        await first.append(0, again, messages(3))
        with pytest.raises(SecondWriter):
            await second.append(0, again, messages(4, 5))
        assert await places(first, 0) == [1, 2, 3]

    async def test_of_four_writers_in_a_race_one_wins_each_round(self, sinks: list[Sink]) -> None:
        for turn in range(5):
            tails = [await each.resume(7) for each in sinks]
            batch = messages(*range(turn * 3 + 1, turn * 3 + 4))
            found = await asyncio.gather(
                *(each.append(7, tail, batch) for each, tail in zip(sinks, tails, strict=True)),
                return_exceptions=True,
            )
            assert sum(isinstance(each, LineEnd) for each in found) == 1
            assert sum(isinstance(each, SecondWriter) for each in found) == 3
        assert await places(sinks[0], 7) == list(range(1, 16))

    async def test_lines_do_not_disturb_one_another(self, sinks: list[Sink]) -> None:
        sink = sinks[0]
        tails = {line: await sink.resume(line) for line in (1, 10, 11)}
        for line, tail in tails.items():
            await sink.append(line, tail, messages(line, line + 1))
        assert [await places(sink, line) for line in (1, 10, 11)] == [[1, 2], [10, 11], [11, 12]]

    async def test_a_batch_may_have_a_thousand_messages(self, sinks: list[Sink]) -> None:
        sink = sinks[0]
        batch = messages(*range(1, MAX_MESSAGES + 1))
        tail = await sink.append(2, await sink.resume(2), batch)
        assert tail.position == Position(1, MAX_MESSAGES)
        assert len(await places(sink, 2)) == MAX_MESSAGES

    async def test_late_ones_and_later_epochs_come_after_what_there_is(
        self, sinks: list[Sink]
    ) -> None:
        sink = sinks[0]
        tail = await sink.append(4, await sink.resume(4), messages(1, 2, 3))
        late = [
            OutgoingMessage(Position(1, 3, 1), new_id(), "order.paid", None, {"ce-id": "x"}, b"")
        ]
        tail = await sink.append(4, tail, late)
        tail = await sink.append(4, tail, messages(2, epoch=2))
        assert (await sink.resume(4)).position == Position(2, 2)
        found = await sink.read_after(4, Position(1, 2), 10)
        assert [each.position for each in found] == [
            Position(1, 3),
            Position(1, 3, 1),
            Position(2, 2),
        ]
        assert [each.position for each in await sink.read_after(4, Position(1, 3), 1)] == [
            Position(1, 3, 1)
        ]

    async def test_a_broker_that_is_away_says_so_and_is_used_again_when_it_is_back(
        self, sinks: list[Sink], server: LeashedServer
    ) -> None:
        sink = sinks[0]
        tail = await sink.resume(5)
        server.stop()
        with pytest.raises(BrokerAway):
            await sink.append(5, tail, messages(1, 2))
        with pytest.raises(BrokerAway):
            await sink.resume(5)
        server.start()

        async def is_back() -> bool:
            try:
                await sink.open(creates=True)
                found = await sink.resume(5)
                await sink.append(5, found, messages(1, 2))
            except BrokerAway:
                return False
            return True

        await until(is_back)
        assert await places(sink, 5) == [1, 2]

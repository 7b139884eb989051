"""A process that lost a line writes nothing more there; and defects that are planted on purpose are noticed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from holdfast.core.instants import Instant
from holdfast.storage.operation import Op, Statement, run
from holdfast_streams.consumer import ConsumerDelivery
from holdfast_streams.errors import LineLost
from holdfast_streams.reader_store import LINES, READERS, LineStore, LineToken
from tests.streams.deliveries import Process
from tests.streams.scene import ON_EVERY_SERVER, Scene

pytestmark = ON_EVERY_SERVER


@pytest.fixture
async def processes(scene: Scene) -> AsyncIterator[tuple[Process, Process]]:
    found = Process(scene, "first"), Process(scene, "second")
    yield found
    for each in found:
        await each.close()
    await scene.app.aclose()


async def test_a_holder_whose_line_was_taken_is_refused_although_nothing_moved(
    scene: Scene, processes: tuple[Process, Process]
) -> None:
    first, second = processes
    await first.claim(lease_ms=0)
    await second.claim()
    assert second.held.keys() == first.held.keys()
    scene.publish(1, 2, 3)
    with pytest.raises(LineLost):
        await first.deliver()
    assert scene.taken() == []
    await second.deliver()
    assert sorted(scene.taken()) == [1, 2, 3]


async def test_nothing_is_taken_after_a_pause(
    scene: Scene, processes: tuple[Process, Process]
) -> None:
    first, _ = processes
    await first.claim()
    scene.publish(1)
    scene.app.database.run(READERS.pause("revenue", True))
    with pytest.raises(LineLost):
        await first.deliver()
    assert scene.taken() == []


async def test_fences_grow_with_every_claim(
    scene: Scene, processes: tuple[Process, Process]
) -> None:
    first, second = processes
    await first.claim(lease_ms=0)
    await second.claim()
    assert all(second.held[n].fence == first.held[n].fence + 1 for n in first.held)


async def test_a_lease_that_still_runs_is_not_taken(
    scene: Scene, processes: tuple[Process, Process]
) -> None:
    first, second = processes
    await first.claim()
    await second.claim()
    assert len(first.held) == 16
    assert second.held == {}


async def test_what_was_parked_with_its_answer_lost_is_not_parked_again(
    scene: Scene, processes: tuple[Process, Process]
) -> None:
    process, _ = processes
    await process.claim()
    scene.publish(1, key="a")
    ((held, block),) = await process.read()
    start = held.position
    await process.delivery.give_up(held, block, "it cannot be read")
    held.move(start)
    with pytest.raises(LineLost):
        await process.delivery.give_up(held, block, "it cannot be read")
    assert len(scene.parked_events("revenue")) == 1


class Tokenless(LineStore):
    """A planted defect: a position moves without its token."""

    def advance(
        self, held: LineToken, start: int, end: int, server: Instant | None = None
    ) -> Op[bool]:
        rows = yield Statement("reader_lines", {"now": None})
        assert rows
        moved = yield Statement(
            "reader_rewind", {"reader": held.reader, "since": None, "line": held.line}
        )
        return bool(moved)


async def test_planted_a_position_that_needs_no_token_is_moved_by_one_who_lost_its_line(
    scene: Scene, processes: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LINES, "__class__", Tokenless)
    first, second = processes
    await first.claim(lease_ms=0)
    await second.claim()
    scene.publish(1)
    await first.deliver()
    assert scene.taken() == [1]


async def test_planted_a_position_outside_of_the_transaction_takes_events_twice(
    scene: Scene, processes: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = processes
    crashes = iter([True])

    def run_apart(self: ConsumerDelivery, held: Any, events: Sequence[Any], last: Op[None]) -> None:
        with self.database.transaction() as tx:
            self.consumer.handler(events, tx)
        if next(crashes, False):
            raise LineLost("the process died here")
        with self.database.transaction() as tx:
            run(last, tx)

    monkeypatch.setattr(ConsumerDelivery, "_run_sync", run_apart)
    await first.claim(lease_ms=0)
    scene.publish(1, key="a")
    with pytest.raises(LineLost):
        await first.deliver()
    await second.claim()
    await second.deliver()
    assert scene.taken() == [1, 1]

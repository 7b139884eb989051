"""Stored events reach a handler that subscribes later, each once, and are kept for as long as a handler asks."""

from __future__ import annotations

from holdfast.commands.replay import SETTLE_US, ReplayPage, continue_replay, replay_page
from holdfast.commands.retention import FIRST_ID, Ages, remove_chains
from holdfast.commands.start import publish_event, subscribe_handlers
from holdfast.core.ids import delivery_id, id_at
from holdfast.core.instants import Instant
from holdfast.core.records import JobRecord
from holdfast.core.subscriptions import KeptEvent, NewSubscription
from holdfast.storage.store.pagination import JobQuery
from tests.conformance.harness import SECOND, Conformance, StoreFixture

_PLACED = "order.placed"
_OLD, _NEW = NewSubscription(_PLACED, "mail"), NewSubscription(_PLACED, "count")
_DAY = 86_400
_LAST = "ffffffff-ffff-ffff-ffff-ffffffffffff"


async def _publish(fixture: StoreFixture, *inputs: str) -> list[str]:
    """Publish events; return their ids."""
    jobs = [fixture.job(_PLACED, input=each, version=2) for each in inputs]
    for job in jobs:
        await fixture.run(publish_event(fixture.store, job, now=fixture.now))
    return [each.id for each in jobs]


async def _replay(fixture: StoreFixture, after: str = FIRST_ID, look: int = 100) -> ReplayPage:
    return await fixture.run(replay_page(fixture.store, _NEW, after, _LAST, look, now=fixture.now))


async def _go_to_the_end(fixture: StoreFixture, at: Instant) -> None:
    """Continue a replay to the end of what is stored: it also comes past its own deliveries."""
    page = await fixture.run(continue_replay(fixture.store, _NEW, at))
    while page is not None and not page.is_last:
        assert page.copied == 0
        page = await fixture.run(continue_replay(fixture.store, _NEW, at))
    assert page is not None


async def _read_deliveries(fixture: StoreFixture) -> list[JobRecord]:
    query = JobQuery(types=(_NEW.job_type,))
    return sorted(
        await fixture.run(fixture.store.jobs.page(query, fixture.now)), key=lambda job: job.id
    )


class ReplayConformance(Conformance):
    """Events from before a subscription."""

    async def test_each_stored_event_is_delivered_once(self, fixture: StoreFixture) -> None:
        await fixture.run(fixture.store.events.subscribe([_OLD]))
        ids = await _publish(fixture, "1", "2", "3")
        await fixture.start()
        page = await _replay(fixture)
        assert (page.copied, page.is_last) == (3, False)
        assert (await _replay(fixture)).copied == 0
        again = replay_page(fixture.store, _NEW, FIRST_ID, _LAST, dry_run=True)
        assert (await fixture.run(again)).copied == 0
        found = await _read_deliveries(fixture)
        assert [each.input for each in found] == ["1", "2", "3"]
        assert [each.id for each in found] == [delivery_id(id, _NEW.job_type) for id in ids]
        assert {(each.priority, each.version, each.state) for each in found} == {(9, 2, "pending")}

    async def test_what_a_handler_got_by_itself_is_not_delivered_again(
        self, fixture: StoreFixture
    ) -> None:
        await fixture.run(fixture.store.events.subscribe([_OLD]))
        await _publish(fixture, "1")
        await fixture.run(fixture.store.events.subscribe([_NEW]))
        await _publish(fixture, "2")
        assert (await _replay(fixture)).copied == 1
        assert [each.input for each in await _read_deliveries(fixture)] == ["1", "2"]

    async def test_an_event_that_waited_for_its_first_handler_is_one_event(
        self, fixture: StoreFixture
    ) -> None:
        await _publish(fixture, "1")
        await fixture.run(subscribe_handlers(fixture.store, [_OLD], now=fixture.now))
        assert (await _replay(fixture)).copied == 1

    async def test_an_event_for_later_is_replayed_for_later(self, fixture: StoreFixture) -> None:
        await fixture.run(fixture.store.events.subscribe([_OLD]))
        event = fixture.job(_PLACED, at=fixture.now + 60 * SECOND)
        await fixture.run(publish_event(fixture.store, event, now=fixture.now))
        assert (await _replay(fixture)).copied == 1
        (found,) = await _read_deliveries(fixture)
        assert found.available_at == fixture.now + 60 * SECOND

    async def test_a_small_look_comes_past_everything_else(self, fixture: StoreFixture) -> None:
        await fixture.run(fixture.store.events.subscribe([_OLD]))
        await fixture.start()
        await _publish(fixture, "1")
        for _ in range(3):
            await fixture.start("order.placed.late/mail")
        await _publish(fixture, "2")
        page = await _replay(fixture, look=1)
        copied = page.copied
        while not page.is_last:
            page = await _replay(fixture, page.last, look=1)
            copied += page.copied
        assert copied == 2

    async def test_a_new_subscription_begins_where_it_asks_to(self, fixture: StoreFixture) -> None:
        await fixture.run(fixture.store.events.subscribe([_OLD]))
        first, *_ = await _publish(fixture, "1", "2", "3")
        events = fixture.store.events
        delivered_first = delivery_id(first, _OLD.job_type)
        begin = NewSubscription(_PLACED, "count", delivered_first)
        assert await fixture.run(events.subscribe([begin])) != []
        assert await fixture.run(events.subscribe([begin])) == []
        count, _ = await fixture.run(events.page(10))
        assert count.replay_after == delivered_first
        clock = await fixture.run(fixture.store.schema.clock())
        soon, late = clock + SECOND, clock + 2 * SETTLE_US + 10 * SECOND
        first_page = await fixture.run(continue_replay(fixture.store, _NEW, soon))
        assert first_page is not None
        assert first_page.copied == 2
        await _go_to_the_end(fixture, soon)
        assert await fixture.run(continue_replay(fixture.store, _NEW, soon)) is not None
        await _go_to_the_end(fixture, late)
        assert await fixture.run(continue_replay(fixture.store, _NEW, late)) is None
        assert [each.input for each in await _read_deliveries(fixture)] == ["2", "3"]
        count, _ = await fixture.run(events.page(10))
        assert count.replay_after is None

    async def test_events_are_kept_for_as_long_as_a_handler_asks(
        self, fixture: StoreFixture
    ) -> None:
        events, longer = (
            fixture.store.events,
            NewSubscription(_PLACED, "mail", None, 90 * _DAY * 1000),
        )
        await fixture.run(subscribe_handlers(fixture.store, [longer, _NEW], now=fixture.now))
        assert await fixture.run(events.kept()) == [KeptEvent(_PLACED, 90 * _DAY * 1000)]
        event = fixture.job(_PLACED, id=id_at(fixture.now))
        await fixture.run(publish_event(fixture.store, event, now=fixture.now))
        other = await fixture.start()
        for type in (_OLD.job_type, _NEW.job_type, other.type):
            await fixture.finish_next("complete", type)
        ages = Ages(30, 60, 30)
        for days, removed in ((40, 1), (45, 0), (10, 2)):
            fixture.pass_time(seconds=days * _DAY)
            op = remove_chains(fixture.store, ages, FIRST_ID, 100, fixture.now)
            assert (await fixture.run(op)).removed == removed
        await fixture.run(events.keep([_OLD]))
        assert await fixture.run(events.kept()) == []

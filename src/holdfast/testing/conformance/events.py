"""Subscriptions, and events that were published before any subscription."""

from __future__ import annotations

from holdfast.core.records import Subscription, WaitingEvent
from holdfast.testing.conformance.store_fixture import SECOND, Conformance, StoreFixture

PLACED = "order.placed"
MAIL_RECEIPT = Subscription(PLACED, "mail_receipt")
CHARGE = Subscription(PLACED, "charge")
OTHER = Subscription("order.shipped", "mail_receipt")


class SubscriptionConformance(Conformance):
    """Who gets which event."""

    async def test_subscriptions_are_registered_once(self, fixture: StoreFixture) -> None:
        subscribe = fixture.store.events.subscribe
        assert await fixture.run(subscribe([MAIL_RECEIPT])) == [MAIL_RECEIPT]
        assert await fixture.run(subscribe([MAIL_RECEIPT, CHARGE])) == [CHARGE]
        assert await fixture.run(subscribe([MAIL_RECEIPT, CHARGE])) == []

    async def test_an_event_lists_its_own_subscriptions(self, fixture: StoreFixture) -> None:
        await fixture.run(fixture.store.events.subscribe([MAIL_RECEIPT, CHARGE, OTHER]))
        subscriptions = fixture.store.events.subscriptions
        assert await fixture.run(subscriptions([PLACED])) == [CHARGE, MAIL_RECEIPT]
        assert await fixture.run(subscriptions([PLACED, OTHER.event, "unknown"])) == [
            CHARGE,
            MAIL_RECEIPT,
            OTHER,
        ]
        assert await fixture.run(subscriptions([])) == []

    async def test_all_subscriptions_are_listed_with_since_when(
        self, fixture: StoreFixture
    ) -> None:
        assert await fixture.run(fixture.store.events.page(10)) == []
        await fixture.run(fixture.store.events.subscribe([OTHER, MAIL_RECEIPT]))
        clock = await fixture.run(fixture.store.schema.clock())
        await fixture.run(fixture.store.events.subscribe([CHARGE, MAIL_RECEIPT]))
        found = await fixture.run(fixture.store.events.page(10))
        assert [each.job_type for each in found] == [
            CHARGE.job_type,
            MAIL_RECEIPT.job_type,
            OTHER.job_type,
        ]
        assert found[1].created_at <= clock <= found[0].created_at
        assert await fixture.run(fixture.store.events.page(1)) == found[:1]

    async def test_a_removed_subscription_is_gone(self, fixture: StoreFixture) -> None:
        await fixture.run(fixture.store.events.subscribe([MAIL_RECEIPT, CHARGE]))
        assert await fixture.run(fixture.store.events.unsubscribe([CHARGE, OTHER])) == [CHARGE]
        assert await fixture.run(fixture.store.events.subscriptions([PLACED])) == [MAIL_RECEIPT]


class WaitingEventConformance(Conformance):
    """Events nobody had subscribed to yet."""

    async def test_waiting_events_are_read_as_they_were_published(
        self, fixture: StoreFixture
    ) -> None:
        at = fixture.now + SECOND
        first = await fixture.start(PLACED, input='{"id": 1}')
        second = await fixture.start(PLACED, input='{"id": 2}', priority=1, trace="00-t", at=at)
        await fixture.start(OTHER.event)
        assert await fixture.run(fixture.store.events.waiting(PLACED, 10)) == [
            WaitingEvent(first.id, PLACED, '{"id": 1}', 5, None, None),
            WaitingEvent(second.id, PLACED, '{"id": 2}', 1, "00-t", at),
        ]
        (oldest,) = await fixture.run(fixture.store.events.waiting(PLACED, 1))
        assert oldest.id == first.id

    async def test_an_event_that_runs_is_not_waiting(self, fixture: StoreFixture) -> None:
        await fixture.start_running(PLACED)
        assert await fixture.run(fixture.store.events.waiting(PLACED, 10)) == []

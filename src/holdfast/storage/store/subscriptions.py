"""Subscriptions and the events that wait for one, over named statements."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.records import Subscription, SubscriptionRecord, WaitingEvent
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.params import document, records_of, texts


class EventStore:
    """Who subscribes to which event."""

    def subscriptions(self, events: Sequence[str]) -> Op[list[Subscription]]:
        """Read the subscriptions of events. One statement."""
        rows = yield Statement("subscription_list", {"events": texts(events)})
        return records_of(Subscription, rows)

    def page(self, limit: int) -> Op[list[SubscriptionRecord]]:
        """Read subscriptions of all events, by event and handler. One statement."""
        rows = yield Statement("subscription_page", {"limit": limit})
        return records_of(SubscriptionRecord, rows)

    def subscribe(self, subscriptions: Sequence[Subscription]) -> Op[list[Subscription]]:
        """Register subscriptions; return the new ones. One statement."""
        rows = yield Statement("subscription_insert", {"rows": document(subscriptions)})
        return records_of(Subscription, rows)

    def unsubscribe(self, subscriptions: Sequence[Subscription]) -> Op[list[Subscription]]:
        """Remove subscriptions; return those that existed. One statement."""
        rows = yield Statement("subscription_delete", {"rows": document(subscriptions)})
        return records_of(Subscription, rows)

    def waiting(self, event: str, limit: int) -> Op[list[WaitingEvent]]:
        """Lock and read events published before any subscription."""
        rows = yield Statement("event_waiting", {"event": event, "limit": limit})
        return records_of(WaitingEvent, rows)

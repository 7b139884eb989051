"""Subscriptions and the events that wait for one, over named statements."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.records import Subscription, SubscriptionRecord, WaitingEvent
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.params import document, texts


class EventStore:
    """Who subscribes to which event."""

    def subscriptions(self, events: Sequence[str]) -> Op[list[Subscription]]:
        """Read the subscriptions of events. One statement."""
        rows = yield Statement("subscription_list", {"events": texts(events)})
        return [Subscription(*row) for row in rows]

    def page(self, limit: int) -> Op[list[SubscriptionRecord]]:
        """Read subscriptions of all events, by event and handler. One statement."""
        rows = yield Statement("subscription_page", {"limit": limit})
        return [SubscriptionRecord(*row) for row in rows]

    def subscribe(self, subscriptions: Sequence[Subscription]) -> Op[list[Subscription]]:
        """Register subscriptions; return the new ones. One statement."""
        rows = yield Statement("subscription_insert", {"rows": document(subscriptions)})
        return [Subscription(*row) for row in rows]

    def unsubscribe(self, subscriptions: Sequence[Subscription]) -> Op[list[Subscription]]:
        """Remove subscriptions; return those that existed. One statement."""
        rows = yield Statement("subscription_delete", {"rows": document(subscriptions)})
        return [Subscription(*row) for row in rows]

    def waiting(self, event: str, limit: int) -> Op[list[WaitingEvent]]:
        """Lock and read events published before anybody subscribed."""
        rows = yield Statement("event_waiting", {"event": event, "limit": limit})
        return [WaitingEvent(*row) for row in rows]

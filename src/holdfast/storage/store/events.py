"""Subscriptions and the events that wait for one, over named statements."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.records import Subscription, SubscriptionRecord, WaitingEvent
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.params import document, texts


class Events:
    """See `storage.port.EventStore`."""

    def subscriptions(self, events: Sequence[str]) -> Op[list[Subscription]]:
        rows = yield Statement("subscription_list", {"events": texts(events)})
        return [Subscription(*row) for row in rows]

    def page(self, limit: int) -> Op[list[SubscriptionRecord]]:
        rows = yield Statement("subscription_page", {"limit": limit})
        return [SubscriptionRecord(*row) for row in rows]

    def subscribe(self, subscriptions: Sequence[Subscription]) -> Op[list[Subscription]]:
        rows = yield Statement("subscription_insert", {"rows": document(subscriptions)})
        return [Subscription(*row) for row in rows]

    def unsubscribe(self, subscriptions: Sequence[Subscription]) -> Op[list[Subscription]]:
        rows = yield Statement("subscription_delete", {"rows": document(subscriptions)})
        return [Subscription(*row) for row in rows]

    def waiting(self, event: str, limit: int) -> Op[list[WaitingEvent]]:
        rows = yield Statement("event_waiting", {"event": event, "limit": limit})
        return [WaitingEvent(*row) for row in rows]

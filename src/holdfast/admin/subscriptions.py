"""Subscriptions: which handler gets which event, who handles it now, and removing one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from holdfast.admin.authorize import Caller, Change, Desk, Effect
from holdfast.admin.serializers import plain
from holdfast.commands.explain import LIVE_WITHIN_MS, MOST_WORKERS
from holdfast.core.errors import SubscriptionNotFound
from holdfast.core.records import Instant, Subscription, SubscriptionRecord
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

MOST_LISTED = 1_000


class SubscriptionFacts(msgspec.Struct, frozen=True):
    """A subscription, how many live workers handle it, and how many jobs of it have not ended."""

    now: Instant
    record: SubscriptionRecord
    workers: int
    live: int

    def as_json(self) -> dict[str, Any]:
        """Return the facts for programs."""
        return {
            "type": self.record.job_type,
            **plain(self.record),
            "workers": self.workers,
            "live": self.live,
        }


class Unsubscribed(msgspec.Struct, frozen=True):
    """What is left of a removed subscription: its jobs that have not ended, and the event's other handlers."""

    event: str
    handler: str
    type: str
    live: int
    others: list[str]


class SubscriptionDesk:
    """What can be asked about subscriptions and done to them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def list(self, caller: Caller) -> list[SubscriptionFacts]:
        """Read subscriptions, by event and handler."""
        return await self._desk.read(caller, "subscription.list", _facts)

    async def remove(self, caller: Caller, event: str, handler: str) -> Unsubscribed:
        """Deliver an event to a handler no more; what was delivered stays. Raises: SubscriptionNotFound."""
        answer: Unsubscribed = await self._desk.change(
            caller, "subscription.remove", lambda store: _removed(store, event, handler)
        )
        return answer


def _facts(store: Store) -> Op[list[SubscriptionFacts]]:
    now = yield from store.schema.clock()
    records = yield from store.events.page(MOST_LISTED)
    living = yield from store.workers.page(MOST_WORKERS, LIVE_WITHIN_MS)
    handled = Counter(type for each in living for type in each.types)
    live = yield from _live(store)
    return [
        SubscriptionFacts(now, each, handled[each.job_type], live.get(each.job_type, 0))
        for each in records
    ]


def _removed(store: Store, event: str, handler: str) -> Op[Change]:
    gone = yield from store.events.unsubscribe([Subscription(event, handler)])
    if not gone:
        raise SubscriptionNotFound(f"no handler {handler[:60]!r} subscribes to {event[:60]!r}")
    (was,) = gone
    left = yield from store.events.subscriptions([event])
    live = (yield from _live(store)).get(was.job_type, 0)
    answer = Unsubscribed(event, handler, was.job_type, live, [each.handler for each in left])
    return Change(answer, [Effect(f"subscription {was.job_type}", plain(was))])


def _live(store: Store) -> Op[dict[str, int]]:
    totals = yield from store.workers.type_totals()
    return {each.type: each.live for each in totals}

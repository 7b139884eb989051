"""Subscriptions: which handler gets which event, who handles it now, and removing one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from holdfast.admin.authorize import Caller, Gateway
from holdfast.admin.serializers import plain
from holdfast.commands.explain import LIVE_WITHIN_MS, MOST_WORKERS
from holdfast.commands.start import RemovedSubscription, remove_subscription
from holdfast.core.records import Instant, SubscriptionRecord
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


class SubscriptionAdmin:
    """What can be asked about subscriptions and done to them."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def list(self, caller: Caller) -> list[SubscriptionFacts]:
        """Read subscriptions, by event and handler."""
        return await self._gateway.read(caller, "subscription.list", _facts)

    async def remove(self, caller: Caller, event: str, handler: str) -> RemovedSubscription:
        """Stop delivering an event to a handler; what was delivered stays. Raises: SubscriptionNotFound."""
        return await self._gateway.run(
            caller, "subscription.remove", lambda store: remove_subscription(store, event, handler)
        )


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


def _live(store: Store) -> Op[dict[str, int]]:
    totals = yield from store.workers.type_totals()
    return {each.type: each.live for each in totals}

"""Commands on subscriptions: remove one."""

from __future__ import annotations

import msgspec

from holdfast.commands.change import Change, Effect
from holdfast.core.errors import SubscriptionNotFound
from holdfast.core.records import Subscription
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


class RemovedSubscription(msgspec.Struct, frozen=True):
    """A removed subscription: its jobs that have not ended, and the event's other handlers."""

    event: str
    handler: str
    type: str
    live: int
    others: list[str]


def remove_subscription(store: Store, event: str, handler: str) -> Op[Change[RemovedSubscription]]:
    """Stop delivering an event to a handler; what was delivered stays. Raises: SubscriptionNotFound."""
    removed = yield from store.events.unsubscribe([Subscription(event, handler)])
    if not removed:
        raise SubscriptionNotFound(f"no handler {handler[:60]!r} subscribes to {event[:60]!r}")
    (was,) = removed
    left = yield from store.events.subscriptions([event])
    totals = yield from store.workers.type_totals()
    live = next((each.live for each in totals if each.type == was.job_type), 0)
    others = [each.handler for each in left]
    answer = RemovedSubscription(event, handler, was.job_type, live, others)
    return Change(answer, [Effect(f"subscription {was.job_type}", was)])

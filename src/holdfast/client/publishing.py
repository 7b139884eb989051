"""Publishing events: checked like starts, delivered to whoever has subscribed."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict

from holdfast.client import news
from holdfast.client.client import Conditions, Write
from holdfast.client.options import check_priority, check_time
from holdfast.client.starting import of_started
from holdfast.client.targets import Targets
from holdfast.client.views import Chain, new_chain
from holdfast.client.witnesses import new_among
from holdfast.commands.publish import publish_events
from holdfast.commands.start import Started
from holdfast.core.duration import Duration, milliseconds
from holdfast.core.records import DEFAULT_PRIORITY, NewJob
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


class PublishOptions(TypedDict, total=False):
    """What an event may be published with: not before a time, and how urgent it is."""

    at: datetime | None
    after: Duration | None
    priority: int


def publish_write(
    targets: Targets,
    event: str,
    input: Any,
    *,
    at: datetime | None = None,
    after: Duration | None = None,
    priority: int = DEFAULT_PRIORITY,
) -> Write[list[Chain]]:
    """Return the write that publishes an event. Raises: the errors of names, payloads and options."""
    text = targets.encode_event(event, input)
    planned = check_time(at, after)
    after_ms = None if after is None else milliseconds(after)
    urgency = check_priority(priority)

    def op(store: Store, conditions: Conditions) -> Op[list[Chain]]:
        moment = planned
        if after_ms is not None:
            moment = (yield from store.schema.clock()) + after_ms * 1000
        job_id = new_id()
        job = NewJob(
            id=job_id,
            chain_id=job_id,
            type=event,
            input=text,
            priority=urgency,
            at=moment,
            trace=None if conditions.trace is None else conditions.trace(event),
        )
        (deliveries,) = yield from publish_events(store, [job], new_id, conditions.channel)
        return [
            new_chain(Started(each.id, each.type, "pending", False), None, text)
            for each in deliveries
        ]

    return Write(op, of_started, news.of_created, new_among, notifies=True)

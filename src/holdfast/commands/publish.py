"""Publishing events: one job per subscription, or one waiting row until somebody subscribes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.commands.blockers import FanIn
from holdfast.commands.change import due_hints
from holdfast.commands.jobs import EndReport, end_jobs
from holdfast.core.records import Ending, Instant, NewJob, Subscription
from holdfast.notify.base import Hint
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

FAN_OUT_BATCH = 500


class Delivery(msgspec.Struct, frozen=True):
    """What became of events that waited: how many there were, the types of their jobs, and what their end led to."""

    count: int
    types: tuple[str, ...]
    end: EndReport

    def hints(self) -> list[Hint]:
        """Deliveries may be due, and the chains of the waiting events have ended."""
        return [*due_hints(self.types), *self.end.hints()]


NOTHING = Delivery(0, (), EndReport([], FanIn([], [])))


def publish_events(
    store: Store,
    events: Sequence[NewJob],
    make_id: Callable[[], str],
    channel: str | None = None,
    now: Instant | None = None,
) -> Op[list[list[NewJob]]]:
    """Write the deliveries of events; return them per event. An event's `type` is its name."""
    names = sorted({each.type for each in events})
    subscriptions = yield from store.events.subscriptions(names)
    deliveries = [_deliveries(each, subscriptions, make_id) for each in events]
    yield from store.jobs.insert([job for jobs in deliveries for job in jobs], channel, now)
    return deliveries


def _deliveries(
    event: NewJob, subscriptions: Sequence[Subscription], make_id: Callable[[], str]
) -> list[NewJob]:
    mine = [each.job_type for each in subscriptions if each.event == event.type]
    if not mine:
        return [event]
    jobs = []
    for position, job_type in enumerate(mine):
        job_id = event.id if position == 0 else make_id()
        jobs.append(msgspec.structs.replace(event, id=job_id, chain_id=job_id, type=job_type))
    return jobs


def subscribe_handlers(
    store: Store,
    subscriptions: Sequence[Subscription],
    make_id: Callable[[], str],
    now: Instant | None = None,
) -> Op[list[Delivery]]:
    """Register subscriptions and deliver what was published before, one batch of each event.

    Concurrency: an event published meanwhile may still be written as waiting; `deliver_waiting` is repeated by workers.
    """
    yield from store.events.subscribe(subscriptions)
    deliveries = []
    for event in sorted({each.event for each in subscriptions}):
        deliveries.append((yield from deliver_waiting(store, event, make_id, now)))
    return deliveries


def deliver_waiting(
    store: Store, event: str, make_id: Callable[[], str], now: Instant | None = None
) -> Op[Delivery]:
    """Deliver one batch of events that waited for a subscriber."""
    waiting = yield from store.events.waiting(event, FAN_OUT_BATCH)
    if not waiting:
        return NOTHING
    subscriptions = yield from store.events.subscriptions([event])
    if not subscriptions:
        return NOTHING
    jobs, endings = [], []
    for each in waiting:
        ids = []
        for subscription in subscriptions:
            job_id = make_id()
            ids.append(job_id)
            jobs.append(
                NewJob(
                    id=job_id,
                    chain_id=job_id,
                    type=subscription.job_type,
                    input=each.input,
                    priority=each.priority,
                    at=each.planned_at,
                    trace=each.trace,
                )
            )
        output = msgspec.json.encode({"delivered": ids}).decode()
        endings.append(Ending(id=each.id, state="completed", output=output))
    yield from store.jobs.insert(jobs, now=now)
    end = yield from end_jobs(store, endings, now)
    return Delivery(len(waiting), tuple(each.job_type for each in subscriptions), end)

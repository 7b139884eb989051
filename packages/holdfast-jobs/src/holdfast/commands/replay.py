"""Replay: events that are still stored, delivered to a handler that did not get them, each once."""

from __future__ import annotations

import msgspec

from holdfast.commands.change import Change, Effect, due_hints
from holdfast.commands.start import MAX_SUBSCRIPTIONS, no_such_subscription
from holdfast.core.duration import milliseconds
from holdfast.core.ids import delivery_id, id_at, instant_of
from holdfast.core.instants import Instant, parse_since, to_datetime
from holdfast.core.records import NewJob
from holdfast.core.subscriptions import StoredEvent, Subscription
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

REPLAY_LOOK = 2_000
"""So many jobs are looked at in one transaction."""

REPLAY_PRIORITY = 9
"""What happens now goes before what happened earlier."""

SETTLE_US = 60_000_000
"""A publisher that read the subscriptions before a new one was committed has ended by then."""


class ReplayPage(msgspec.Struct, frozen=True):
    """One batch: how many events were new to the handler, and where the next one begins."""

    copied: int
    last: str
    is_last: bool

    @property
    def reached(self) -> Instant:
        """When the last event that was looked at had been published."""
        return instant_of(self.last) * 1000


def replay_page(
    store: Store,
    subscription: Subscription,
    after: str,
    until: str,
    look: int = REPLAY_LOOK,
    dry_run: bool = False,
    now: Instant | None = None,
) -> Op[ReplayPage]:
    """Deliver the events among the next `look` jobs to a handler, unless it got them before."""
    rows = yield from store.events.stored(subscription.event, after, until, look)
    jobs = {each.id: each for each in (_delivery(row, subscription) for row in rows) if each}
    copied = 0
    if jobs and dry_run:
        copied = len(jobs) - len((yield from store.jobs.get(list(jobs))))
    elif jobs:
        copied = len((yield from store.jobs.insert(list(jobs.values()), now=now)))
    last = rows[-1].id if rows else after
    return ReplayPage(copied, last, not rows)


def _delivery(row: StoredEvent, subscription: Subscription) -> NewJob | None:
    if row.input is None or row.type == subscription.job_type:
        return None
    is_waiting = row.type == subscription.event
    event_id = row.id if is_waiting else delivery_id(row.id, row.type)
    job_id = delivery_id(event_id, subscription.job_type)
    return NewJob(
        id=job_id,
        chain_id=job_id,
        type=subscription.job_type,
        input=row.input,
        priority=REPLAY_PRIORITY,
        at=row.planned_at,
        version=row.version,
        context=row.context,
    )


def read_since(store: Store, since: str) -> Op[Instant]:
    """Read from when on events are wanted: a date, a time, or how long ago by the database's clock.

    Raises: InvalidOption, InvalidDuration.
    """
    if not since[:1].isdigit() or "-" in since:
        return parse_since(since)
    return (yield from store.schema.clock()) - milliseconds(since) * 1000


def replay_events(
    store: Store,
    subscription: Subscription,
    since: Instant | str,
    after: str | None = None,
    look: int = REPLAY_LOOK,
    dry_run: bool = False,
) -> Op[Change[ReplayPage]]:
    """Deliver one batch of the events since an instant, or what `read_since` takes, to a handler; the first is audited.

    What was published after the handler had subscribed was delivered anyway.
    Raises: SubscriptionNotFound, InvalidOption, InvalidDuration.
    """
    begins = since if isinstance(since, int) else (yield from read_since(store, since))
    records = yield from store.events.page(MAX_SUBSCRIPTIONS)
    found = next((each for each in records if each.job_type == subscription.job_type), None)
    if found is None:
        raise no_such_subscription(subscription, records)
    until = id_at(found.created_at + SETTLE_US)
    page = yield from replay_page(store, subscription, after or id_at(begins), until, look, dry_run)
    if dry_run:
        return Change(page)
    effects = []
    if after is None:
        said = {"since": to_datetime(begins)}
        effects = [Effect(f"subscription {subscription.job_type}", None, said)]
    hints = due_hints((subscription.job_type,)) if page.copied else ()
    return Change(page, effects, hints)


def continue_replay(
    store: Store, subscription: Subscription, now: Instant | None = None
) -> Op[ReplayPage | None]:
    """Deliver the next batch of earlier events to a new subscription; None when there is nothing to do.

    Concurrency: of several workers one does it at a time.
    """
    replaying = yield from store.events.lock_replay(subscription)
    if replaying is None:
        return None
    instant = yield from store.schema.clock(now)
    subscribed = replaying.created_at
    until = id_at(subscribed + SETTLE_US)
    page = yield from replay_page(store, subscription, replaying.after, until, now=now)
    after: str | None = page.last
    if page.is_last and instant > subscribed + 2 * SETTLE_US:
        after = None
    elif page.is_last:
        # What is published beside the subscription may still be under way: it is looked at once more.
        after = min(page.last, id_at(subscribed - SETTLE_US))
    yield from store.events.mark_replayed(subscription, after)
    return page

"""Starting chains: keys first, then jobs, then blockers, all in the caller's transaction; and subscriptions of events.

Publishing an event starts one job per subscription, and appends it to the log if that has readers of it. Without either
it is one waiting row until a handler subscribes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from holdfast.commands.blockers import FanIn, attach_blockers, check_waits, tails_of
from holdfast.commands.change import Change, Effect, due_hints
from holdfast.commands.debounce import DebouncedStart, Unsealed, start_debounced
from holdfast.commands.jobs import EndReport, end_jobs
from holdfast.core.errors import SubscriptionNotFound, nearest
from holdfast.core.ids import delivery_id, id_at
from holdfast.core.instants import Expiry, Instant
from holdfast.core.records import ChainState, Debounce, Ending, NewBlocker, NewJob, NewKey, State
from holdfast.core.registry import JobType
from holdfast.core.sealing import PayloadStore, Sealer
from holdfast.core.subscriptions import NewSubscription, Subscription
from holdfast.notify.base import Hint
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store import Store


class StartRequest(msgspec.Struct, frozen=True):
    """One chain to be started: its first job, and what it waits for."""

    job: NewJob
    key: NewKey | None = None
    blockers: tuple[NewBlocker, ...] = ()
    waits_for: tuple[str, ...] | None = None
    debounce: Debounce | None = None
    unsealed: Unsealed | None = None
    expiry: Expiry | None = None

    @property
    def clear_input(self) -> str:
        """The input as the caller gave it."""
        return self.job.input if self.unsealed is None else self.unsealed.text


class Started(msgspec.Struct, frozen=True):
    """A started chain; `deduplicated` when it is an earlier one, maybe long removed, with the same key or id."""

    id: str
    type: str
    state: ChainState
    deduplicated: bool


def keep_large(sealer: Sealer | None, records: list[Any]) -> Op[None]:
    """Keep large payloads elsewhere before these records are written, which it replaces in the list."""
    keep = sealer.find_large(records) if isinstance(sealer, PayloadStore) else None
    if keep is not None:
        yield Statement("", {}, keep)


def start_chains(
    store: Store,
    requests: Sequence[StartRequest],
    channel: str | None = None,
    now: Instant | None = None,
) -> Op[list[Started]]:
    """Write chains; return one answer per request, in order.

    Raises: ChainNotFound for an unknown blocker, UnknownJobType for one that the type does not declare to wait for.
    """
    if len(requests) == 1 and requests[0].key is None and not requests[0].blockers:
        written = yield from _insert(store, requests, channel, now)
        if written:
            return [_new(requests[0], {})]
        earlier = yield from _earlier(store, requests, written)
        return list(earlier.values())
    if any(each.debounce is not None for each in requests):
        return (yield from _start_some_debounced(store, requests, channel, now))
    edges = [edge for request in requests for edge in request.blockers]
    if edges:
        # Blockers that do not exist are refused before anything is written.
        yield from tails_of(store, (edge.chain_id for edge in edges))
        yield from _check_waits(store, requests)
    winners = yield from _claim_keys(store, requests, now)
    fresh = [each for each in requests if each.key is None or each.job.id in winners]
    written = set()
    if fresh:
        written = yield from _insert(store, fresh, channel, now)
    states: dict[str, State] = {}
    edges = [edge for each in fresh if each.job.id in written for edge in each.blockers]
    if edges:
        states = yield from attach_blockers(store, edges, now)
    if len(written) == len(requests):
        return [_new(each, states) for each in requests]
    earlier = yield from _earlier(store, requests, written)
    return [
        _new(each, states) if each.job.id in written else earlier[each.job.id] for each in requests
    ]


def _insert(
    store: Store, requests: Sequence[StartRequest], channel: str | None, now: Instant | None
) -> Op[set[str]]:
    """Write first jobs, and when they expire."""
    written = yield from store.jobs.insert([each.job for each in requests], channel, now)
    times = {
        each.job.id: each.expiry for each in requests if each.expiry and each.job.id in written
    }
    if times:
        yield from store.expiry.set(times, now)
    return written


def _start_some_debounced(
    store: Store, requests: Sequence[StartRequest], channel: str | None, now: Instant | None
) -> Op[list[Started]]:
    """Write chains of which some are debounced: those come last, everywhere, as keys are claimed in one order."""
    others = [each for each in requests if each.debounce is None]
    started = (yield from start_chains(store, others, channel, now)) if others else []
    answers = {each.job.id: answer for each, answer in zip(others, started, strict=True)}
    debounced = [
        DebouncedStart(each.job, each.key, each.debounce, each.unsealed)
        for each in requests
        if each.debounce is not None and each.key is not None
    ]
    types = {each.job.id: each.job.type for each in debounced}
    found = yield from start_debounced(store, debounced, channel, now)
    for asked, chain in found.items():
        answers[asked] = Started(chain.id, types[asked], chain.state, not chain.is_new)
    return [answers[each.job.id] for each in requests]


def _check_waits(store: Store, requests: Sequence[StartRequest]) -> Op[None]:
    """Check the types of blockers where the job type declares which ones it waits for."""
    for request in requests:
        if request.waits_for is not None and request.blockers:
            ids = sorted({edge.chain_id for edge in request.blockers})
            chains = yield from store.chains.get(ids)
            check_waits(request.job.type, request.waits_for, chains)


def _new(request: StartRequest, states: Mapping[str, State]) -> Started:
    unknown: State = "blocked" if request.blockers else "pending"
    state = states.get(request.job.id, unknown)
    return Started(request.job.id, request.job.type, state, False)


def _claim_keys(
    store: Store, requests: Sequence[StartRequest], now: Instant | None
) -> Op[set[str]]:
    """Claim the keys in one order everywhere, so that two producers of the same keys cannot deadlock."""
    winners: set[str] = set()
    for keys in _batches(each.key for each in requests if each.key is not None):
        winners |= yield from store.chains.claim_keys(keys, now)
    return winners


def _batches(keys: Iterable[NewKey]) -> list[list[NewKey]]:
    first = {(key.type, key.key): key for key in reversed(list(keys))}
    ordered = sorted(first.values(), key=lambda key: (key.scope, key.exclude, key.type, key.key))
    return [list(batch) for _, batch in groupby(ordered, lambda key: (key.scope, key.exclude))]


def _earlier(
    store: Store, requests: Sequence[StartRequest], written: set[str]
) -> Op[dict[str, Started]]:
    """Find the existing chains of requests that were not written: the key's holder, or the same id."""
    lost = [each for each in requests if each.job.id not in written]
    pairs = [(each.key.type, each.key.key) for each in lost if each.key is not None]
    holders = (yield from _holders(store, lost, pairs)) if pairs else {}
    existing = {
        each.job.id: holders.get((each.key.type, each.key.key), each.job.id)
        if each.key is not None
        else each.job.id
        for each in lost
    }
    tails = yield from store.chains.tails(sorted(set(existing.values())))
    yield from store.schema.confirm()
    states: dict[str, State] = {tail.chain_id: tail.state for tail in tails}
    held = set(holders.values())
    return {
        each.job.id: Started(
            existing[each.job.id],
            each.job.type,
            states.get(
                existing[each.job.id], "removed" if existing[each.job.id] in held else "pending"
            ),
            True,
        )
        for each in lost
    }


def _holders(
    store: Store, lost: Sequence[StartRequest], pairs: Sequence[tuple[str, str]]
) -> Op[dict[tuple[str, str], str]]:
    """Find who holds the keys; those that were asked for with scope `any` are kept from now on."""
    found = yield from store.chains.key_holders(pairs)
    forever = {
        (each.key.type, each.key.key)
        for each in lost
        if each.key is not None and each.key.scope == "any" and each.key.window_ms is None
    }
    to_keep = sorted(
        (each.type, each.key)
        for each in found
        if not each.kept and (each.type, each.key) in forever
    )
    if to_keep:
        yield from store.chains.keep_keys(to_keep)
    return {(each.type, each.key): each.chain_id for each in found}


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


class Publication(msgspec.Struct, frozen=True):
    """The jobs that deliver an event, or wait in its name, and whether it is in the log."""

    deliveries: list[NewJob]
    is_logged: bool


def publish_event(
    store: Store,
    event: NewJob,
    channel: str | None = None,
    now: Instant | None = None,
    is_declared: bool = False,
) -> Op[Publication]:
    """Append an event to the log and write its deliveries. Its `type` is its name, its `key` chooses its line.

    `is_declared` says that this process knows a reader of it, whether or not that is registered.
    """
    published = yield from store.log.publish(event, is_declared, channel, now)
    if published.is_logged and not published.subscriptions:
        return Publication([], True)
    job = event if event.key is None else msgspec.structs.replace(event, key=None)
    deliveries = _deliveries(job, published.subscriptions)
    yield from store.jobs.insert(deliveries, channel, now)
    return Publication(deliveries, published.is_logged)


def _deliveries(event: NewJob, subscriptions: Sequence[Subscription]) -> list[NewJob]:
    mine = [each.job_type for each in subscriptions if each.event == event.type]
    if not mine:
        return [event]
    jobs = []
    for job_type in mine:
        job_id = delivery_id(event.id, job_type)
        jobs.append(msgspec.structs.replace(event, id=job_id, chain_id=job_id, type=job_type))
    return jobs


def subscriptions_of(types: Iterable[JobType]) -> list[NewSubscription]:
    """Return the subscriptions of the types that handle events, with where a new one begins."""
    return [
        NewSubscription(
            each.event,
            each.name.removeprefix(f"{each.event}/"),
            None if each.since is None else id_at(each.since),
            each.keep_ms,
        )
        for each in types
        if each.event is not None
    ]


def on_failed_types(types: Iterable[JobType]) -> list[str]:
    """Return the types whose failed jobs are left to a worker that calls their `on_failed`."""
    return [each.name for each in types if each.on_failed is not None]


def subscribe_handlers(
    store: Store, subscriptions: Sequence[NewSubscription], now: Instant | None = None
) -> Op[list[Delivery]]:
    """Register subscriptions and deliver what was published before, one batch of each event.

    Concurrency: an event published meanwhile may still be written as waiting; `deliver_waiting` is repeated by workers.
    """
    yield from store.events.subscribe(subscriptions)
    yield from store.events.keep(subscriptions)
    deliveries = []
    for event in sorted({each.event for each in subscriptions}):
        deliveries.append((yield from deliver_waiting(store, event, now)))
    return deliveries


def deliver_waiting(store: Store, event: str, now: Instant | None = None) -> Op[Delivery]:
    """Deliver one batch of events that waited for a subscriber."""
    waiting = yield from store.events.waiting(event, FAN_OUT_BATCH)
    if not waiting:
        return NOTHING
    subscriptions = yield from store.events.subscriptions([event])
    if not subscriptions:
        return NOTHING
    jobs: list[NewJob] = []
    endings = []
    for each in waiting:
        published = NewJob(
            id=each.id,
            chain_id=each.id,
            type=event,
            input=each.input,
            priority=each.priority,
            at=each.planned_at,
            trace=each.trace,
            version=each.version,
            context=each.context,
        )
        deliveries = _deliveries(published, subscriptions)
        jobs += deliveries
        output = msgspec.json.encode({"delivered": [job.id for job in deliveries]}).decode()
        endings.append(Ending(each.id, "completed", output, fanned_out=True))
    yield from store.jobs.insert(jobs, now=now)
    end = yield from end_jobs(store, endings, now)
    return Delivery(len(waiting), tuple(each.job_type for each in subscriptions), end)


MAX_SUBSCRIPTIONS = 10_000


class RemovedSubscription(msgspec.Struct, frozen=True):
    """A removed subscription: its jobs that have not ended, and the event's other handlers."""

    event: str
    handler: str
    type: str
    live: int
    others: list[str]


def no_such_subscription(
    wanted: Subscription, known: Iterable[Subscription]
) -> SubscriptionNotFound:
    """Return the refusal of a handler that does not subscribe, with the one that was probably meant."""
    near = nearest(wanted.job_type, [each.job_type for each in known])
    return SubscriptionNotFound(
        f"no handler {wanted.handler[:60]!r} subscribes to {wanted.event[:60]!r}",
        help=near.replace("/", " ") or None,
    )


def remove_subscription(store: Store, event: str, handler: str) -> Op[Change[RemovedSubscription]]:
    """Stop delivering an event to a handler; what was delivered stays. Raises: SubscriptionNotFound."""
    removed = yield from store.events.unsubscribe([Subscription(event, handler)])
    if not removed:
        known = yield from store.events.page(MAX_SUBSCRIPTIONS)
        raise no_such_subscription(Subscription(event, handler), known)
    (was,) = removed
    left = yield from store.events.subscriptions([event])
    totals = yield from store.workers.type_totals()
    live = next((each.live for each in totals if each.type == was.job_type), 0)
    others = [each.handler for each in left]
    answer = RemovedSubscription(event, handler, was.job_type, live, others)
    return Change(answer, [Effect(f"subscription {was.job_type}", was)])

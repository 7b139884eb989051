"""Starting chains: keys first, then jobs, then blockers, all in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import msgspec

from holdfast.commands.blockers import attach_blockers, check_blockers, check_waits
from holdfast.core.records import ChainState, Instant, NewBlocker, NewJob, NewKey, State
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


class StartRequest(msgspec.Struct, frozen=True):
    """One chain to be started: its first job, and what it waits for."""

    job: NewJob
    key: NewKey | None = None
    blockers: tuple[NewBlocker, ...] = ()
    waits_for: tuple[str, ...] | None = None
    is_new: bool = False
    """Whether the id was made for this very start, so that no job can have it already."""


class Started(msgspec.Struct, frozen=True):
    """A chain as its start left it; `deduplicated` when an earlier one, maybe long removed, stands for it."""

    id: str
    type: str
    state: ChainState
    deduplicated: bool


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
        if requests[0].is_new:
            yield from store.jobs.insert_new(requests[0].job, channel, now)
            return [_new(requests[0], {})]
        written = yield from store.jobs.insert([requests[0].job], channel, now)
        if written:
            return [_new(requests[0], {})]
        earlier = yield from _earlier(store, requests, written)
        return list(earlier.values())
    edges = [edge for request in requests for edge in request.blockers]
    if edges:
        yield from check_blockers(store, edges)
        yield from _check_waits(store, requests)
    winners = yield from _claim_keys(store, requests, now)
    fresh = [each for each in requests if each.key is None or each.job.id in winners]
    written = set()
    if fresh:
        written = yield from store.jobs.insert([each.job for each in fresh], channel, now)
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


def _check_waits(store: Store, requests: Sequence[StartRequest]) -> Op[None]:
    """Look at the types of blockers where a job type says which ones it waits for."""
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
    """Find the chains that stand for requests that were not written: the key's holder, or the same id."""
    lost = [each for each in requests if each.job.id not in written]
    pairs = [(each.key.type, each.key.key) for each in lost if each.key is not None]
    holders = (yield from _holders(store, lost, pairs)) if pairs else {}
    stands_for = {
        each.job.id: holders.get((each.key.type, each.key.key), each.job.id)
        if each.key is not None
        else each.job.id
        for each in lost
    }
    tails = yield from store.chains.tails(sorted(set(stands_for.values())))
    states: dict[str, State] = {tail.chain_id: tail.state for tail in tails}
    held = set(holders.values())
    return {
        each.job.id: Started(
            stands_for[each.job.id],
            each.job.type,
            states.get(
                stands_for[each.job.id], "removed" if stands_for[each.job.id] in held else "pending"
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

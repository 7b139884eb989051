"""Removing what is old enough: whole chains with all that belongs to them, in bounded batches, oldest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.core.ids import id_at, instant_of
from holdfast.core.instants import Instant
from holdfast.core.lifecycle import TerminalState
from holdfast.core.registry import JobType
from holdfast.core.statistics import RetentionProgress
from holdfast.settings import Settings
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.storage.store.retention import EndedChain, KeepRule

FIRST_ID = "00000000-0000-0000-0000-000000000000"

_DAY_US = 86_400_000_000
_MINUTE_US = 60_000_000
_NEVER: Instant = 0
"""Nothing ended before this."""

_RATE_US = 600_000_000
_MAX_WAITING = 10_000
"""Old jobs that still wait are counted up to here: they are no backlog."""

SILENT_ARCHIVE_DAYS = 7
"""An archive that verified nothing for so long, beyond the age of what retention removes, is given up."""


class Ages(msgspec.Struct, frozen=True):
    """How many days things are kept; 0 keeps completed and cancelled chains, and keys that outlive them, forever."""

    chains: int
    dead_letters: int
    runs: int
    keys: int = 0


def ages_of(settings: Settings) -> Ages:
    """Return the ages that the settings give."""
    own = settings.holdfast
    return Ages(own.retention_days, own.dead_letter_days, own.run_days, own.key_days)


class RetentionPage(msgspec.Struct, frozen=True):
    """One batch: how many chains were scanned and removed, and where the next begins."""

    seen: int
    removed: int
    last: str


def remove_chains(
    store: Store, ages: Ages, after: str, limit: int, now: Instant | None = None
) -> Op[RetentionPage]:
    """Remove those of the next `limit` completed or cancelled chains that are old enough and that no job needs."""
    instant = yield from store.schema.clock(now)
    before = instant - ages.chains * _DAY_US
    found = yield from store.retention.page(after, id_at(before), limit)
    if not found:
        return RetentionPage(0, 0, after)
    held = yield from store.retention.hold(found, before, _NEVER, now)
    removed = yield from _remove(store, held, instant, ("completed", "cancelled"), now)
    return RetentionPage(len(found), removed, found[-1])


def remove_dead_letters(
    store: Store, ages: Ages, after: str, limit: int, now: Instant | None = None
) -> Op[RetentionPage]:
    """Remove those of the chains of the next `limit` failed jobs that are old enough and that no job depends on.

    A walk of its own, because dead letters may be kept for a shorter time than all the completed chains around them.
    """
    instant = yield from store.schema.clock(now)
    dead_before = instant - ages.dead_letters * _DAY_US
    found = yield from store.retention.dead_page(after, id_at(dead_before), limit)
    if not found:
        return RetentionPage(0, 0, after)
    chains = sorted({each.chain_id for each in found})
    held = yield from store.retention.hold(chains, _NEVER, dead_before, now)
    return RetentionPage(
        len(found), (yield from _remove(store, held, instant, ("failed",), now)), found[-1].id
    )


def declare_keeps(store: Store, types: Iterable[JobType]) -> Op[None]:
    """Set how long chains of these types are kept, where their code says so."""
    handled = {each.name: each.keep for each in types if each.handler is not None}
    wanted = [KeepRule(type, *each) for type, keep in handled.items() for each in keep or ()]
    known = yield from store.keeps.rules()
    own = {(each.type, each.state, each.keep_ms) for each in known if each.type in handled}
    if own != {(each.type, each.state, each.keep_ms) for each in wanted}:
        yield from store.keeps.set(sorted(handled), wanted)


def remove_by_rule(
    store: Store, rule: KeepRule, limit: int, now: Instant | None = None
) -> Op[RetentionPage]:
    """Remove chains of a type that is kept for a time of its own, oldest end first; `seen` 0 means done.

    What a job still needs then goes with the chains that no rule is about.
    """
    instant = yield from store.schema.clock(now)
    # A transaction that ends a job may commit a little after the moment that it wrote.
    end = instant - rule.keep_ms * 1000 - _MINUTE_US
    since = rule.swept_until
    if since is None:
        oldest = yield from store.keeps.oldest()
        since = end if oldest is None else instant_of(oldest) * 1000
    if since >= end:
        return RetentionPage(0, 0, "")
    # A minute has few enough ends to be sorted; where there are none, the next look reaches twice as far.
    found, span, until = list[EndedChain](), _MINUTE_US, since
    while not found and until < end:
        since, until, span = until, min(end, until + span), 2 * span
        found = yield from store.keeps.ended_page(rule, since, until, limit)
    cut = (_NEVER, until) if rule.state == "failed" else (until, _NEVER)
    held = yield from store.retention.hold([each.id for each in found], *cut, now)
    removed = yield from _remove(store, held, instant, (), now)
    if len(found) == limit:
        # Those that ended at the same moment are read again, unless all of these are needed.
        until = found[-1].ended_at + (removed == 0)
    yield from store.keeps.sweep(rule, until)
    return RetentionPage(0 if until == end else 1, removed, "")


def _remove(
    store: Store,
    held: Sequence[str],
    instant: Instant,
    states: Sequence[TerminalState],
    now: Instant | None,
) -> Op[int]:
    """Remove the held chains, which ended in one of the states, that nothing needs any more; return how many."""
    if not held:
        return 0
    waited = yield from store.retention.waited(held)
    kept = yield from _find_kept(store, held, instant, states)
    doomed = [each for each in held if each not in waited and each not in kept]
    if doomed:
        yield from store.chains.delete(doomed, now, keep_keys=True)
    return len(doomed)


def _find_kept(
    store: Store, chains: Sequence[str], now: Instant, states: Sequence[TerminalState]
) -> Op[set[str]]:
    """Return those of the chains that are kept longer: deliveries of an event, or as their type says."""
    spans = {each.event: each.keep_ms for each in (yield from store.events.kept())}
    for rule in (yield from store.keeps.rules()) if states else ():
        if rule.state in states:
            spans[rule.type] = max(rule.keep_ms, spans.get(rule.type, 0))
    if not spans:
        return set()
    types = yield from store.retention.types(chains)
    ages = {id: now // 1000 - instant_of(id) for id in types}
    return {id for id, type in types.items() if ages[id] < spans.get(type.partition("/")[0], 0)}


def chains_are_archived(store: Store, ages: Ages, now: Instant | None = None) -> Op[bool]:
    """Return whether ended chains were archived so lately that what retention would remove may not be archived yet."""
    latest = yield from store.retention.latest_archived()
    if latest is None:
        return False
    instant = yield from store.schema.clock(now)
    days = ages.chains or ages.dead_letters
    return instant - latest < (days + SILENT_ARCHIVE_DAYS) * _DAY_US


def read_progress(
    store: Store, ages: Ages, now: Instant | None = None
) -> Op[RetentionProgress | None]:
    """Estimate what retention has left to do; None where it removes no chains."""
    if not ages.chains or (yield from chains_are_archived(store, ages, now)):
        return None
    instant = yield from store.schema.clock(now)
    until = instant - ages.chains * _DAY_US
    # The tally's steps are days once they are eight days old, and hours before.
    step_us = _DAY_US if ages.chains >= 8 else _DAY_US // 24
    backlog, removed = yield from store.retention.progress(
        id_at(until), until - step_us, instant - _RATE_US, _MAX_WAITING
    )
    return RetentionProgress(backlog, removed * 1_000_000 / _RATE_US)


def remove_records(store: Store, ages: Ages, limit: int, now: Instant | None = None) -> Op[int]:
    """Remove old runs, slots, workers, keys, redrives and signals; return how many rows went."""
    instant = yield from store.schema.clock(now)
    before = instant - ages.runs * _DAY_US
    runs = yield from store.retention.drop_runs(id_at(before), limit)
    slots = yield from store.retention.drop_slots(before, limit)
    workers = yield from store.retention.drop_workers(before, limit)
    keys = 0
    if ages.keys:
        keys = yield from store.retention.drop_keys(instant - ages.keys * _DAY_US, limit)
    dead_before = instant - ages.dead_letters * _DAY_US
    redrives = yield from store.retention.drop_redrives(id_at(dead_before), limit)
    signals = yield from store.retention.drop_signals(limit, instant)
    return runs + slots + workers + keys + redrives + signals

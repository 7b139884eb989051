"""Checks of limits: keys that are full for long, ordered keys that wait for a dead letter, code that disagrees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from holdfast.commands.limits import LimitFacts, partition_words, read_declared, read_limits
from holdfast.core.declared_limits import declared_in
from holdfast.core.duration import format_span, pluralize
from holdfast.core.instants import Instant
from holdfast.core.partitions import HeldQueue, split_partition
from holdfast.core.worker_presence import WorkerRecord
from holdfast.scheduler.doctor import Finding, ok, warning
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

LONG_US = 600_000_000
"""Ten leases of the usual length: a key that was full for so long does not keep up."""

_MANY = 1_000


class LimitState(msgspec.Struct, frozen=True):
    """The limits at one moment; `held` are ordered keys that wait for a dead letter."""

    now: Instant
    limits: list[LimitFacts]
    held: list[HeldQueue]


def read_limit_state(store: Store) -> Op[LimitState]:
    """Read everything that the checks need; nothing is written."""
    declared = yield from read_declared(store)
    limits = (yield from read_limits(store)) if declared else []
    holding = sorted(name for name, each in declared.items() if each.ordered == "hold")
    held = (yield from store.limits.held(holding, _MANY)) if holding else []
    return LimitState((yield from store.schema.clock()), limits, held)


def check_limits(state: LimitState, workers: Sequence[WorkerRecord]) -> list[Finding]:
    """Check what was read."""
    return [_check_agreement(workers), _check_full(state), _check_held(state)]


def _check_agreement(workers: Sequence[WorkerRecord]) -> Finding:
    said: dict[str, set[str]] = defaultdict(set)
    for worker in workers:
        declared = declared_in(worker)
        for type in worker.types:
            said[type].add(declared[type].words if type in declared else "none")
    limited = [type for type, words in said.items() if words != {"none"}]
    differing = sorted(type for type in limited if len(said[type]) > 1)
    if not differing:
        return ok("limits", f"{pluralize(len(limited), 'job type')} limited")
    first = differing[0]
    return warning(
        "limits",
        f"{first}: {' or '.join(sorted(said[first]))}",
        "live workers have different limits in code; until they agree, the larger one may apply",
        "deploy the same code to all workers: holdfast workers list",
    )


def _check_full(state: LimitState) -> Finding:
    full = [
        each
        for each in state.limits
        if each.is_full and each.oldest_at is not None and state.now - each.oldest_at > LONG_US
    ]
    resting = [each for each in state.limits if each.is_paused]
    if not full:
        paused = f", {pluralize(len(resting), 'key')} paused" if resting else ""
        return ok("full_keys", f"no key has been full for long{paused}")
    worst = min(full, key=lambda each: each.oldest_at or state.now)
    waited = format_span(state.now - (worst.oldest_at or state.now))
    if worst.is_paused:
        return _check_paused(worst, len(resting), state.now)
    return warning(
        "full_keys",
        f"{pluralize(len(full), 'key')} full; {worst.type} {worst.key} for {waited}",
        "jobs for these keys arrive faster than their limits allow",
        f"holdfast limits list {worst.type} --full; "
        f"holdfast limits set {worst.type} --key {worst.key} --limit N",
    )


def _check_paused(key: LimitFacts, count: int, now: Instant) -> Finding:
    left = format_span((key.paused_until or now) - now)
    why = f": {key.reason}" if key.reason else ""
    return warning(
        "full_keys",
        f"{pluralize(count, 'key')} paused; {key.type} {key.key} for {left} more{why}",
        "jobs for these keys have been waiting a long time, because a handler or an operator paused them",
        f"holdfast limits rest {key.type} --key {key.key} 0s",
    )


def _check_held(state: LimitState) -> Finding:
    if not state.held:
        return ok("ordered_keys", "no ordered key is waiting for a dead letter")
    first = state.held[0]
    type = split_partition(first.gate)[0]
    since = format_span(state.now - first.since)
    return warning(
        "ordered_keys",
        f"{pluralize(len(state.held), 'key')}; {partition_words(first.gate)} for {since}",
        "a job of each of these keys failed; the jobs behind it wait until it is redriven or dropped",
        f"holdfast dead list type:{type}; holdfast dead redrive {first.job_id}",
    )

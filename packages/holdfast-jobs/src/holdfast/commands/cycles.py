"""Slots of cycles from claim to end, and commands on cycles: pause, resume, run now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.commands.change import Change, Effect
from holdfast.core.cycle import (
    REQUESTED,
    CycleRecord,
    CycleSpec,
    HeldSlot,
    NewRun,
    RunOutcome,
    Slot,
    new_cycles,
)
from holdfast.core.errors import CycleNotFound, ScheduleError, nearest
from holdfast.core.instants import Instant
from holdfast.core.schedule import parse_schedule
from holdfast.notify.base import cycle_hint
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


def begin_slot(
    store: Store, run: NewRun, slot: Slot, token: str, lease_ms: int, now: Instant | None = None
) -> Op[HeldSlot | None]:
    """Claim a slot and record its run in one transaction; None when the slot is not to be had now."""
    held = yield from store.slots.claim(run.name, slot, token, run.id, lease_ms, now)
    if held is None:
        return None
    left_behind = yield from store.slots.abandon(held, now)
    yield from store.runs.mark_crashed(run, [slot.name, *left_behind])
    yield from store.runs.begin(run, now)
    return held


def renew_slot(
    store: Store, held: HeldSlot, lease_ms: int, counters: str, now: Instant | None = None
) -> Op[bool]:
    """Extend a slot's lease and give a sign of its run; False when the slot is lost."""
    kept = yield from store.slots.renew(held, lease_ms, now)
    if kept:
        yield from store.runs.touch(held.run_id, counters, now)
    return kept


def complete_slot(
    store: Store, held: HeldSlot, counters: str, now: Instant | None = None
) -> Op[bool]:
    """End a slot for good; False, with its run recorded as aborted, when the slot was lost."""
    accepted = yield from store.slots.complete(held, now)
    if not accepted:
        error = "the slot was lost before the run ended"
        yield from store.runs.finish(held.run_id, "aborted", counters, error, now)
        return False
    yield from _decide(store, held)
    yield from store.runs.finish(held.run_id, "completed", counters, None, now)
    return True


def fail_slot(
    store: Store,
    held: HeldSlot,
    outcome: RunOutcome,
    counters: str,
    error: str,
    pause_ms: int | None,
    now: Instant | None = None,
) -> Op[bool]:
    """End a run without success: its slot may run again after the pause; without a pause it is decided.

    False, with the run recorded all the same, when the slot was lost.
    """
    accepted = yield from store.slots.fail(held, pause_ms, now)
    if accepted and pause_ms is None:
        yield from _decide(store, held)
    yield from store.runs.finish(held.run_id, outcome, counters, error, now)
    return accepted


def late_us(cycle: CycleRecord, now: Instant) -> int:
    """Return how long a cycle's next slot has been due without a run; 0 for one that every replica runs for itself."""
    if cycle.paused or cycle.running_slot is not None or not cycle.singleton:
        return 0
    try:
        due_at = parse_schedule(cycle.schedule, cycle.zone).next_after(cycle.last_slot)
    except ScheduleError:
        # A newer version may have registered a form that this one does not know.
        return 0
    return max(0, now - due_at)


def _decide(store: Store, held: HeldSlot) -> Op[None]:
    if not held.slot.requested:
        yield from store.cycles.advance(held.cycle, held.slot)


def pause_cycle(store: Store, name: str, paused: bool, by: str | None) -> Op[Change[list[str]]]:
    """Pause or resume a cycle with all its shards. Raises: CycleNotFound."""
    was = {each.name: each.paused for each in (yield from store.cycles.page())}
    names = yield from store.cycles.pause(name, paused, by)
    if not names:
        raise no_such_cycle(name, was)
    effects = [
        Effect(f"cycle {each}", {"paused": was.get(each)}, {"paused": paused}) for each in names
    ]
    return Change(names, effects, [] if paused else [cycle_hint(name)])


def request_cycle(
    store: Store, name: str, request_id: str, declared: Mapping[str, CycleSpec] = {}
) -> Op[Change[list[str]]]:
    """Have the next tick of any worker run a cycle, paused or not. Raises: CycleNotFound.

    One that is declared here and that no tick has registered yet is registered, so that the first tick runs it. Of one
    with shards only the workers know how many there are.
    """
    names = yield from store.cycles.request(name, f"{REQUESTED}{request_id}")
    if not names and name in declared and not declared[name].sharded:
        yield from store.cycles.register(new_cycles({name: declared[name]}))
        names = yield from store.cycles.request(name, f"{REQUESTED}{request_id}")
    if not names:
        raise no_such_cycle(name, [each.name for each in (yield from store.cycles.page())])
    effects = [Effect(f"cycle {each}", None, {"run": "now"}) for each in names]
    return Change(names, effects, [cycle_hint(name)])


def shards_of(name: str, known: Iterable[str]) -> list[str]:
    """Return the cycle of a name, or all its shards. Raises: CycleNotFound."""
    names = list(known)
    found = [each for each in names if each == name or each.startswith(f"{name}:")]
    if not found:
        raise no_such_cycle(name, names)
    return found


def no_such_cycle(name: str, known: Iterable[str]) -> CycleNotFound:
    """Return the refusal of a cycle that no worker registered, with the name that was probably meant."""
    near = nearest(name, {each: None for one in known for each in (one, one.partition(":")[0])})
    return CycleNotFound(f"there is no cycle {name[:60]!r}", help=near or None)

"""Starts the jobs of due schedules.

Taking due schedules, starting their jobs, recording the slots and moving the schedules on are one transaction: a
process that dies in the middle leaves all of them as they were, and another one takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.client.start_plan import StartPlan, created_event
from holdfast.client.start_targets import StartableType, Targets
from holdfast.client.views import Chain, new_chain
from holdfast.commands.change import Change, Effect, due_hints
from holdfast.commands.start import Started, StartRequest, start_chains
from holdfast.core.cycle import GRACE_MS, CatchUp, due_slots, jitter_us
from holdfast.core.errors import HoldfastError, words_of
from holdfast.core.ids import bucket_of_key, in_bucket
from holdfast.core.instants import Instant, to_datetime
from holdfast.core.lifecycle import TERMINAL
from holdfast.core.redaction import clean_error
from holdfast.core.schedule import Schedule, parse_schedule
from holdfast.core.sealing import Sealer
from holdfast.storage.after_commit import Witness
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast_schedules.schedule_plan import clear_input
from holdfast_schedules.schedule_store import SCHEDULES, DecidedSlot, MovedSchedule, ScheduleRecord

KEY_PREFIX = "schedule:"
TRY_AGAIN_US = 60_000_000


class ScheduledFor(msgspec.Struct, frozen=True):
    """Which schedule a job was started by, and for which due time."""

    name: str
    slot: datetime


def slot_of(job: Any) -> ScheduledFor | None:
    """Return the schedule and the due time that a job was started for; None for any other job."""
    key: str = job.key or ""
    name, at, slot = key.removeprefix(KEY_PREFIX).rpartition("@")
    if not key.startswith(KEY_PREFIX) or not at:
        return None
    return ScheduledFor(name, datetime.fromisoformat(slot))


def slot_key(name: str, slot: Instant) -> str:
    """Return the key of the job of a slot."""
    moment = to_datetime(slot).replace(tzinfo=None)
    return f"{KEY_PREFIX}{name}@{moment.isoformat()}Z"


class Fired(msgspec.Struct):
    """What came of taking due schedules: how many there were, and what was done for their slots."""

    taken: int = 0
    started: int = 0
    skipped: int = 0
    missed: int = 0
    refused: int = 0
    late_us: int = 0
    errors: dict[str, str] = msgspec.field(default_factory=dict)


def fire_due(
    store: Store,
    targets: Targets,
    sealer: Sealer | None,
    type: str,
    limit: int,
    has_observers: bool = True,
) -> Op[Change[Fired]]:
    """Start the jobs of due schedules of a type.

    Concurrency: processes that do so at the same time take different schedules.
    Raises: UnknownJobType, InvalidOption for a type that cannot be started here.
    """
    entry = targets.entry(type)
    taken = yield from SCHEDULES.take(type, limit)
    if not taken:
        return Change(Fired())
    running = yield from _running_jobs(store, taken)
    plans = [SlotPlan(each, entry, sealer, running) for each in taken]
    new = yield from SCHEDULES.decide([slot for plan in plans for slot in plan.slots])
    requests = [each for plan in plans for each in plan.requests_among(new)]
    started = (yield from start_chains(store, requests)) if requests else []
    yield from SCHEDULES.move([plan.make_move(new) for plan in plans])
    fired = _count(plans, new)
    return _change(fired, started, has_observers)


def fire_now(
    store: Store, targets: Targets, sealer: Sealer | None, schedule: ScheduleRecord
) -> Op[Change[Chain]]:
    """Start a job of a schedule that the caller has locked, whatever its times say. Raises: as a start."""
    entry, now = targets.entry(schedule.type), schedule.now
    request = make_request(schedule, entry, sealer, now)
    decided = DecidedSlot(schedule.name, now, "started", True, request.job.id, None)
    yield from SCHEDULES.decide([decided])
    started = yield from start_chains(store, [request])
    moved = MovedSchedule(
        schedule.name, schedule.next_at, schedule.last_slot or now, request.job.id, None
    )
    yield from SCHEDULES.move([moved])
    chain = new_chain(started[0], request.job.key, request.clear_input)
    effect = Effect(f"schedule {schedule.name}", None, {"job": str(chain.id)})
    return _change(chain, started, True, [effect])


def make_request(
    schedule: ScheduleRecord,
    entry: StartableType,
    sealer: Sealer | None,
    slot: Instant,
    jitter_ms: int = 0,
) -> StartRequest:
    """Return the start of a slot's job. Raises: InputInvalid, SealError."""
    key = slot_key(schedule.name, slot)
    own = msgspec.structs.replace(
        entry, version=schedule.version, sealed=entry.sealed or schedule.sealed
    )
    jitter = jitter_us(schedule.name, slot, jitter_ms)
    plan = StartPlan(
        entry=own,
        priority=schedule.priority,
        max_attempts=schedule.max_attempts,
        at=slot + jitter if jitter else None,
        context=schedule.context,
    )
    id = in_bucket(new_id(), bucket_of_key(key))
    request = plan.request(id, key, clear_input(schedule, sealer))
    # The key says where the job comes from. The record of the slot starts no second one; the key need not be claimed.
    return StartRequest(request.job, unsealed=request.unsealed, expiry=request.expiry)


class SlotPlan:
    """What is due of a schedule that was taken: its slots, their jobs, and where it goes on."""

    def __init__(
        self,
        schedule: ScheduleRecord,
        entry: StartableType,
        sealer: Sealer | None,
        running: set[str],
    ) -> None:
        self.schedule = schedule
        self.slots: list[DecidedSlot] = []
        self._requests: dict[Instant, StartRequest] = {}
        self._entry, self._sealer = entry, sealer
        self._last_job = schedule.last_job
        self._is_running = schedule.last_job in running
        try:
            due, self._next_at = due_and_next(schedule)
        except HoldfastError as error:
            # As where this machine does not know the time zone: another one may.
            self.slots.append(self._refuse(schedule.next_at, error))
            self._next_at = schedule.now + TRY_AGAIN_US
            return
        for slot in due:
            self.slots.append(self._decide(slot))
        if not due:
            missed = _latest(schedule)
            self.slots.append(DecidedSlot(schedule.name, missed, "missed", False, None, None))

    def make_move(self, new: set[tuple[str, Instant]]) -> MovedSchedule:
        """Return where the schedule goes on; its last job stays where none of its slots is new."""
        last, own = self.slots[-1], self.schedule
        jobs = [each.job.id for each in self.requests_among(new)]
        return MovedSchedule(
            own.name, self._next_at, last.slot, jobs[-1] if jobs else None, last.error
        )

    def requests_among(self, new: set[tuple[str, Instant]]) -> list[StartRequest]:
        """Return the starts of slots that were not decided before."""
        return [each for slot, each in self._requests.items() if (self.schedule.name, slot) in new]

    def _decide(self, slot: Instant) -> DecidedSlot:
        own = self.schedule
        if own.overlap == "skip" and self._is_running:
            return DecidedSlot(own.name, slot, "skipped", False, self._last_job, None)
        try:
            request = make_request(own, self._entry, self._sealer, slot, own.jitter_ms)
        except Exception as error:
            # Also what the application's own code raises that says where a job waits, or what it costs.
            return self._refuse(slot, error)
        self._requests[slot] = request
        self._last_job, self._is_running = request.job.id, True
        return DecidedSlot(own.name, slot, "started", False, request.job.id, None)

    def _refuse(self, slot: Instant, error: Exception) -> DecidedSlot:
        known = isinstance(error, HoldfastError)
        text = str(error) if known else clean_error(type(error).__name__, words_of(error))
        return DecidedSlot(self.schedule.name, slot, "refused", False, None, text[:2_000])


def due_and_next(schedule: ScheduleRecord) -> tuple[list[Instant], Instant]:
    """Return the slots of a due schedule that are to be started, by its policy for missed ones, and the next one."""
    text, zone, now = schedule.schedule, schedule.zone, schedule.now
    missed, first = CatchUp.parse(schedule.missed), schedule.next_at
    following = next_slot(text, zone, first)
    if following > now:
        # As nearly always; the search for what else was missed takes as long as all the rest.
        is_wanted = missed.slots > 0 or now - first <= GRACE_MS * 1000
        return ([first] if is_wanted else []), following
    # The last slot that was decided lies before the first that is due.
    return due_slots(_parse(text, zone), first - 1, now, missed), next_slot(text, zone, now)


@lru_cache(maxsize=4_096)
def next_slot(schedule: str, zone: str, after: Instant) -> Instant:
    """Return the first slot after an instant; thousands of schedules have the same times."""
    return _parse(schedule, zone).next_after(after)


@lru_cache(maxsize=4_096)
def _parse(schedule: str, zone: str) -> Schedule:
    return parse_schedule(schedule, zone)


def _latest(schedule: ScheduleRecord) -> Instant:
    times = _parse(schedule.schedule, schedule.zone)
    return times.latest_between(schedule.next_at - 1, schedule.now, 1)[-1]


def _running_jobs(store: Store, taken: Sequence[ScheduleRecord]) -> Op[set[str]]:
    """Read which of the last jobs have not ended, where that matters."""
    ids = [each.last_job for each in taken if each.overlap == "skip" and each.last_job]
    if not ids:
        return set()
    tails = yield from store.chains.tails(sorted(ids))
    return {each.chain_id for each in tails if each.state not in TERMINAL}


def _count(plans: Sequence[SlotPlan], new: set[tuple[str, Instant]]) -> Fired:
    fired = Fired(len(plans))
    for plan in plans:
        own = plan.schedule
        fired.late_us = max(fired.late_us, own.late_us)
        for slot in plan.slots:
            if (own.name, slot.slot) in new:
                setattr(fired, slot.state, getattr(fired, slot.state) + 1)
            if slot.error is not None:
                fired.errors[own.name] = slot.error
    return fired


def _change(
    answer: Any, started: Sequence[Started], has_observers: bool, effects: Sequence[Effect] = ()
) -> Change[Any]:
    types = {each.type for each in started}
    events = [created_event(each.id, each.type) for each in started] if has_observers else ()
    witness = Witness(started[0].id, "there") if started else None
    return Change(answer, effects, due_hints(types), events, witness)

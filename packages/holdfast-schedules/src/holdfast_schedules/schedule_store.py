"""Schedules and their slots over named statements. Without state, for both dialects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.core.errors import Refused
from holdfast.core.instants import Instant
from holdfast.core.schedule import Schedule, parse_schedule
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.params import (
    count_rows,
    document,
    fetch,
    fetch_column,
    fetch_one,
    has_rows,
)

Overlap = Literal["start", "skip"]
SlotState = Literal["started", "skipped", "missed", "refused"]

LATE_MS = 60_000
"""A schedule whose slot was due so long ago is late."""


class NewSchedule(msgspec.Struct, frozen=True):
    """A schedule as it is set."""

    name: str
    type: str
    input: str
    schedule: str
    zone: str
    missed: str
    overlap: str
    jitter_ms: int
    priority: int
    max_attempts: int | None
    version: int | None
    sealed: bool
    context: str | None

    @property
    def parsed(self) -> Schedule:
        """Its slots. Raises: InvalidSchedule."""
        return parse_schedule(self.schedule, self.zone)


class ScheduleRecord(NewSchedule, frozen=True):
    """A schedule as it was at `now`: what was set, and its state."""

    next_at: Instant
    paused: bool
    paused_by: str | None
    paused_at: Instant | None
    last_slot: Instant | None
    last_job: str | None
    error: str | None
    created_at: Instant
    changed_at: Instant
    now: Instant

    @property
    def late_us(self) -> int:
        """How long its next slot has been due; 0 for one that is paused or not due yet."""
        return 0 if self.paused else max(0, self.now - self.next_at)

    @property
    def is_late(self) -> bool:
        """Whether a slot was due a while ago."""
        return self.late_us > LATE_MS * 1000


class DecidedSlot(msgspec.Struct, frozen=True):
    """What became of a slot; `job_id` is the job that was started, or the one that still runs instead."""

    schedule: str
    slot: Instant
    state: SlotState
    requested: bool
    job_id: str | None
    error: str | None


class SlotRecord(DecidedSlot, frozen=True):
    """A slot that was decided, and when."""

    decided_at: Instant


class MovedSchedule(msgspec.Struct, frozen=True):
    """A schedule's next slot, and the last one with its job."""

    name: str
    next_at: Instant
    last_slot: Instant
    last_job: str | None
    error: str | None


class Head(msgspec.Struct, frozen=True):
    """When the first schedule of a type is due, as read at `now`."""

    type: str
    next_at: Instant
    now: Instant


class ScheduleTotals(msgspec.Struct, frozen=True):
    """The schedules of a type, counted at `now`."""

    type: str
    count: int
    paused: int
    late: int
    refused: int
    next_at: Instant | None
    now: Instant


class SchedulePage(msgspec.Struct, frozen=True):
    """What is listed: schedules after a name, of a prefix, a type or a state."""

    limit: int = 50
    after: str = ""
    prefix: str | None = None
    type: str | None = None
    paused: bool | None = None
    late: bool = False


class ScheduleStore:
    """Operations on schedules."""

    def put(self, schedule: NewSchedule, next_at: Instant) -> Op[ScheduleRecord]:
        """Set a schedule; its next slot stays unless the schedule has changed. One statement.

        Raises: Refused for one that is outside the context to which the caller is confined.
        """
        fields = msgspec.structs.asdict(schedule)
        found = yield from fetch_one(
            ScheduleRecord, "schedule_put", **fields, next_at=next_at, now=None
        )
        if found is None:
            raise Refused(
                f"the name {schedule.name[:60]!r} cannot be used",
                rule="names are shared by all contexts",
            )
        return found

    def get(self, name: str) -> Op[ScheduleRecord | None]:
        """Read a schedule. One statement."""
        return fetch_one(ScheduleRecord, "schedule_get", name=name, now=None)

    def lock(self, name: str) -> Op[ScheduleRecord | None]:
        """Read a schedule, and let no other process start its slots before the end of this transaction."""
        return fetch_one(ScheduleRecord, "schedule_lock", name=name, now=None)

    def page(self, page: SchedulePage) -> Op[list[ScheduleRecord]]:
        """Read schedules in the order of their names. One statement."""
        return fetch(
            ScheduleRecord,
            "schedule_list",
            limit=page.limit,
            after=page.after,
            prefix=page.prefix or None,
            type=page.type or None,
            paused=page.paused,
            late_ms=LATE_MS if page.late else None,
            now=None,
        )

    def near(self, name: str) -> Op[list[str]]:
        """Read names that begin alike. One statement."""
        return fetch_column("schedule_near", name=name)

    def pause(self, name: str, paused: bool, by: str | None, next_at: Instant) -> Op[bool]:
        """Pause a schedule, or resume it with its next slot; False if it is so already. One statement."""
        return has_rows(
            "schedule_pause", name=name, paused=paused, by=by, next_at=next_at, now=None
        )

    def delete(self, name: str) -> Op[bool]:
        """Remove a schedule and what is recorded of its slots."""
        yield Statement("schedule_slots_delete", {"name": name})
        return (yield from has_rows("schedule_delete", name=name))

    def heads(self) -> Op[list[Head]]:
        """Read when the first schedule of each type is due; none while everything is paused. One statement."""
        return fetch(Head, "schedule_heads", now=None)

    def take(self, type: str, limit: int) -> Op[list[ScheduleRecord]]:
        """Lock due schedules of a type for this transaction; those that others have locked are left out."""
        return fetch(ScheduleRecord, "schedule_take", type=type, limit=limit, now=None)

    def move(self, moved: Sequence[MovedSchedule]) -> Op[None]:
        """Move schedules that this transaction has locked to their next slots. One statement."""
        yield Statement("schedule_move", {"rows": document(moved)})

    def decide(self, slots: Sequence[DecidedSlot]) -> Op[set[tuple[str, Instant]]]:
        """Record slots; return those that were not decided before. One statement."""
        rows = yield Statement("schedule_slot_put", {"rows": document(slots), "now": None})
        return {(row[0], row[1]) for row in rows}

    def slots(self, name: str, limit: int) -> Op[list[SlotRecord]]:
        """Read the latest slots of a schedule, newest first. One statement."""
        return fetch(SlotRecord, "schedule_slot_list", name=name, limit=limit)

    def trim(self, keep_ms: int, limit: int) -> Op[int]:
        """Remove some slots that were decided long ago; return how many. One statement."""
        return count_rows("schedule_slot_trim", keep_ms=keep_ms, limit=limit, now=None)

    def totals(self) -> Op[list[ScheduleTotals]]:
        """Count the schedules of each type. One statement, over all of them."""
        return fetch(ScheduleTotals, "schedule_totals", late_ms=LATE_MS, now=None)


SCHEDULES = ScheduleStore()

_CUT = ("get", "lock", "list", "near", "put", "slot_list", "totals")
_LOCKED_BEFORE = ("schedule_pause", "schedule_delete", "schedule_slots_delete")

CONFINED = (
    *("schedule.list", "schedule.set", "schedule.pause", "schedule.resume", "schedule.delete"),
    *((f"schedule_{each}", {"instead": f"schedule_{each}_within"}) for each in _CUT),
    *((each, {}) for each in _LOCKED_BEFORE),
)
"""What principals that are confined to one context may do, and how each statement is cut: by the schedule's context."""

"""What is done with schedules, written once for Python, HTTP, pages and the command line."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.admin.serializers import plain
from holdfast.client.start_targets import Targets
from holdfast.client.views import Chain
from holdfast.commands.change import Change, Effect
from holdfast.core.duration import format_span
from holdfast.core.errors import nearest
from holdfast.core.records import ChainRecord
from holdfast.core.sealing import Sealer
from holdfast.notify.base import Hint
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.storage.store.params import resolve_now
from holdfast_schedules.errors import ScheduleNotFound
from holdfast_schedules.firing import fire_now, next_slot
from holdfast_schedules.schedule_plan import check_name, clear_input, stored_form
from holdfast_schedules.schedule_store import (
    SCHEDULES,
    NewSchedule,
    SchedulePage,
    ScheduleRecord,
    SlotRecord,
)
from holdfast_schedules.settings import MAX_POLL_MS

MAX_WORKERS = 1_000

SCHEDULE_HINT = Hint("due", "schedule:")
"""A schedule may be due sooner than workers look; to workers it is an unknown type."""


class ScheduleFacts(msgspec.Struct, frozen=True):
    """A schedule, the chain of its last job unless that was removed, and the live workers that handle its type."""

    schedule: ScheduleRecord
    last: ChainRecord | None
    workers: int

    @property
    def state(self) -> str:
        """In one word: paused, late, failing when no job could be started, or scheduled."""
        own = self.schedule
        if own.paused:
            return "paused"
        if own.is_late:
            return "late"
        return "scheduled" if own.error is None else "failing"

    @property
    def sentence(self) -> str:
        """Why it starts nothing now, or when it does."""
        own = self.schedule
        if own.paused:
            since = "" if own.paused_at is None else f" {format_span(own.now - own.paused_at)} ago"
            by = f" by {own.paused_by}" if own.paused_by else ""
            return f"Paused{by}{since}; due times are left out until it is resumed"
        if own.is_late:
            due = f"Due for {format_span(own.late_us)}, and no job was started"
            if not self.workers:
                return f"{due}: no live worker handles {own.type}"
            return f"{due}: workers that handle {own.type} are behind, or do not call add_schedules(app)"
        begun = f"Next job in {format_span(max(0, own.next_at - own.now))}"
        if own.error is not None:
            return f"{begun}; the last one could not be started: {own.error}"
        return begun


def schedule_facts(store: Store, page: SchedulePage) -> Op[list[ScheduleFacts]]:
    """Read a page of schedules with their last jobs."""
    found = yield from SCHEDULES.page(page)
    return (yield from _with_facts(store, found))


def one_schedule(store: Store, name: str) -> Op[ScheduleFacts]:
    """Read a schedule. Raises: ScheduleNotFound."""
    found = yield from SCHEDULES.get(name)
    if found is None:
        raise (yield from no_such_schedule(name))
    (facts,) = yield from _with_facts(store, [found])
    return facts


def schedule_history(
    store: Store, name: str, limit: int
) -> Op[list[tuple[SlotRecord, ChainRecord | None]]]:
    """Read the latest slots of a schedule with their chains, newest first. Raises: ScheduleNotFound."""
    slots = yield from SCHEDULES.slots(name, limit)
    if not slots and (yield from SCHEDULES.get(name)) is None:
        raise (yield from no_such_schedule(name))
    chains = yield from _chains(store, [each.job_id for each in slots])
    return [(each, chains.get(each.job_id or "")) for each in slots]


def set_schedule(
    wanted: NewSchedule, sealer: Sealer | None, keeps_context: bool = False
) -> Op[Change[ScheduleRecord]]:
    """Set a schedule; one that is just so already is left alone. What is changed by hand keeps its context."""
    before = yield from SCHEDULES.get(wanted.name)
    if keeps_context and before is not None and wanted.context is None:
        wanted = msgspec.structs.replace(wanted, context=before.context)
    if before is not None and _is_same(before, wanted, sealer):
        return Change(before)
    now = before.now if before is not None else (yield from resolve_now(None))
    next_at = next_slot(wanted.schedule, wanted.zone, now)
    after = yield from SCHEDULES.put(stored_form(wanted, sealer), next_at)
    hints = [SCHEDULE_HINT] if after.next_at - now <= MAX_POLL_MS * 1000 else []
    was = None if before is None else _audit_fields(before)
    return Change(after, [Effect(_target(wanted.name), was, _audit_fields(after))], hints)


def pause_schedule(name: str, paused: bool, by: str | None = None) -> Op[Change[None]]:
    """Pause a schedule, or resume it with the next due time. Raises: ScheduleNotFound."""
    found = yield from _lock(name)
    next_at = next_slot(found.schedule, found.zone, found.now)
    has_changed = yield from SCHEDULES.pause(name, paused, by, next_at)
    effects = [Effect(_target(name), {"paused": not paused}, {"paused": paused})]
    return Change(None, effects if has_changed else (), () if paused else [SCHEDULE_HINT])


def delete_schedule(name: str) -> Op[Change[None]]:
    """Remove a schedule; jobs that it started stay. Raises: ScheduleNotFound."""
    found = yield from _lock(name)
    yield from SCHEDULES.delete(name)
    return Change(None, [Effect(_target(name), _audit_fields(found))])


def run_schedule(
    store: Store, targets: Targets, sealer: Sealer | None, name: str
) -> Op[Change[Chain]]:
    """Start a job of a schedule now, paused or not; its due times stay. Raises: ScheduleNotFound, as a start."""
    found = yield from _lock(name)
    return (yield from fire_now(store, targets, sealer, found))


def no_such_schedule(name: str) -> Op[ScheduleNotFound]:
    """Return the refusal of a name, with the one that was probably meant."""
    near = nearest(name, (yield from SCHEDULES.near(name)))
    return ScheduleNotFound(f"there is no schedule {name[:60]!r}", help=near or None)


def _lock(name: str) -> Op[ScheduleRecord]:
    found = yield from SCHEDULES.lock(check_name(name))
    if found is None:
        raise (yield from no_such_schedule(name))
    return found


def _is_same(before: ScheduleRecord, wanted: NewSchedule, sealer: Sealer | None) -> bool:
    stored = {each: getattr(before, each) for each in NewSchedule.__struct_fields__}
    if before.sealed and wanted.sealed:
        stored["input"] = clear_input(before, sealer)
    return NewSchedule(**stored) == wanted


def _with_facts(store: Store, found: list[ScheduleRecord]) -> Op[list[ScheduleFacts]]:
    if not found:
        return []
    chains = yield from _chains(store, [each.last_job for each in found])
    workers = yield from store.workers.page(MAX_WORKERS, live=True)
    return [
        ScheduleFacts(
            each,
            chains.get(each.last_job or ""),
            sum(each.type in worker.types for worker in workers),
        )
        for each in found
    ]


def _chains(store: Store, ids: list[str | None]) -> Op[dict[str, ChainRecord]]:
    wanted = sorted({each for each in ids if each is not None})
    found = (yield from store.chains.get(wanted)) if wanted else []
    return {each.id: each for each in found}


def _audit_fields(record: ScheduleRecord) -> dict[str, Any]:
    """Return what the audit log says of a schedule, without its input."""
    fields = plain(record)
    return {
        name: fields[name]
        for name in (*NewSchedule.__struct_fields__, "next_at", "paused")
        if name != "input"
    }


def _target(name: str) -> str:
    return f"schedule {name}"

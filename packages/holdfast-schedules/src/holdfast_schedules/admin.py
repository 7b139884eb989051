"""Schedules for HTTP, pages and the command line: what there is, and what people do with it."""

from __future__ import annotations

import builtins
from typing import Any, cast

import msgspec

from holdfast.admin.access import Caller, NounAdmin, check
from holdfast.admin.serializers import plain, redact_text, rfc3339, shown_payload
from holdfast.admin.types import type_facts
from holdfast.client.views import Chain
from holdfast.commands.workers import unknown_type
from holdfast.core.errors import Refused, ScheduleError
from holdfast.core.instants import Instant
from holdfast.core.job_context import decode_context
from holdfast.core.records import ChainRecord
from holdfast.core.schedule import Interval
from holdfast.core.sealing import Sealer
from holdfast_schedules.commands import (
    ScheduleFacts,
    delete_schedule,
    one_schedule,
    pause_schedule,
    run_schedule,
    schedule_facts,
    schedule_history,
    set_schedule,
)
from holdfast_schedules.schedule_plan import (
    ScheduleOptions,
    check_name,
    clear_input,
    make_schedule,
    make_times,
)
from holdfast_schedules.schedule_store import (
    SCHEDULES,
    SchedulePage,
    ScheduleRecord,
    ScheduleTotals,
    SlotRecord,
)

NEXT_SLOTS = 5


class ScheduleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule to set: what it starts, and when."""

    name: str
    type: str
    input: Any = None
    every: str | None = None
    cron: str | None = None
    timezone: str | None = None
    missed: str | None = None
    overlap: str | None = None
    jitter: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    version: int | None = None
    sealed: bool | None = None
    context: dict[str, str] | None = None
    reason: str | None = None

    @property
    def options(self) -> ScheduleOptions:
        """The options that were given."""
        values = {name: getattr(self, name) for name in ScheduleOptions.__optional_keys__}
        given = {name: value for name, value in values.items() if value is not None}
        return cast(ScheduleOptions, given)


def schedule_json(
    facts: ScheduleFacts, sealer: Sealer | None = None, withheld: bool = True, raw: bool = False
) -> dict[str, Any]:
    """Return a schedule for programs; its input redacted, if at all."""
    record, last = facts.schedule, facts.last
    fields = plain(record)
    del fields["input"], fields["now"]
    shown, _ = shown_payload(record.input, raw, lambda _: clear_input(record, sealer))
    return {
        **fields,
        "last_slot": rfc3339(record.last_slot),
        "words": describe_times(record),
        "context": decode_context(record.context),
        "state": facts.state,
        "why": facts.sentence,
        "next": [rfc3339(each) for each in next_slots(record)],
        "late_ms": record.late_us // 1000,
        "last_job_state": None if last is None else last.state,
        "error": redact_text(record.error),
        "input": None if withheld else shown,
        "payloads_withheld": withheld,
    }


def slot_json(slot: SlotRecord, chain: ChainRecord | None) -> dict[str, Any]:
    """Return a decided due time for programs."""
    fields = plain(slot)
    del fields["schedule"]
    return {
        **fields,
        "slot": rfc3339(slot.slot),
        "job_state": None if chain is None else chain.state,
        "finished_at": None if chain is None else rfc3339(chain.finished_at),
        "error": redact_text(slot.error or (None if chain is None else chain.error)),
    }


def describe_times(record: ScheduleRecord) -> str:
    """Return when a schedule is due, in plain words."""
    try:
        return record.parsed.describe()
    except ScheduleError:
        # As where this machine does not know the time zone.
        return record.schedule


def next_slots(record: ScheduleRecord) -> list[Instant]:
    """Return the next due times of a schedule, none of one that is paused."""
    if record.paused:
        return []
    found = [record.next_at]
    try:
        times = record.parsed
        while len(found) < NEXT_SLOTS:
            found.append(times.next_after(max(found[-1], record.now)))
    except ScheduleError:
        pass
    return found


def times_of(record: ScheduleRecord) -> dict[str, str]:
    """Return how a schedule's times were asked for: as every, or as cron and timezone."""
    times = record.parsed
    if isinstance(times, Interval):
        return {"every": record.schedule.removeprefix("every ")}
    return {"cron": times.expression, "timezone": times.zone.key}


class ScheduleAdmin(NounAdmin):
    """What can be asked about schedules and done with them."""

    async def list(self, caller: Caller, page: SchedulePage) -> list[ScheduleFacts]:
        """Read a page of schedules in the order of their names."""
        return await self._gateway.read(
            caller, "schedule.list", lambda store: schedule_facts(store, page)
        )

    async def get(self, caller: Caller, name: str) -> ScheduleFacts:
        """Read a schedule. Raises: ScheduleNotFound."""
        return await self._gateway.read(
            caller, "schedule.list", lambda store: one_schedule(store, name)
        )

    async def history(
        self, caller: Caller, name: str, limit: int = 50
    ) -> builtins.list[dict[str, Any]]:
        """Read the latest due times of a schedule, newest first. Raises: ScheduleNotFound."""
        found = await self._gateway.read(
            caller, "schedule.list", lambda store: schedule_history(store, name, limit)
        )
        return [slot_json(*each) for each in found]

    async def totals(self, caller: Caller) -> builtins.list[ScheduleTotals]:
        """Count the schedules of each type."""
        return await self._gateway.read(caller, "schedule.list", lambda store: SCHEDULES.totals())

    async def set(
        self, caller: Caller, wanted: ScheduleRequest, new_type: bool = False
    ) -> ScheduleFacts:
        """Set a schedule. A type that neither the application nor the database knows is refused, unless it is new.

        Raises: as `Schedules.set`.
        """
        app = self._gateway.app
        options = await self._options(caller, wanted)
        times = make_times(wanted.every, wanted.cron, wanted.timezone)
        new = make_schedule(app.targets, wanted.name, wanted.type, wanted.input, times, options)
        if new.type not in app.registry and not new_type:
            # What others have started must not show.
            confined = caller.principal.confinement is not None
            known = {} if confined else await self._gateway.read_unchecked(type_facts)
            if new.type not in known:
                raise unknown_type(new.type, list(known))
        await self._gateway.run(
            caller,
            "schedule.set",
            lambda store: set_schedule(new, app.registry.sealer, keeps_context=True),
        )
        return await self.get(caller, new.name)

    async def _options(self, caller: Caller, wanted: ScheduleRequest) -> ScheduleOptions:
        """Return the options of a schedule that is set, within what the caller is confined to. Raises: Refused."""
        check(caller.principal, "schedule.set")
        options, confinement = wanted.options, caller.principal.confinement
        if confinement is None:
            return options
        name = check_name(wanted.name)
        before = await self._gateway.read(
            caller, "schedule.list", lambda store: SCHEDULES.get(name)
        )
        if before is None and not name.startswith(confinement.prefix):
            raise Refused(
                f"the name of a new schedule that is confined to {caller.principal.only}"
                f" begins with {confinement.prefix}",
                rule="names are shared by all contexts",
            )
        if before is not None and "context" not in options:
            options["context"] = decode_context(before.context)
        context = confinement.cut_start(self._gateway.app, {"context": options.get("context")})
        return {**options, "context": context["context"]}

    async def pause(self, caller: Caller, name: str) -> None:
        """Start no jobs of a schedule until it is resumed. Raises: ScheduleNotFound."""
        await self._gateway.run(
            caller, "schedule.pause", lambda store: pause_schedule(name, True, caller.name)
        )

    async def resume(self, caller: Caller, name: str) -> None:
        """Go on with the next due time; those of the pause are left out. Raises: ScheduleNotFound."""
        await self._gateway.run(
            caller, "schedule.resume", lambda store: pause_schedule(name, False)
        )

    async def delete(self, caller: Caller, name: str) -> None:
        """Remove a schedule; jobs that it started stay. Raises: ScheduleNotFound."""
        await self._gateway.run(caller, "schedule.delete", lambda store: delete_schedule(name))

    async def run_now(self, caller: Caller, name: str) -> Chain:
        """Start a job of a schedule now, paused or not. Raises: ScheduleNotFound, as a start."""
        app = self._gateway.app
        return await self._gateway.run(
            caller,
            "schedule.run_now",
            lambda store: run_schedule(store, app.targets, app.registry.sealer, name),
        )

    @property
    def sealer(self) -> Sealer | None:
        """What opens sealed inputs here."""
        return self._gateway.app.registry.sealer

"""Cycles: their schedules in plain words, their next and last runs, pausing and running them."""

from __future__ import annotations

import builtins
from typing import Any

import msgspec

from holdfast.admin.access import Caller, NounAdmin
from holdfast.admin.serializers import plain, redact_text, rfc3339
from holdfast.commands.cycles import no_such_cycle, pause_cycle, request_cycle
from holdfast.commands.explain import RUN_COUNTS_MS
from holdfast.core.cycle import CycleRecord, RunRecord
from holdfast.core.errors import ScheduleError
from holdfast.core.instants import Instant
from holdfast.core.schedule import parse_schedule
from holdfast.scheduler.runner import TICK
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

NEXT_RUNS = 5
LAST_RUNS = 10


class CycleFacts(msgspec.Struct, frozen=True):
    """A cycle with its schedule in words, its next instants, and its last runs, the newest first."""

    now: Instant
    cycle: CycleRecord
    words: str
    next: list[Instant]
    runs: list[RunRecord]

    def as_json(self) -> dict[str, Any]:
        """Return the facts for programs."""
        return {
            **plain(self.cycle),
            "last_slot": rfc3339(self.cycle.last_slot),
            "words": self.words,
            "next": [rfc3339(each) for each in self.next],
            "runs": [shown_run(each) for each in self.runs],
        }


class CycleAdmin(NounAdmin):
    """What can be asked about cycles and done to them."""

    async def list(self, caller: Caller, runs: int = LAST_RUNS) -> list[CycleFacts]:
        """Read every cycle."""
        return await self._gateway.read(
            caller, "cycle.list", lambda store: cycle_facts(store, runs)
        )

    async def get(self, caller: Caller, name: str, runs: int = LAST_RUNS) -> CycleFacts:
        """Read a cycle. Raises: CycleNotFound."""

        def op(store: Store) -> Op[CycleFacts]:
            now = yield from store.schema.clock()
            cycles = {each.name: each for each in (yield from store.cycles.page())}
            if name not in cycles:
                raise no_such_cycle(name, cycles)
            last = yield from store.runs.page(runs, RUN_COUNTS_MS, name)
            return _facts(now, cycles[name], last)

        return await self._gateway.read(caller, "cycle.list", op)

    async def runs(
        self, caller: Caller, name: str | None = None, limit: int = 50
    ) -> builtins.list[RunRecord]:
        """Read the last runs, the newest first, of one cycle or of all cycles and ticks. Raises: CycleNotFound."""

        def op(store: Store) -> Op[builtins.list[RunRecord]]:
            found = yield from store.runs.page(limit, RUN_COUNTS_MS, name)
            if name is not None and name != TICK and not found:
                names = [each.name for each in (yield from store.cycles.page())]
                if name not in names:
                    raise no_such_cycle(name, names)
            return found

        return await self._gateway.read(caller, "cycle.list", op)

    async def pause(self, caller: Caller, name: str) -> None:
        """Pause a cycle. Raises: CycleNotFound."""
        await self._gateway.run(
            caller, "cycle.pause", lambda store: pause_cycle(store, name, True, caller.name)
        )

    async def resume(self, caller: Caller, name: str) -> None:
        """Resume a cycle; runs missed during the pause are not caught up. Raises: CycleNotFound."""
        await self._gateway.run(
            caller, "cycle.resume", lambda store: pause_cycle(store, name, False, caller.name)
        )

    async def run_now(self, caller: Caller, name: str) -> None:
        """Have the next tick of any worker run a cycle, paused or not. Raises: CycleNotFound."""
        declared = self._gateway.app.cycle_specs
        await self._gateway.run(
            caller,
            "cycle.run_now",
            lambda store: request_cycle(store, name, new_id(), declared=declared),
        )


def cycle_facts(store: Store, runs: int) -> Op[list[CycleFacts]]:
    """Read every cycle with some of its last runs."""
    now = yield from store.schema.clock()
    cycles = yield from store.cycles.page()
    facts = []
    for each in cycles:
        last = (yield from store.runs.page(runs, RUN_COUNTS_MS, each.name)) if runs else []
        facts.append(_facts(now, each, last))
    return facts


def shown_run(run: RunRecord) -> dict[str, Any]:
    """Return a run of a cycle or a tick."""
    took_us = None if run.finished_at is None else run.finished_at - run.started_at
    return {
        **plain(run),
        "duration_ms": None if took_us is None else took_us // 1000,
        "error": redact_text(run.error),
    }


def _facts(now: Instant, cycle: CycleRecord, runs: list[RunRecord]) -> CycleFacts:
    try:
        schedule = parse_schedule(cycle.schedule, cycle.zone)
    except ScheduleError:
        # A newer version may have registered a form that this one does not know.
        return CycleFacts(now, cycle, cycle.schedule, [], runs)
    upcoming: list[Instant] = []
    if not cycle.paused:
        at = now
        for _ in range(NEXT_RUNS):
            at = schedule.next_after(at)
            upcoming.append(at)
    return CycleFacts(now, cycle, schedule.describe(), upcoming, runs)

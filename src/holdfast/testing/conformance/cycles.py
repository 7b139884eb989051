"""Cycles: registering, pausing, asking for a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.commands.cycles import (
    begin_slot,
    complete_slot,
    fail_slot,
    pause_cycle,
    renew_slot,
    request_cycle,
)
from holdfast.core.cycle import CycleState, HeldSlot, NewCycle, NewRun, RunRecord, Slot, slot_at
from holdfast.core.errors import CycleNotFound
from holdfast.storage.operation import Op
from holdfast.testing.conformance.stage import LEASE_MS, SECOND, WORKER, Conformance, Stage

CLEANUP = "cleanup"
GRACE_MS = 45_000


class CycleStage:
    """The moves of these tests."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.store = stage.store

    async def register(self, *names: str, **fields: Any) -> None:
        known = {"schedule": "every 1m", "zone": "UTC", "singleton": True, "missed": "last"}
        rows = [NewCycle(**{**known, "name": name, **fields}) for name in sorted(names)]
        await self.stage.run(self.store.cycles.register(rows, self.stage.now))

    async def state(self, name: str = CLEANUP) -> CycleState:
        (found,) = await self.stage.run(self.store.cycles.states([name], self.stage.now))
        return found

    def slot(self, seconds: int = 0) -> Slot:
        """A slot that lies this much after the present."""
        return slot_at(self.stage.now // SECOND * SECOND + SECOND + seconds * SECOND)

    def beginning(self, slot: Slot, name: str = CLEANUP) -> Op[HeldSlot | None]:
        run = NewRun(self.stage.new_id(), name, WORKER, slot.name)
        return begin_slot(self.store, run, slot, self.stage.new_id(), LEASE_MS, self.stage.now)

    async def begin(self, slot: Slot, name: str = CLEANUP) -> HeldSlot | None:
        return await self.stage.run(self.beginning(slot, name))

    async def hold(self, slot: Slot) -> HeldSlot:
        held = await self.begin(slot)
        assert held is not None
        return held

    async def complete(self, held: HeldSlot) -> bool:
        return await self.stage.run(
            complete_slot(self.store, held, '{"processed":1}', self.stage.now)
        )

    async def fail(self, held: HeldSlot, pause_ms: int | None = 30_000) -> bool:
        op = fail_slot(self.store, held, "failed", "{}", "boom", pause_ms, self.stage.now)
        return await self.stage.run(op)

    async def renew(self, held: HeldSlot) -> bool:
        return await self.stage.run(renew_slot(self.store, held, LEASE_MS, "{}", self.stage.now))

    async def runs(self, name: str | None = CLEANUP) -> Sequence[RunRecord]:
        return await self.stage.run(self.store.runs.page(50, GRACE_MS, name, self.stage.now))


class CyclesOnStage(Conformance):
    """The base of the classes about cycles."""

    @pytest.fixture
    def cycles(self, stage: Stage) -> CycleStage:
        """The moves on a store with nothing in it."""
        return CycleStage(stage)


class CycleConformance(CyclesOnStage):
    """Registering, pausing, asking for runs."""

    async def test_a_new_cycle_has_decided_everything_before_its_registration(
        self, cycles: CycleStage
    ) -> None:
        began = cycles.stage.now
        await cycles.register(CLEANUP)
        cycles.stage.pass_time(seconds=5)
        state = await cycles.state()
        assert state == CycleState(CLEANUP, False, began, cycles.stage.now, ())

    async def test_registering_again_keeps_the_last_slot_unless_the_schedule_changed(
        self, cycles: CycleStage
    ) -> None:
        began = cycles.stage.now
        await cycles.register(CLEANUP)
        cycles.stage.pass_time(seconds=90)
        await cycles.register(CLEANUP, missed="none")
        assert (await cycles.state()).last_slot == began
        await cycles.register(CLEANUP, schedule="every 2m")
        assert (await cycles.state()).last_slot == cycles.stage.now

    async def test_a_pause_shows_who_and_keeps_slots_from_being_claimed(
        self, cycles: CycleStage
    ) -> None:
        await cycles.register(CLEANUP)
        stage = cycles.stage
        paused = (await stage.run(pause_cycle(stage.store, CLEANUP, True, "ana", stage.now))).answer
        assert paused == [CLEANUP]
        (record,) = await stage.run(stage.store.cycles.page(stage.now))
        assert (record.paused, record.paused_by, record.paused_at) == (True, "ana", stage.now)
        assert await cycles.begin(cycles.slot()) is None

    async def test_resuming_does_not_make_up_for_the_pause(self, cycles: CycleStage) -> None:
        await cycles.register(CLEANUP)
        stage = cycles.stage
        missed = cycles.slot(60)
        await stage.run(pause_cycle(stage.store, CLEANUP, True, "ana", stage.now))
        stage.pass_time(seconds=120)
        await stage.run(pause_cycle(stage.store, CLEANUP, False, None, stage.now))
        assert (await cycles.state()).last_slot == stage.now
        assert await cycles.begin(missed) is None
        assert await cycles.begin(cycles.slot(60)) is not None

    async def test_pausing_means_all_shards_and_no_namesakes(self, cycles: CycleStage) -> None:
        await cycles.register("bill", "bill:0/2", "bill:1/2", "billing")
        stage = cycles.stage
        paused = (await stage.run(pause_cycle(stage.store, "bill", True, "ana", stage.now))).answer
        assert sorted(paused) == ["bill", "bill:0/2", "bill:1/2"]
        assert not (await cycles.state("billing")).paused

    async def test_an_unknown_cycle_is_refused(self, cycles: CycleStage) -> None:
        stage = cycles.stage
        with pytest.raises(CycleNotFound):
            await stage.run(pause_cycle(stage.store, "nothing", True, None, stage.now))
        with pytest.raises(CycleNotFound):
            await stage.run(request_cycle(stage.store, "nothing", stage.new_id(), stage.now))

    async def test_a_request_runs_once_even_when_paused_and_decides_no_slot(
        self, cycles: CycleStage
    ) -> None:
        await cycles.register(CLEANUP)
        stage = cycles.stage
        began = stage.now
        await stage.run(pause_cycle(stage.store, CLEANUP, True, "ana", stage.now))
        stage.pass_time(seconds=1)
        await stage.run(request_cycle(stage.store, CLEANUP, "me", stage.now))
        (request,) = (await cycles.state()).requests
        assert request == Slot("now-me", stage.now, True)
        held = await cycles.hold(request)
        assert (await cycles.state()).requests == ()
        assert await cycles.complete(held)
        assert await cycles.begin(request) is None
        assert (await cycles.state()).last_slot == began

    async def test_the_list_tells_who_runs_a_cycle(self, cycles: CycleStage) -> None:
        await cycles.register(CLEANUP)
        held = await cycles.hold(cycles.slot())
        stage = cycles.stage
        (record,) = await stage.run(stage.store.cycles.page(stage.now))
        assert (record.running_slot, record.held_by) == (held.slot.name, WORKER)
        assert record.held_until == stage.now + LEASE_MS * 1000
        await cycles.complete(held)
        (record,) = await stage.run(stage.store.cycles.page(stage.now))
        assert (record.running_slot, record.held_by) == (None, None)

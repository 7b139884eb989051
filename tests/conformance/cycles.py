"""Cycles: registering, pausing, asking for a run.

A slot completes at most once and only by the run that holds it; a run that died shows as such.
"""

from __future__ import annotations

import asyncio
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
from holdfast.core.cycle import (
    ClosedSlot,
    CycleState,
    HeldSlot,
    NewCycle,
    NewRun,
    RunRecord,
    Slot,
    slot_at,
)
from holdfast.core.errors import CycleNotFound
from holdfast.storage.operation import Op, at
from tests.conformance.harness import LEASE_MS, SECOND, WORKER, Conformance, Harness, StoreFixture

CLEANUP = "cleanup"
GRACE_MS = 45_000


class CycleFixture(StoreFixture):
    """The moves of these tests."""

    async def register(self, *names: str, **fields: Any) -> None:
        known = {"schedule": "every 1m", "zone": "UTC", "singleton": True, "missed": "last"}
        rows = [NewCycle(**{**known, "name": name, **fields}) for name in sorted(names)]
        await self.run(self.store.cycles.register(rows, self.now))

    async def state(self, name: str = CLEANUP) -> CycleState:
        (found,) = await self.run(self.store.cycles.states([name], self.now))
        return found

    def slot(self, seconds: int = 0) -> Slot:
        """A slot that lies this much after the present."""
        return slot_at(self.now // SECOND * SECOND + SECOND + seconds * SECOND)

    def begin_op(self, slot: Slot, name: str = CLEANUP) -> Op[HeldSlot | None]:
        run = NewRun(self.new_id(), name, WORKER, slot.name)
        return begin_slot(self.store, run, slot, self.new_id(), LEASE_MS, self.now)

    async def begin(self, slot: Slot, name: str = CLEANUP) -> HeldSlot | None:
        return await self.run(self.begin_op(slot, name))

    async def hold(self, slot: Slot) -> HeldSlot:
        held = await self.begin(slot)
        assert held is not None
        return held

    async def complete(self, held: HeldSlot) -> bool:
        return await self.run(complete_slot(self.store, held, '{"processed":1}', self.now))

    async def fail(self, held: HeldSlot, pause_ms: int | None = 30_000) -> bool:
        op = fail_slot(self.store, held, "failed", "{}", "boom", pause_ms, self.now)
        return await self.run(op)

    async def renew(self, held: HeldSlot) -> bool:
        return await self.run(renew_slot(self.store, held, LEASE_MS, "{}", self.now))

    async def pause(self, name: str = CLEANUP, paused: bool = True) -> Sequence[str]:
        by = "ana" if paused else None
        change = await self.run(at(pause_cycle(self.store, name, paused, by), self.now))
        return change.answer

    async def runs(self, name: str | None = CLEANUP) -> Sequence[RunRecord]:
        return await self.run(self.store.runs.page(50, GRACE_MS, name, self.now))


class CycleConformanceBase(Conformance):
    """The base of the classes about cycles."""

    @pytest.fixture
    def cycles(self, harness: Harness) -> CycleFixture:
        """The moves on a store with nothing in it."""
        return CycleFixture(harness)


class CycleConformance(CycleConformanceBase):
    """Registering, pausing, asking for runs."""

    async def test_a_new_cycle_has_decided_everything_before_its_registration(
        self, cycles: CycleFixture
    ) -> None:
        began = cycles.now
        await cycles.register(CLEANUP)
        cycles.pass_time(seconds=5)
        state = await cycles.state()
        assert state == CycleState(CLEANUP, False, began, cycles.now, ())

    async def test_registering_again_keeps_the_last_slot_unless_the_schedule_changed(
        self, cycles: CycleFixture
    ) -> None:
        began = cycles.now
        await cycles.register(CLEANUP)
        cycles.pass_time(seconds=90)
        await cycles.register(CLEANUP, missed="none")
        assert (await cycles.state()).last_slot == began
        await cycles.register(CLEANUP, schedule="every 2m")
        assert (await cycles.state()).last_slot == cycles.now

    async def test_a_pause_shows_who_and_keeps_slots_from_being_claimed(
        self, cycles: CycleFixture
    ) -> None:
        await cycles.register(CLEANUP)
        assert await cycles.pause() == [CLEANUP]
        (record,) = await cycles.run(cycles.store.cycles.page(cycles.now))
        assert (record.paused, record.paused_by, record.paused_at) == (True, "ana", cycles.now)
        assert await cycles.begin(cycles.slot()) is None

    async def test_resuming_does_not_make_up_for_the_pause(self, cycles: CycleFixture) -> None:
        await cycles.register(CLEANUP)
        missed = cycles.slot(60)
        await cycles.pause()
        cycles.pass_time(seconds=120)
        await cycles.pause(paused=False)
        assert (await cycles.state()).last_slot == cycles.now
        assert await cycles.begin(missed) is None
        assert await cycles.begin(cycles.slot(60)) is not None

    async def test_pausing_means_all_shards_and_no_namesakes(self, cycles: CycleFixture) -> None:
        await cycles.register("bill", "bill:0/2", "bill:1/2", "billing")
        assert sorted(await cycles.pause("bill")) == ["bill", "bill:0/2", "bill:1/2"]
        assert not (await cycles.state("billing")).paused

    async def test_an_unknown_cycle_is_refused(self, cycles: CycleFixture) -> None:
        with pytest.raises(CycleNotFound):
            await cycles.pause("nothing")
        with pytest.raises(CycleNotFound):
            await cycles.run(
                at(request_cycle(cycles.store, "nothing", cycles.new_id()), cycles.now)
            )

    async def test_a_request_runs_once_even_when_paused_and_decides_no_slot(
        self, cycles: CycleFixture
    ) -> None:
        await cycles.register(CLEANUP)
        began = cycles.now
        await cycles.pause()
        cycles.pass_time(seconds=1)
        await cycles.run(at(request_cycle(cycles.store, CLEANUP, "me"), cycles.now))
        (request,) = (await cycles.state()).requests
        assert request == Slot("now-me", cycles.now, True)
        held = await cycles.hold(request)
        assert (await cycles.state()).requests == ()
        assert await cycles.complete(held)
        assert await cycles.begin(request) is None
        assert (await cycles.state()).last_slot == began

    async def test_the_list_tells_who_runs_a_cycle(self, cycles: CycleFixture) -> None:
        await cycles.register(CLEANUP)
        held = await cycles.hold(cycles.slot())
        (record,) = await cycles.run(cycles.store.cycles.page(cycles.now))
        assert (record.running_slot, record.held_by) == (held.slot.name, WORKER)
        assert record.held_until == cycles.now + LEASE_MS * 1000
        await cycles.complete(held)
        (record,) = await cycles.run(cycles.store.cycles.page(cycles.now))
        assert (record.running_slot, record.held_by) == (None, None)


class SlotConformance(CycleConformanceBase):
    """One slot from claim to end."""

    async def test_a_slot_completes_once(self, cycles: CycleFixture) -> None:
        await cycles.register(CLEANUP)
        slot = cycles.slot()
        held = await cycles.hold(slot)
        assert held.runs == 1
        assert await cycles.complete(held)
        assert (await cycles.state()).last_slot == slot.due_at
        cycles.pass_time(seconds=3600)
        assert await cycles.begin(slot) is None

    async def test_completing_twice_answers_the_same(self, cycles: CycleFixture) -> None:
        await cycles.register(CLEANUP)
        held = await cycles.hold(cycles.slot())
        assert await cycles.complete(held)
        assert await cycles.complete(held)

    async def test_a_slot_before_the_last_one_is_refused(self, cycles: CycleFixture) -> None:
        await cycles.register(CLEANUP)
        old, new = cycles.slot(), cycles.slot(60)
        assert await cycles.complete(await cycles.hold(new))
        assert await cycles.begin(old) is None

    async def test_one_slot_of_a_cycle_runs_at_a_time(self, cycles: CycleFixture) -> None:
        await cycles.register(CLEANUP, "other")
        first, second = cycles.slot(), cycles.slot(60)
        held = await cycles.hold(first)
        assert await cycles.begin(first) is None
        assert await cycles.begin(second) is None
        assert await cycles.begin(first, "other") is not None
        assert await cycles.complete(held)
        assert await cycles.begin(second) is not None

    async def test_of_many_claims_of_a_slot_one_wins(self, cycles: CycleFixture) -> None:
        await cycles.register(CLEANUP)
        slots = [cycles.slot(), cycles.slot(60)] * 8
        claims = await asyncio.gather(*(cycles.begin(each) for each in slots))
        assert len([each for each in claims if each is not None]) == 1
        assert len(await cycles.runs()) == 1

    async def test_a_failed_slot_rests_and_runs_again_under_the_same_name(
        self, cycles: CycleFixture
    ) -> None:
        await cycles.register(CLEANUP)
        slot = cycles.slot()
        assert await cycles.fail(await cycles.hold(slot))
        assert await cycles.begin(slot) is None
        cycles.pass_time(seconds=30)
        again = await cycles.hold(slot)
        assert again.runs == 2
        assert await cycles.complete(again)

    async def test_the_state_names_slots_that_run_or_rest_as_long_as_they_do(
        self, cycles: CycleFixture
    ) -> None:
        await cycles.register(CLEANUP)
        slot = cycles.slot()
        held = await cycles.hold(slot)
        leased = cycles.now + LEASE_MS * 1000
        assert (await cycles.state()).closed == (ClosedSlot(slot.name, leased, True),)
        assert await cycles.fail(held)
        rests = cycles.now + 30 * SECOND
        assert (await cycles.state()).closed == (ClosedSlot(slot.name, rests, False),)
        cycles.pass_time(seconds=30)
        assert (await cycles.state()).closed == ()

    async def test_a_slot_that_failed_for_good_is_decided(self, cycles: CycleFixture) -> None:
        await cycles.register(CLEANUP)
        slot = cycles.slot()
        assert await cycles.fail(await cycles.hold(slot), pause_ms=None)
        assert (await cycles.state()).last_slot == slot.due_at
        cycles.pass_time(seconds=86_400)
        assert await cycles.begin(slot) is None

    async def test_a_slot_whose_process_died_is_taken_over_after_its_lease(
        self, cycles: CycleFixture
    ) -> None:
        await cycles.register(CLEANUP)
        slot = cycles.slot()
        old = await cycles.hold(slot)
        cycles.pass_time(ms=LEASE_MS - 1)
        assert await cycles.begin(slot) is None
        cycles.pass_time(ms=1)
        new = await cycles.hold(slot)
        assert new.runs == 2
        assert not await cycles.renew(old)
        assert not await cycles.run(cycles.store.slots.fence(old))
        assert not await cycles.complete(old)
        assert not await cycles.fail(old)
        assert await cycles.run(cycles.store.slots.fence(new))
        assert await cycles.complete(new)

    async def test_renewing_keeps_a_slot(self, cycles: CycleFixture) -> None:
        await cycles.register(CLEANUP)
        held = await cycles.hold(cycles.slot())
        for _ in range(3):
            cycles.pass_time(ms=LEASE_MS - 1)
            assert await cycles.renew(held)
        assert await cycles.begin(held.slot) is None
        assert await cycles.complete(held)

    async def test_an_expired_slot_that_nobody_took_may_still_complete(
        self, cycles: CycleFixture
    ) -> None:
        await cycles.register(CLEANUP)
        held = await cycles.hold(cycles.slot())
        cycles.pass_time(ms=LEASE_MS * 5)
        assert await cycles.complete(held)

    async def test_a_newer_slot_gives_up_what_a_dead_process_left_running(
        self, cycles: CycleFixture
    ) -> None:
        await cycles.register(CLEANUP)
        old = await cycles.hold(cycles.slot())
        cycles.pass_time(ms=LEASE_MS)
        new = await cycles.hold(cycles.slot(60))
        assert not await cycles.complete(old)
        assert await cycles.complete(new)
        assert {each.slot: each.outcome for each in await cycles.runs()} == {
            old.slot.name: "crashed",
            new.slot.name: "completed",
        }


class RunConformance(CycleConformanceBase):
    """Runs: begun, seen, ended, or found dead."""

    async def test_a_run_shows_what_came_of_it(self, cycles: CycleFixture) -> None:
        await cycles.register(CLEANUP)
        held = await cycles.hold(cycles.slot())
        began = cycles.now
        cycles.pass_time(seconds=2)
        await cycles.complete(held)
        assert await cycles.runs() == [
            RunRecord(
                id=held.run_id,
                name=CLEANUP,
                worker=WORKER,
                slot=held.slot.name,
                started_at=began,
                seen_at=cycles.now,
                finished_at=cycles.now,
                outcome="completed",
                counters={"processed": 1},
                error=None,
            )
        ]

    async def test_a_failed_run_shows_its_error(self, cycles: CycleFixture) -> None:
        await cycles.register(CLEANUP)
        await cycles.fail(await cycles.hold(cycles.slot()))
        (run,) = await cycles.runs()
        assert (run.outcome, run.error) == ("failed", "boom")

    async def test_a_run_without_a_sign_counts_as_crashed(self, cycles: CycleFixture) -> None:
        await cycles.register(CLEANUP)
        held = await cycles.hold(cycles.slot())
        cycles.pass_time(ms=GRACE_MS - 1)
        assert (await cycles.runs())[0].outcome == "running"
        await cycles.renew(held)
        cycles.pass_time(ms=GRACE_MS - 1)
        assert (await cycles.runs())[0].outcome == "running"
        cycles.pass_time(ms=1)
        assert (await cycles.runs())[0].outcome == "crashed"

    async def test_the_run_of_a_slot_taken_over_is_recorded_as_crashed_for_good(
        self, cycles: CycleFixture
    ) -> None:
        await cycles.register(CLEANUP)
        slot = cycles.slot()
        old = await cycles.hold(slot)
        died = cycles.now
        cycles.pass_time(ms=LEASE_MS)
        new = await cycles.hold(slot)
        await cycles.complete(old)
        by_id = {each.id: each for each in await cycles.runs()}
        assert by_id[old.run_id].outcome == "crashed"
        assert by_id[old.run_id].finished_at == died
        assert by_id[new.run_id].outcome == "running"

    async def test_runs_of_one_name_and_of_all_are_listed_newest_first(
        self, cycles: CycleFixture
    ) -> None:
        for name in ("tick", CLEANUP, "tick"):
            cycles.pass_time(seconds=1)
            run = NewRun(cycles.new_id(), name, WORKER)
            assert await cycles.run(cycles.store.runs.begin(run, cycles.now)) == cycles.now
            assert await cycles.run(
                cycles.store.runs.finish(run.id, "completed", "{}", None, cycles.now)
            )
        assert [each.name for each in await cycles.runs(None)] == ["tick", CLEANUP, "tick"]
        ticks = await cycles.runs("tick")
        assert [each.started_at for each in ticks] == [cycles.now, cycles.now - 2 * SECOND]

"""Slots and runs: a slot completes at most once and only by the run that holds it; a run that died shows as such."""

from __future__ import annotations

import asyncio

from holdfast.core.cycle import ClosedSlot, NewRun, RunRecord
from holdfast.testing.conformance.cycles import CLEANUP, GRACE_MS, CyclesOnStage, CycleStage
from holdfast.testing.conformance.stage import LEASE_MS, SECOND, WORKER


class SlotConformance(CyclesOnStage):
    """One slot from claim to end."""

    async def test_a_slot_completes_once(self, cycles: CycleStage) -> None:
        await cycles.register(CLEANUP)
        slot = cycles.slot()
        held = await cycles.hold(slot)
        assert held.runs == 1
        assert await cycles.complete(held)
        assert (await cycles.state()).last_slot == slot.due_at
        cycles.stage.pass_time(seconds=3600)
        assert await cycles.begin(slot) is None

    async def test_completing_twice_answers_the_same(self, cycles: CycleStage) -> None:
        await cycles.register(CLEANUP)
        held = await cycles.hold(cycles.slot())
        assert await cycles.complete(held)
        assert await cycles.complete(held)

    async def test_a_slot_before_the_last_one_is_refused(self, cycles: CycleStage) -> None:
        await cycles.register(CLEANUP)
        old, new = cycles.slot(), cycles.slot(60)
        assert await cycles.complete(await cycles.hold(new))
        assert await cycles.begin(old) is None

    async def test_one_slot_of_a_cycle_runs_at_a_time(self, cycles: CycleStage) -> None:
        await cycles.register(CLEANUP, "other")
        first, second = cycles.slot(), cycles.slot(60)
        held = await cycles.hold(first)
        assert await cycles.begin(first) is None
        assert await cycles.begin(second) is None
        assert await cycles.begin(first, "other") is not None
        assert await cycles.complete(held)
        assert await cycles.begin(second) is not None

    async def test_of_many_claims_of_a_slot_one_wins(self, cycles: CycleStage) -> None:
        await cycles.register(CLEANUP)
        slots = [cycles.slot(), cycles.slot(60)] * 8
        claims = await asyncio.gather(*(cycles.begin(each) for each in slots))
        assert len([each for each in claims if each is not None]) == 1
        assert len(await cycles.runs()) == 1

    async def test_a_failed_slot_rests_and_runs_again_under_the_same_name(
        self, cycles: CycleStage
    ) -> None:
        await cycles.register(CLEANUP)
        slot = cycles.slot()
        assert await cycles.fail(await cycles.hold(slot))
        assert await cycles.begin(slot) is None
        cycles.stage.pass_time(seconds=30)
        again = await cycles.hold(slot)
        assert again.runs == 2
        assert await cycles.complete(again)

    async def test_the_state_names_slots_that_run_or_rest_as_long_as_they_do(
        self, cycles: CycleStage
    ) -> None:
        await cycles.register(CLEANUP)
        slot = cycles.slot()
        held = await cycles.hold(slot)
        leased = cycles.stage.now + LEASE_MS * 1000
        assert (await cycles.state()).closed == (ClosedSlot(slot.name, leased, True),)
        assert await cycles.fail(held)
        rests = cycles.stage.now + 30 * SECOND
        assert (await cycles.state()).closed == (ClosedSlot(slot.name, rests, False),)
        cycles.stage.pass_time(seconds=30)
        assert (await cycles.state()).closed == ()

    async def test_a_slot_that_failed_for_good_is_decided(self, cycles: CycleStage) -> None:
        await cycles.register(CLEANUP)
        slot = cycles.slot()
        assert await cycles.fail(await cycles.hold(slot), pause_ms=None)
        assert (await cycles.state()).last_slot == slot.due_at
        cycles.stage.pass_time(seconds=86_400)
        assert await cycles.begin(slot) is None

    async def test_a_slot_whose_process_died_is_taken_over_after_its_lease(
        self, cycles: CycleStage
    ) -> None:
        await cycles.register(CLEANUP)
        slot = cycles.slot()
        old = await cycles.hold(slot)
        cycles.stage.pass_time(ms=LEASE_MS - 1)
        assert await cycles.begin(slot) is None
        cycles.stage.pass_time(ms=1)
        new = await cycles.hold(slot)
        assert new.runs == 2
        assert not await cycles.renew(old)
        assert not await cycles.stage.run(cycles.store.slots.fence(old))
        assert not await cycles.complete(old)
        assert not await cycles.fail(old)
        assert await cycles.stage.run(cycles.store.slots.fence(new))
        assert await cycles.complete(new)

    async def test_renewing_keeps_a_slot(self, cycles: CycleStage) -> None:
        await cycles.register(CLEANUP)
        held = await cycles.hold(cycles.slot())
        for _ in range(3):
            cycles.stage.pass_time(ms=LEASE_MS - 1)
            assert await cycles.renew(held)
        assert await cycles.begin(held.slot) is None
        assert await cycles.complete(held)

    async def test_an_expired_slot_that_nobody_took_may_still_complete(
        self, cycles: CycleStage
    ) -> None:
        await cycles.register(CLEANUP)
        held = await cycles.hold(cycles.slot())
        cycles.stage.pass_time(ms=LEASE_MS * 5)
        assert await cycles.complete(held)

    async def test_a_newer_slot_gives_up_what_a_dead_process_left_running(
        self, cycles: CycleStage
    ) -> None:
        await cycles.register(CLEANUP)
        old = await cycles.hold(cycles.slot())
        cycles.stage.pass_time(ms=LEASE_MS)
        new = await cycles.hold(cycles.slot(60))
        assert not await cycles.complete(old)
        assert await cycles.complete(new)
        assert {each.slot: each.outcome for each in await cycles.runs()} == {
            old.slot.name: "crashed",
            new.slot.name: "completed",
        }


class RunConformance(CyclesOnStage):
    """Runs: begun, seen, ended, or found dead."""

    async def test_a_run_shows_what_came_of_it(self, cycles: CycleStage) -> None:
        await cycles.register(CLEANUP)
        held = await cycles.hold(cycles.slot())
        began = cycles.stage.now
        cycles.stage.pass_time(seconds=2)
        await cycles.complete(held)
        assert await cycles.runs() == [
            RunRecord(
                id=held.run_id,
                name=CLEANUP,
                worker=WORKER,
                slot=held.slot.name,
                started_at=began,
                seen_at=cycles.stage.now,
                finished_at=cycles.stage.now,
                outcome="completed",
                counters={"processed": 1},
                error=None,
            )
        ]

    async def test_a_failed_run_shows_its_error(self, cycles: CycleStage) -> None:
        await cycles.register(CLEANUP)
        await cycles.fail(await cycles.hold(cycles.slot()))
        (run,) = await cycles.runs()
        assert (run.outcome, run.error) == ("failed", "boom")

    async def test_a_run_without_a_sign_counts_as_crashed(self, cycles: CycleStage) -> None:
        await cycles.register(CLEANUP)
        held = await cycles.hold(cycles.slot())
        cycles.stage.pass_time(ms=GRACE_MS - 1)
        assert (await cycles.runs())[0].outcome == "running"
        await cycles.renew(held)
        cycles.stage.pass_time(ms=GRACE_MS - 1)
        assert (await cycles.runs())[0].outcome == "running"
        cycles.stage.pass_time(ms=1)
        assert (await cycles.runs())[0].outcome == "crashed"

    async def test_the_run_of_a_slot_taken_over_is_recorded_as_crashed_for_good(
        self, cycles: CycleStage
    ) -> None:
        await cycles.register(CLEANUP)
        slot = cycles.slot()
        old = await cycles.hold(slot)
        died = cycles.stage.now
        cycles.stage.pass_time(ms=LEASE_MS)
        new = await cycles.hold(slot)
        await cycles.complete(old)
        by_id = {each.id: each for each in await cycles.runs()}
        assert by_id[old.run_id].outcome == "crashed"
        assert by_id[old.run_id].finished_at == died
        assert by_id[new.run_id].outcome == "running"

    async def test_runs_of_one_name_and_of_all_are_listed_newest_first(
        self, cycles: CycleStage
    ) -> None:
        stage = cycles.stage
        for name in ("tick", CLEANUP, "tick"):
            stage.pass_time(seconds=1)
            run = NewRun(stage.new_id(), name, WORKER)
            assert await stage.run(stage.store.runs.begin(run, stage.now)) == stage.now
            assert await stage.run(
                stage.store.runs.finish(run.id, "completed", "{}", None, stage.now)
            )
        assert [each.name for each in await cycles.runs(None)] == ["tick", CLEANUP, "tick"]
        ticks = await cycles.runs("tick")
        assert [each.started_at for each in ticks] == [stage.now, stage.now - 2 * SECOND]

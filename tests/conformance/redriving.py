"""Redrives at a rate: what they have left, whose turn it is, and what is gone with them."""

from __future__ import annotations

from holdfast.commands.redrives import continue_redrive, redrive_dead_letters
from holdfast.core.ids import id_at
from holdfast.core.records import RedriveRecord
from holdfast.storage.operation import at
from tests.conformance.harness import MAIL, SECOND, Conformance, StoreFixture


class PacedRedriveConformance(Conformance):
    """What a redrive at a rate re-queues, and when."""

    async def _plan(self, fixture: StoreFixture, count: int, rate: float) -> str:
        ids = [(await fixture.finish_new("fail", error="Boom: no")).id for _ in range(count)]
        redrive_id = fixture.new_id()
        op = at(redrive_dead_letters(fixture.store, ids, rate, redrive_id), fixture.now)
        assert sorted((await fixture.run(op)).answer) == sorted(ids)
        return redrive_id

    async def _step(self, fixture: StoreFixture, id: str, *types: str) -> int | None:
        op = at(continue_redrive(fixture.store, id, types or (MAIL,)), fixture.now)
        step = await fixture.run(op)
        return None if step is None else len(step.change.answer)

    async def test_few_are_re_queued_until_these_start(self, fixture: StoreFixture) -> None:
        redrive_id = await self._plan(fixture, 10, 20)
        redrives = fixture.store.redrives
        assert await fixture.run(redrives.under_way()) == [RedriveRecord(redrive_id, 50_000, 10)]
        assert await fixture.run(redrives.find([MAIL])) == [redrive_id]
        assert await self._step(fixture, redrive_id) == 6
        assert len(await fixture.claim()) == 1
        # As after an outage: what should have been re-queued meanwhile is not made up for.
        fixture.pass_time(seconds=60)
        assert await self._step(fixture, redrive_id) == 4
        assert await fixture.run(redrives.under_way()) == []
        assert await self._step(fixture, redrive_id) is None

    async def test_one_that_cannot_start_holds_up_the_others(self, fixture: StoreFixture) -> None:
        redrive_id = await self._plan(fixture, 3, 1)
        for expected in (1, 0, 0):
            assert await self._step(fixture, redrive_id) == expected
            fixture.pass_time(seconds=2)
        assert len(await fixture.claim()) == 1
        assert await self._step(fixture, redrive_id) == 1

    async def test_only_types_that_are_handled_are_re_queued(self, fixture: StoreFixture) -> None:
        redrive_id = await self._plan(fixture, 2, 1)
        assert await fixture.run(fixture.store.redrives.find(["other"])) == []
        assert await self._step(fixture, redrive_id, "other") == 0
        (left,) = await fixture.run(fixture.store.redrives.under_way())
        assert left.left == 2

    async def test_an_old_one_is_removed_with_what_was_left_of_it(
        self, fixture: StoreFixture
    ) -> None:
        before = await fixture.harness.contents()
        redrive_id = fixture.new_id()
        job = await fixture.finish_new("fail", error="Boom: no")
        await fixture.run(
            at(redrive_dead_letters(fixture.store, [job.id], 1, redrive_id), fixture.now)
        )
        drop = fixture.store.retention.drop_redrives
        assert await fixture.run(drop(redrive_id, 10)) == 0
        later = id_at(fixture.now + 10**6 * SECOND)
        assert await fixture.run(drop(later, 10)) == 2
        await fixture.run(fixture.store.chains.delete([job.id]))
        assert (await fixture.harness.contents()).keys() == before.keys()
        assert await fixture.run(fixture.store.redrives.under_way(job.id)) == []

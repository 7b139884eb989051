"""Deleting chains with everything that belongs to them, and what stands in the way."""

from __future__ import annotations

from holdfast.core.records import NewKey, Reference
from holdfast.testing.conformance.counters import counters_equal_rows
from holdfast.testing.conformance.stage import MAIL, Conformance, Stage


class DeletingConformance(Conformance):
    """A deleted chain leaves nothing, and others lose nothing."""

    async def test_a_deleted_chain_leaves_nothing_but_counts(self, stage: Stage) -> None:
        blocker = await stage.start("blocker")
        first = await stage.start(key="k")
        key = NewKey(MAIL, "k", first.id)
        await stage.run(stage.store.chains.claim_keys([key], stage.now))
        (job,) = await stage.claim()
        await stage.finish_as(job, "retry", error="Boom: no")
        await stage.run(stage.store.leases.free([job.token]))
        (job,) = await stage.claim()
        successor = stage.next_job(job, blockers=1)
        await stage.finish_as(job, "continue", next=successor)
        await stage.run(stage.store.leases.free([job.token]))
        waiting = await stage.start_blocked(blocker.id, type="waiting")
        deleted = await stage.run(stage.store.chains.delete([first.id], stage.now))
        assert sorted(deleted) == [first.id, successor.id]
        for table, rows in (await stage.harness.contents()).items():
            assert not any(first.id in row or successor.id in row for row in rows), table
        assert {row.id for row in await stage.read_all()} == {blocker.id, waiting.id}
        await stage.run(counters_equal_rows(stage))

    async def test_a_chain_is_deleted_in_any_state(self, stage: Stage) -> None:
        running = await stage.start_running("a")
        failed = await stage.start_running("b")
        await stage.finish_as(failed, "fail")
        pending = await stage.start("c")
        chains = [running.id, failed.id, pending.id]
        assert sorted(await stage.run(stage.store.chains.delete(chains, stage.now))) == chains
        assert (await stage.stand(running)).standing == "gone"
        assert not await stage.finish_as(running, "complete")
        await stage.run(counters_equal_rows(stage))

    async def test_an_unknown_chain_deletes_nothing(self, stage: Stage) -> None:
        await stage.start()
        before = await stage.harness.contents()
        assert await stage.run(stage.store.chains.delete([stage.new_id()], stage.now)) == []
        assert await stage.harness.contents() == before

    async def test_references_are_the_open_edges_from_other_chains(self, stage: Stage) -> None:
        blocker, closed = await stage.start("a"), await stage.start("b")
        waiting = await stage.start_blocked(blocker.id, type="c")
        waited = await stage.start_blocked(closed.id, type="d")
        await stage.run(stage.store.blockers.close([(closed.id, "completed")]))
        references = stage.store.chains.references
        assert await stage.run(references([blocker.id, closed.id])) == [
            Reference(blocker.id, waiting.id, waiting.chain_id)
        ]
        assert await stage.run(references([blocker.id, waiting.id, waited.id])) == []

    async def test_the_way_down_knows_every_blocker_of_every_job(self, stage: Stage) -> None:
        first, second = await stage.start("a"), await stage.start("b")
        job = await stage.start_running()
        successor = stage.next_job(job)
        await stage.finish_as(job, "continue", next=successor)
        waiting = await stage.start_blocked(first.id, second.id, type="c")
        await stage.run(stage.store.blockers.close([(first.id, "completed")]))
        blocking = stage.store.chains.blocking
        assert await stage.run(blocking([waiting.id])) == {first.id, second.id}
        assert await stage.run(blocking([job.chain_id])) == set()

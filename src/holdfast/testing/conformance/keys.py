"""Deduplication: of all chains started under one key, one at a time stands for the others."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.core.records import Ending, NewJob, NewKey
from holdfast.storage.operation import Op
from holdfast.testing.conformance.harness import OpenTransaction
from holdfast.testing.conformance.stage import MAIL, SECOND, Conformance, Stage

PRODUCERS = 64
# So many that producers of the same ones certainly meet.
MANY_KEYS = 500
KEY = "order-1"


def _starting(stage: Stage, job: NewJob, **options: Any) -> Op[bool]:
    """Start a chain under the key; answer whether it was the one."""
    key = NewKey(**{"type": job.type, "key": KEY, "chain_id": job.id} | options)
    won = yield from stage.store.chains.claim_keys([key], stage.now)
    if won:
        yield from stage.store.jobs.insert([job], now=stage.now)
    return job.id in won


async def _start(stage: Stage, **options: Any) -> NewJob | None:
    """Start a chain under the key; return it if it was the one."""
    job = stage.job(options.pop("type", MAIL), key=KEY)
    return job if await stage.run(_starting(stage, job, **options)) else None


async def _started(stage: Stage, **options: Any) -> NewJob:
    job = await _start(stage, **options)
    assert job is not None
    return job


async def _holder(stage: Stage, type: str = MAIL) -> str:
    (holder,) = await stage.run(stage.store.chains.key_holders([(type, KEY)]))
    assert (holder.type, holder.key) == (type, KEY)
    return holder.chain_id


class KeyConformance(Conformance):
    """Who gets a key, and when it is free again."""

    async def test_a_key_belongs_to_the_first_chain(self, stage: Stage) -> None:
        first = await _started(stage)
        before = await stage.harness.contents()
        assert await _start(stage) is None
        assert await stage.harness.contents() == before
        assert await _holder(stage) == first.id

    async def test_each_type_has_keys_of_its_own(self, stage: Stage) -> None:
        mail, push = await _started(stage), await _started(stage, type="push")
        assert await _holder(stage) == mail.id
        assert await _holder(stage, "push") == push.id

    async def test_many_keys_are_claimed_at_once(self, stage: Stage) -> None:
        taken = await _started(stage)
        keys = [NewKey(MAIL, key, stage.new_id()) for key in ("order-3", KEY, "order-2")]
        won = await stage.run(stage.store.chains.claim_keys(keys, stage.now))
        assert won == {keys[0].chain_id, keys[2].chain_id}
        pairs = [(MAIL, key.key) for key in keys] + [(MAIL, "nobody's")]
        holders = await stage.run(stage.store.chains.key_holders(pairs))
        assert {(each.key, each.chain_id) for each in holders} == {
            ("order-3", keys[0].chain_id),
            (KEY, taken.id),
            ("order-2", keys[2].chain_id),
        }

    async def test_a_running_chain_holds_its_key(self, stage: Stage) -> None:
        await _started(stage)
        await stage.claim()
        assert await _start(stage) is None

    async def test_a_completed_chain_frees_its_key(self, stage: Stage) -> None:
        await _started(stage)
        (job,) = await stage.claim()
        await stage.finish_as(job, "complete")
        second = await _started(stage)
        assert await _holder(stage) == second.id
        assert await _start(stage) is None

    async def test_a_cancelled_chain_frees_its_key(self, stage: Stage) -> None:
        job = await _started(stage)
        await stage.run(stage.store.jobs.end([Ending(job.id, "cancelled")], stage.now))
        assert await _start(stage) is not None

    async def test_a_failed_chain_holds_its_key_until_it_has_ended_well(self, stage: Stage) -> None:
        await _started(stage)
        (job,) = await stage.claim()
        await stage.finish_as(job, "fail")
        assert await _start(stage) is None
        await stage.run(stage.store.jobs.redrive([job.id], now=stage.now))
        assert await _start(stage) is None
        (job,) = await stage.claim()
        await stage.finish_as(job, "complete")
        assert await _start(stage) is not None

    async def test_a_chain_that_goes_on_holds_its_key_to_its_end(self, stage: Stage) -> None:
        await _started(stage)
        (first,) = await stage.claim()
        await stage.finish_as(first, "continue", next=stage.next_job(first))
        assert await _start(stage) is None
        (second,) = await stage.claim("next")
        await stage.finish_as(second, "complete")
        assert await _start(stage) is not None

    async def test_a_key_of_any_scope_is_never_free_again(self, stage: Stage) -> None:
        await _started(stage, scope="any")
        (job,) = await stage.claim()
        await stage.finish_as(job, "complete")
        assert await _start(stage, scope="any") is None

    async def test_a_window_ends_at_its_time_and_not_before(self, stage: Stage) -> None:
        await _started(stage, scope="any", window_ms=1_000)
        stage.now += SECOND - 1
        assert await _start(stage, scope="any", window_ms=1_000) is None
        stage.now += 1
        second = await _started(stage, scope="any", window_ms=1_000)
        assert await _holder(stage) == second.id
        assert await _start(stage, scope="any", window_ms=1_000) is None

    async def test_an_excluded_chain_does_not_hold_its_key(self, stage: Stage) -> None:
        first = await _started(stage)
        assert await _start(stage, exclude=[stage.new_id()]) is None
        second = await _started(stage, exclude=[stage.new_id(), first.id])
        assert await _holder(stage) == second.id

    async def test_a_deleted_chain_frees_its_key(self, stage: Stage) -> None:
        first = await _started(stage)
        await stage.run(stage.store.chains.delete([first.id], stage.now))
        pairs = [(MAIL, KEY)]
        assert await stage.run(stage.store.chains.key_holders(pairs)) == []
        assert await _start(stage) is not None

    async def test_deleting_a_chain_leaves_a_key_that_passed_to_another(self, stage: Stage) -> None:
        first = await _started(stage)
        second = await _started(stage, exclude=[first.id])
        await stage.run(stage.store.chains.delete([first.id], stage.now))
        assert await _holder(stage) == second.id


class ConcurrentKeysConformance(Conformance):
    """Producers of one key at once."""

    async def test_of_many_producers_at_once_exactly_one_wins(self, stage: Stage) -> None:
        transactions = await asyncio.gather(*(stage.harness.begin() for _ in range(PRODUCERS)))

        async def produce(transaction: OpenTransaction) -> str | None:
            job = stage.job(key=KEY)
            won = await transaction.run(_starting(stage, job))
            await transaction.commit()
            return job.id if won else None

        produced = await asyncio.gather(*(produce(each) for each in transactions))
        winners = [job_id for job_id in produced if job_id is not None]
        assert winners == [await _holder(stage)]
        assert [row.id for row in await stage.read_all()] == winners

    async def test_whoever_waited_gets_the_key_of_a_producer_that_rolled_back(
        self, stage: Stage
    ) -> None:
        transaction = await stage.harness.begin()
        job = stage.job(key=KEY)
        assert await transaction.run(_starting(stage, job))
        waiting = asyncio.create_task(_start(stage))
        await transaction.rollback()
        second = await waiting
        assert second is not None
        assert await _holder(stage) == second.id

    async def test_whoever_waited_loses_to_a_producer_that_committed(self, stage: Stage) -> None:
        transaction = await stage.harness.begin()
        job = stage.job(key=KEY)
        assert await transaction.run(_starting(stage, job))
        waiting = asyncio.create_task(_start(stage))
        await transaction.commit()
        assert await waiting is None
        assert await _holder(stage) == job.id

    async def test_producers_of_the_same_keys_in_any_order_do_not_deadlock(
        self, stage: Stage
    ) -> None:
        names = [f"order-{number}" for number in range(MANY_KEYS)]
        transactions = await asyncio.gather(*(stage.harness.begin() for _ in range(8)))

        async def produce(transaction: OpenTransaction, order: list[str]) -> set[str]:
            keys = [NewKey(MAIL, name, stage.new_id()) for name in order]
            won = await transaction.run(stage.store.chains.claim_keys(keys, stage.now))
            await transaction.commit()
            return won

        # Half of them name the keys forwards, half backwards.
        won = await asyncio.gather(
            *(produce(each, names[:: (-1) ** n]) for n, each in enumerate(transactions))
        )
        assert sorted(len(each) for each in won) == [0] * 7 + [MANY_KEYS]
        holders = await stage.run(stage.store.chains.key_holders([(MAIL, name) for name in names]))
        assert {each.chain_id for each in holders} == max(won, key=len)

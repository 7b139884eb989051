"""Starting: a job's first row, deduplication by keys, subscriptions, and events published before any of those."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.core.records import Ending, KeyHolder, NewJob, NewKey, TakenKey
from holdfast.core.subscriptions import Subscription, WaitingEvent
from holdfast.storage.operation import Op
from tests.conformance.harness import MAIL, SECOND, Conformance, OpenTransaction, StoreFixture
from tests.conformance.workers import counters_equal_rows


class StartingConformance(Conformance):
    """A job is kept as it was asked for."""

    async def test_a_started_job_keeps_what_was_asked(self, fixture: StoreFixture) -> None:
        asked = fixture.job(
            input='{"a": 1}',
            priority=0,
            key="k",
            trace="00-t-01",
            max_attempts=3,
            at=fixture.now + SECOND,
            version=2,
        )
        await fixture.start_all([asked])
        record = await fixture.read(asked.id)
        assert (record.id, record.chain_id, record.chain_index) == (asked.id, asked.id, 0)
        assert (record.type, record.input, record.priority) == ("mail", '{"a": 1}', 0)
        assert (record.key, record.trace, record.max_attempts) == ("k", "00-t-01", 3)
        assert record.version == 2
        assert (await fixture.read((await fixture.start()).id)).version == 1
        assert (record.created_at, record.planned_at) == (fixture.now, fixture.now + SECOND)
        assert (record.state, record.available_at) == ("pending", fixture.now + SECOND)
        assert (record.attempt, record.crashes, record.fence) == (0, 0, 0)
        assert (record.worker, record.started_at, record.finished_at) == (None, None, None)

    async def test_a_start_repeated_after_an_unknown_commit_is_harmless(
        self, fixture: StoreFixture
    ) -> None:
        first = await fixture.start()
        before = await fixture.harness.contents()
        second = fixture.job()
        assert await fixture.run(fixture.store.jobs.insert([first], now=fixture.now)) == set()
        assert await fixture.harness.contents() == before
        written = await fixture.run(fixture.store.jobs.insert([first, second], now=fixture.now))
        assert written == {second.id}
        await fixture.run(counters_equal_rows(fixture))

    async def test_a_blocked_job_shows_no_due_time(self, fixture: StoreFixture) -> None:
        blocker = await fixture.start()
        job = await fixture.start_blocked(blocker.id)
        record = await fixture.read(job.id)
        assert (record.state, record.available_at) == ("blocked", None)

    async def test_thousands_of_jobs_are_written_at_once(self, fixture: StoreFixture) -> None:
        await fixture.start_all([fixture.job(f"type-{n % 3}") for n in range(3_000)])
        await fixture.run(counters_equal_rows(fixture))


PRODUCERS = 64
# So many that producers of the same ones certainly meet.
MANY_KEYS = 500
KEY = "order-1"


def _use(fixture: StoreFixture) -> Op[bool]:
    return fixture.store.chains.use_key("used calls", KEY, fixture.now)


def _start_op(fixture: StoreFixture, job: NewJob, **options: Any) -> Op[bool]:
    """Start a chain under the key; answer whether it was the one."""
    key = NewKey(**{"type": job.type, "key": KEY, "chain_id": job.id} | options)
    won = yield from fixture.store.chains.claim_keys([key], fixture.now)
    if won:
        yield from fixture.store.jobs.insert([job], now=fixture.now)
    return job.id in won


async def _start(fixture: StoreFixture, **options: Any) -> NewJob | None:
    """Start a chain under the key; return it if it was the one."""
    job = fixture.job(options.pop("type", MAIL), key=KEY)
    return job if await fixture.run(_start_op(fixture, job, **options)) else None


async def _start_one(fixture: StoreFixture, **options: Any) -> NewJob:
    job = await _start(fixture, **options)
    assert job is not None
    return job


async def _holder(fixture: StoreFixture, type: str = MAIL) -> str:
    (holder,) = await fixture.run(fixture.store.chains.key_holders([(type, KEY)]))
    assert (holder.type, holder.key) == (type, KEY)
    return holder.chain_id


class KeyConformance(Conformance):
    """Who gets a key, and when it is free again."""

    async def test_a_key_belongs_to_the_first_chain(self, fixture: StoreFixture) -> None:
        first = await _start_one(fixture)
        before = await fixture.harness.contents()
        assert await _start(fixture) is None
        assert await fixture.harness.contents() == before
        assert await _holder(fixture) == first.id

    async def test_each_type_has_keys_of_its_own(self, fixture: StoreFixture) -> None:
        mail, push = await _start_one(fixture), await _start_one(fixture, type="push")
        assert await _holder(fixture) == mail.id
        assert await _holder(fixture, "push") == push.id

    async def test_many_keys_are_claimed_at_once(self, fixture: StoreFixture) -> None:
        taken = await _start_one(fixture)
        keys = [NewKey(MAIL, key, fixture.new_id()) for key in ("order-3", KEY, "order-2")]
        won = await fixture.run(fixture.store.chains.claim_keys(keys, fixture.now))
        assert won == {keys[0].chain_id, keys[2].chain_id}
        pairs = [(MAIL, key.key) for key in keys] + [(MAIL, "nobody's")]
        holders = await fixture.run(fixture.store.chains.key_holders(pairs))
        assert {(each.key, each.chain_id) for each in holders} == {
            ("order-3", keys[0].chain_id),
            (KEY, taken.id),
            ("order-2", keys[2].chain_id),
        }

    async def test_a_running_chain_holds_its_key(self, fixture: StoreFixture) -> None:
        await _start_one(fixture)
        await fixture.claim()
        assert await _start(fixture) is None

    async def test_a_completed_chain_frees_its_key(self, fixture: StoreFixture) -> None:
        await _start_one(fixture)
        await fixture.finish_next("complete")
        second = await _start_one(fixture)
        assert await _holder(fixture) == second.id
        assert await _start(fixture) is None

    async def test_a_cancelled_chain_frees_its_key(self, fixture: StoreFixture) -> None:
        job = await _start_one(fixture)
        await fixture.run(fixture.store.jobs.end([Ending(job.id, "cancelled")], fixture.now))
        assert await _start(fixture) is not None

    async def test_a_failed_chain_holds_its_key_until_it_has_ended_well(
        self, fixture: StoreFixture
    ) -> None:
        await _start_one(fixture)
        job = await fixture.finish_next("fail")
        assert await _start(fixture) is None
        await fixture.run(fixture.store.jobs.redrive([job.id], now=fixture.now))
        assert await _start(fixture) is None
        await fixture.finish_next("complete")
        assert await _start(fixture) is not None

    async def test_a_chain_that_goes_on_holds_its_key_to_its_end(
        self, fixture: StoreFixture
    ) -> None:
        await _start_one(fixture)
        await fixture.finish_next("continue")
        assert await _start(fixture) is None
        await fixture.finish_next("complete", "next")
        assert await _start(fixture) is not None

    async def test_a_key_of_any_scope_is_never_free_again(self, fixture: StoreFixture) -> None:
        await _start_one(fixture, scope="any")
        await fixture.finish_next("complete")
        assert await _start(fixture, scope="any") is None

    async def test_a_window_ends_at_its_time_and_not_before(self, fixture: StoreFixture) -> None:
        await _start_one(fixture, scope="any", window_ms=1_000)
        fixture.now += SECOND - 1
        assert await _start(fixture, scope="any", window_ms=1_000) is None
        fixture.now += 1
        second = await _start_one(fixture, scope="any", window_ms=1_000)
        assert await _holder(fixture) == second.id
        assert await _start(fixture, scope="any", window_ms=1_000) is None

    async def test_an_excluded_chain_does_not_hold_its_key(self, fixture: StoreFixture) -> None:
        first = await _start_one(fixture)
        assert await _start(fixture, exclude=[fixture.new_id()]) is None
        second = await _start_one(fixture, exclude=[fixture.new_id(), first.id])
        assert await _holder(fixture) == second.id

    async def test_a_deleted_chain_frees_its_key(self, fixture: StoreFixture) -> None:
        first = await _start_one(fixture)
        await fixture.run(fixture.store.chains.delete([first.id], fixture.now))
        pairs = [(MAIL, KEY)]
        assert await fixture.run(fixture.store.chains.key_holders(pairs)) == []
        assert await _start(fixture) is not None

    async def test_deleting_a_chain_leaves_a_key_that_passed_to_another(
        self, fixture: StoreFixture
    ) -> None:
        first = await _start_one(fixture)
        second = await _start_one(fixture, exclude=[first.id])
        await fixture.run(fixture.store.chains.delete([first.id], fixture.now))
        assert await _holder(fixture) == second.id

    async def test_a_key_that_is_claimed_before_its_chain_is_written_is_held(
        self, fixture: StoreFixture
    ) -> None:
        first, second = (NewKey(MAIL, KEY, fixture.new_id()) for _ in range(2))
        claim = fixture.store.chains.claim_keys
        assert await fixture.run(claim([first], fixture.now)) == {first.chain_id}
        assert await fixture.run(claim([second], fixture.now)) == set()

    async def test_a_key_whose_chain_came_back_is_held_again(self, fixture: StoreFixture) -> None:
        first = await _start_one(fixture, scope="any")
        delete = fixture.store.chains.delete
        await fixture.run(delete([first.id], fixture.now, keep_keys=True))
        await fixture.start_all([first])
        assert await _start(fixture) is None
        await fixture.run(delete([first.id], fixture.now, keep_keys=True))
        assert await _start(fixture) is not None

    async def test_a_key_outlives_its_chain_if_any_claim_said_so(
        self, fixture: StoreFixture
    ) -> None:
        async def is_kept(type: str) -> bool:
            (holder,) = await fixture.run(fixture.store.chains.key_holders([(type, KEY)]))
            return holder.kept

        usual = await _start_one(fixture, type="usual")
        await _start_one(fixture, type="window", scope="any", window_ms=1_000)
        lasting = await _start_one(fixture, type="lasting", scope="any")
        types = ("usual", "window", "lasting")
        assert [await is_kept(type) for type in types] == [False, False, True]
        await _start_one(fixture, type="usual", scope="any", exclude=[usual.id])
        await _start_one(fixture, type="lasting", exclude=[lasting.id])
        assert [await is_kept(type) for type in types] == [True, False, True]

    async def test_only_the_key_that_is_named_is_kept_or_taken_over(
        self, fixture: StoreFixture
    ) -> None:
        keys = [NewKey(*each, fixture.new_id()) for each in ((MAIL, KEY), (MAIL, "2"), ("b", KEY))]
        chains = fixture.store.chains
        await fixture.run(chains.claim_keys(keys, fixture.now))
        await fixture.run(chains.keep_keys([(MAIL, KEY)]))
        heir = fixture.new_id()
        stranger = TakenKey(MAIL, KEY, fixture.new_id(), keys[1].chain_id)
        assert await fixture.run(chains.take_keys([stranger])) == set()
        taken = TakenKey(MAIL, KEY, heir, keys[0].chain_id)
        assert await fixture.run(chains.take_keys([taken])) == {heir}
        expected = [
            KeyHolder(MAIL, KEY, heir, kept=True),
            KeyHolder(MAIL, "2", keys[1].chain_id),
            KeyHolder("b", KEY, keys[2].chain_id),
        ]
        for holder in expected:
            asked = [(holder.type, holder.key)]
            assert await fixture.run(chains.key_holders(asked)) == [holder]


class ConcurrentKeysConformance(Conformance):
    """Producers of one key at once."""

    async def test_of_many_producers_at_once_exactly_one_wins(self, fixture: StoreFixture) -> None:
        transactions = await asyncio.gather(*(fixture.harness.begin() for _ in range(PRODUCERS)))

        async def produce(transaction: OpenTransaction) -> str | None:
            job = fixture.job(key=KEY)
            won = await transaction.run(_start_op(fixture, job))
            await transaction.commit()
            return job.id if won else None

        produced = await asyncio.gather(*(produce(each) for each in transactions))
        winners = [job_id for job_id in produced if job_id is not None]
        assert winners == [await _holder(fixture)]
        assert [row.id for row in await fixture.read_all()] == winners

    @pytest.mark.parametrize("committed", [True, False])
    async def test_a_producer_that_waited_gets_a_key_unless_the_first_one_committed(
        self, fixture: StoreFixture, committed: bool
    ) -> None:
        transaction = await fixture.harness.begin()
        first = fixture.job(key=KEY)
        assert await transaction.run(_start_op(fixture, first))
        waiting = asyncio.create_task(_start(fixture))
        await (transaction.commit() if committed else transaction.rollback())
        second = await waiting
        assert (second is None) is committed
        assert await _holder(fixture) == (second or first).id

    async def test_a_used_key_is_used_once_in_its_scope(self, fixture: StoreFixture) -> None:
        assert await fixture.run(_use(fixture))
        assert not await fixture.run(_use(fixture))
        assert await fixture.run(fixture.store.chains.use_key("used other", KEY, fixture.now))
        # A chain of the same key is another matter.
        assert await _start(fixture)

    @pytest.mark.parametrize("committed", [True, False])
    async def test_who_waited_for_the_first_use_of_a_key_is_the_first_unless_that_committed(
        self, fixture: StoreFixture, committed: bool
    ) -> None:
        transaction = await fixture.harness.begin()
        assert await transaction.run(_use(fixture))
        waiting = asyncio.create_task(fixture.run(_use(fixture)))
        await (transaction.commit() if committed else transaction.rollback())
        assert await waiting is not committed

    async def test_producers_of_the_same_keys_in_any_order_do_not_deadlock(
        self, fixture: StoreFixture
    ) -> None:
        names = [f"order-{number}" for number in range(MANY_KEYS)]
        transactions = await asyncio.gather(*(fixture.harness.begin() for _ in range(8)))

        async def produce(transaction: OpenTransaction, order: list[str]) -> set[str]:
            keys = [NewKey(MAIL, name, fixture.new_id()) for name in order]
            won = await transaction.run(fixture.store.chains.claim_keys(keys, fixture.now))
            await transaction.commit()
            return won

        # Half of them name the keys forwards, half backwards.
        won = await asyncio.gather(
            *(produce(each, names[:: (-1) ** n]) for n, each in enumerate(transactions))
        )
        assert sorted(len(each) for each in won) == [0] * 7 + [MANY_KEYS]
        holders = await fixture.run(
            fixture.store.chains.key_holders([(MAIL, name) for name in names])
        )
        assert {each.chain_id for each in holders} == max(won, key=len)


PLACED = "order.placed"
MAIL_RECEIPT = Subscription(PLACED, "mail_receipt")
CHARGE = Subscription(PLACED, "charge")
OTHER = Subscription("order.shipped", "mail_receipt")


class SubscriptionConformance(Conformance):
    """Who gets which event."""

    async def test_subscriptions_are_registered_once(self, fixture: StoreFixture) -> None:
        subscribe = fixture.store.events.subscribe
        assert await fixture.run(subscribe([MAIL_RECEIPT])) == [MAIL_RECEIPT]
        assert await fixture.run(subscribe([MAIL_RECEIPT, CHARGE])) == [CHARGE]
        assert await fixture.run(subscribe([MAIL_RECEIPT, CHARGE])) == []

    async def test_an_event_lists_its_own_subscriptions(self, fixture: StoreFixture) -> None:
        await fixture.run(fixture.store.events.subscribe([MAIL_RECEIPT, CHARGE, OTHER]))
        subscriptions = fixture.store.events.subscriptions
        assert await fixture.run(subscriptions([PLACED])) == [CHARGE, MAIL_RECEIPT]
        assert await fixture.run(subscriptions([PLACED, OTHER.event, "unknown"])) == [
            CHARGE,
            MAIL_RECEIPT,
            OTHER,
        ]
        assert await fixture.run(subscriptions([])) == []

    async def test_all_subscriptions_are_listed_with_since_when(
        self, fixture: StoreFixture
    ) -> None:
        assert await fixture.run(fixture.store.events.page(10)) == []
        await fixture.run(fixture.store.events.subscribe([OTHER, MAIL_RECEIPT]))
        clock = await fixture.run(fixture.store.schema.clock())
        await fixture.run(fixture.store.events.subscribe([CHARGE, MAIL_RECEIPT]))
        found = await fixture.run(fixture.store.events.page(10))
        assert [each.job_type for each in found] == [
            CHARGE.job_type,
            MAIL_RECEIPT.job_type,
            OTHER.job_type,
        ]
        assert found[1].created_at <= clock <= found[0].created_at
        assert await fixture.run(fixture.store.events.page(1)) == found[:1]

    async def test_a_removed_subscription_is_gone(self, fixture: StoreFixture) -> None:
        await fixture.run(fixture.store.events.subscribe([MAIL_RECEIPT, CHARGE]))
        assert await fixture.run(fixture.store.events.unsubscribe([CHARGE, OTHER])) == [CHARGE]
        assert await fixture.run(fixture.store.events.subscriptions([PLACED])) == [MAIL_RECEIPT]


class WaitingEventConformance(Conformance):
    """Events nobody had subscribed to yet."""

    async def test_waiting_events_are_read_as_they_were_published(
        self, fixture: StoreFixture
    ) -> None:
        at = fixture.now + SECOND
        first = await fixture.start(PLACED, input='{"id": 1}')
        second = await fixture.start(PLACED, input='{"id": 2}', priority=1, trace="00-t", at=at)
        await fixture.start(OTHER.event)
        assert await fixture.run(fixture.store.events.waiting(PLACED, 10)) == [
            WaitingEvent(first.id, PLACED, '{"id": 1}', 5, None, None),
            WaitingEvent(second.id, PLACED, '{"id": 2}', 1, "00-t", at),
        ]
        (oldest,) = await fixture.run(fixture.store.events.waiting(PLACED, 1))
        assert oldest.id == first.id

    async def test_an_event_that_runs_is_not_waiting(self, fixture: StoreFixture) -> None:
        await fixture.start_running(PLACED)
        assert await fixture.run(fixture.store.events.waiting(PLACED, 10)) == []

    async def test_only_jobs_of_the_type_that_have_been_due_for_so_long_are_read(
        self, fixture: StoreFixture
    ) -> None:
        unhandled = fixture.store.events.unhandled
        first = await fixture.start(PLACED)
        await fixture.start(PLACED, at=fixture.now + 2 * SECOND)
        await fixture.start(OTHER.event)
        fixture.now += SECOND
        second = await fixture.start(PLACED)
        now = fixture.now
        assert await fixture.run(unhandled(PLACED, 1_001, 10, now)) == []
        assert await fixture.run(unhandled(PLACED, 1_000, 10, now)) == [first.id]
        assert await fixture.run(unhandled(PLACED, 0, 10, now)) == [first.id, second.id]
        assert await fixture.run(unhandled(PLACED, 0, 1, now)) == [first.id]

    async def test_a_job_that_runs_is_not_unhandled(self, fixture: StoreFixture) -> None:
        await fixture.start_running(PLACED)
        found = await fixture.run(fixture.store.events.unhandled(PLACED, 0, 10, fixture.now))
        assert found == []

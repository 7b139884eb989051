"""Presence of workers, settings of types, and totals, which are sums of appended counts and must equal the rows."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec

from holdfast.core.records import LIVE, FinishKind, JobRecord, TypeSetting
from holdfast.core.statistics import TypeTotals
from holdfast.core.worker_presence import VanishedWorker, WorkerRecord, WorkerSign
from holdfast.storage.operation import Op
from holdfast.storage.store.pagination import JobQuery
from tests.conformance.harness import MAIL, SECOND, Conformance, StoreFixture

# Above what any test writes, so that nothing is cut off.
BOUND = 10_000


def counters_equal_rows(fixture: StoreFixture) -> Op[None]:
    """Compare the totals, overall and per type, with the jobs themselves."""
    rows = yield from fixture.store.jobs.page(JobQuery(limit=BOUND), fixture.now)
    told = yield from _totals_equal(fixture, rows)
    assert told == (yield from fixture.store.workers.type_totals(fixture.now))
    types = {row.type for row in rows} | {each.type for each in told}
    assert told == [
        _type_totals(type, [row for row in rows if row.type == type], fixture.now)
        for type in sorted(types)
    ]
    due = yield from fixture.store.workers.due(sorted(types), BOUND, fixture.now)
    assert due == {
        type: len(_due([row for row in rows if row.type == type], fixture.now)) for type in types
    }


def _totals_equal(fixture: StoreFixture, rows: list[JobRecord]) -> Op[list[TypeTotals]]:
    states = Counter(row.state for row in rows)
    due = _due(rows, fixture.now)
    totals, types = yield from fixture.store.workers.totals(BOUND, fixture.now)
    assert totals.live == sum(states[state] for state in LIVE)
    assert totals.blocked == states["blocked"]
    assert totals.running == states["running"]
    assert totals.due == len(due)
    assert totals.oldest_due_at == min(due, default=None)
    assert totals.completed == states["completed"]
    assert totals.failed == states["failed"]
    assert totals.cancelled == states["cancelled"]
    assert not totals.bounded
    return types


def _type_totals(type: str, rows: list[JobRecord], now: int) -> TypeTotals:
    states = Counter(row.state for row in rows)
    return TypeTotals(
        type=type,
        live=sum(states[state] for state in LIVE),
        completed=states["completed"],
        failed=states["failed"],
        cancelled=states["cancelled"],
        oldest_due_at=min(_due(rows, now), default=None),
    )


def _due(rows: list[JobRecord], now: int) -> list[int]:
    return [
        row.available_at
        for row in rows
        if row.state == "pending" and row.available_at is not None and row.available_at <= now
    ]


SIGN = WorkerSign(
    id="worker-1",
    name="mailer",
    host="host-1",
    pid=4711,
    version="1.0",
    slots=10,
    types='["mail"]',
    counters='{"completed": 0}',
    last_error=None,
    live_ms=20_000,
    timings='{"shutdown_ms": 9}',
    leases='{"mail": 30000}',
)


class WorkerPresenceConformance(Conformance):
    """Heartbeats, stops, and workers that vanish without one."""

    async def _sign(self, fixture: StoreFixture, sign: WorkerSign = SIGN) -> bool:
        answer = await fixture.run(fixture.store.workers.sign(sign, fixture.now))
        return answer.is_draining

    async def _workers(self, fixture: StoreFixture, live: bool = False) -> list[WorkerRecord]:
        return await fixture.run(fixture.store.workers.page(10, live=live, now=fixture.now))

    async def test_the_first_sign_registers_a_worker(self, fixture: StoreFixture) -> None:
        assert await self._sign(fixture) is False
        assert await self._workers(fixture) == [
            WorkerRecord(
                id="worker-1",
                name="mailer",
                host="host-1",
                pid=4711,
                version="1.0",
                slots=10,
                types=["mail"],
                started_at=fixture.now,
                seen_at=fixture.now,
                stopped_at=None,
                draining=False,
                counters={"completed": 0},
                last_error=None,
                live_ms=20_000,
                back_at=None,
                timings={"shutdown_ms": 9},
                leases={"mail": 30_000},
            )
        ]

    async def test_later_signs_bring_it_up_to_date(self, fixture: StoreFixture) -> None:
        await self._sign(fixture)
        started = fixture.now
        fixture.pass_time(seconds=15)
        later = msgspec.structs.replace(
            SIGN, slots=5, types='["push"]', counters='{"completed": 7}', last_error="Boom"
        )
        await self._sign(fixture, later)
        (worker,) = await self._workers(fixture)
        assert (worker.started_at, worker.seen_at) == (started, fixture.now)
        assert (worker.slots, worker.types) == (5, ["push"])
        assert (worker.counters, worker.last_error) == ({"completed": 7}, "Boom")

    async def test_workers_are_listed_newest_first(self, fixture: StoreFixture) -> None:
        for number in range(3):
            await self._sign(fixture, msgspec.structs.replace(SIGN, id=f"worker-{number}"))
            fixture.pass_time(seconds=1)
        workers = await self._workers(fixture)
        assert [each.id for each in workers] == ["worker-2", "worker-1", "worker-0"]
        assert len(await fixture.run(fixture.store.workers.page(2, now=fixture.now))) == 2

    async def test_a_worker_that_stopped_is_not_live(self, fixture: StoreFixture) -> None:
        await self._sign(fixture)
        fixture.pass_time(seconds=1)
        stop = fixture.store.workers.stop("worker-1", '{"completed": 9}', fixture.now)
        await fixture.run(stop)
        (worker,) = await self._workers(fixture)
        assert (worker.stopped_at, worker.seen_at) == (fixture.now, fixture.now)
        assert worker.counters == {"completed": 9}
        assert not worker.is_missing(fixture.now)
        assert await self._workers(fixture, live=True) == []

    async def test_a_worker_is_live_for_as_long_as_its_sign_says(
        self, fixture: StoreFixture
    ) -> None:
        await self._sign(fixture)
        fixture.pass_time(ms=SIGN.live_ms - 1)
        (worker,) = await self._workers(fixture, live=True)
        assert worker.is_live(fixture.now)
        fixture.pass_time(ms=1)
        assert await self._workers(fixture, live=True) == []
        assert not worker.is_live(fixture.now)

    async def test_each_sign_says_anew_how_long_it_counts(self, fixture: StoreFixture) -> None:
        await self._sign(fixture)
        await self._sign(fixture, msgspec.structs.replace(SIGN, live_ms=60_000))
        fixture.pass_time(seconds=59)
        assert len(await self._workers(fixture, live=True)) == 1

    async def test_workers_are_read_by_id(self, fixture: StoreFixture) -> None:
        for id in ("a", "b", "c"):
            await self._sign(fixture, msgspec.structs.replace(SIGN, id=id))
        page = fixture.store.workers.page(10, ids=["c", "a", "x"], now=fixture.now)
        assert {each.id for each in await fixture.run(page)} == {"a", "c"}

    async def test_a_worker_whose_signs_lapsed_says_since_when_it_is_back(
        self, fixture: StoreFixture
    ) -> None:
        await self._sign(fixture)
        fixture.pass_time(ms=SIGN.live_ms - 1)
        await self._sign(fixture)
        (worker,) = await self._workers(fixture)
        assert worker.back_at is None
        assert worker.steady_since == worker.started_at
        fixture.pass_time(ms=SIGN.live_ms)
        assert worker.is_missing(fixture.now)
        back = fixture.now
        await self._sign(fixture)
        fixture.pass_time(seconds=1)
        await self._sign(fixture)
        (worker,) = await self._workers(fixture)
        assert worker.back_at == worker.steady_since == back
        assert not worker.is_missing(fixture.now)

    async def test_a_worker_learns_by_its_sign_that_it_must_drain(
        self, fixture: StoreFixture
    ) -> None:
        await self._sign(fixture)
        assert await fixture.run(fixture.store.workers.drain("worker-1", fixture.now)) is True
        assert await self._sign(fixture) is True
        (worker,) = await self._workers(fixture)
        assert worker.draining

    async def test_only_a_live_worker_can_be_asked_to_drain(self, fixture: StoreFixture) -> None:
        drain = fixture.store.workers.drain
        assert await fixture.run(drain("unknown", fixture.now)) is False
        await self._sign(fixture)
        await fixture.run(fixture.store.workers.stop("worker-1", "{}", fixture.now))
        assert await fixture.run(drain("worker-1", fixture.now)) is False
        await self._sign(fixture)
        fixture.pass_time(ms=SIGN.live_ms)
        assert await fixture.run(drain("worker-1", fixture.now)) is False
        (worker,) = await self._workers(fixture)
        assert not worker.draining

    async def test_a_vanished_worker_is_reported_to_one_caller(self, fixture: StoreFixture) -> None:
        await self._sign(fixture)
        seen = fixture.now
        fixture.pass_time(ms=SIGN.live_ms - 1)
        vanished = fixture.store.workers.mark_vanished
        assert await fixture.run(vanished(fixture.now)) == []
        fixture.pass_time(ms=1)
        reports = await asyncio.gather(*(fixture.run(vanished(fixture.now)) for _ in range(4)))
        assert sorted(reports) == [[], [], [], [VanishedWorker("worker-1", "mailer", seen)]]
        (worker,) = await self._workers(fixture)
        assert worker.stopped_at == seen
        assert worker.is_missing(fixture.now)

    async def test_a_worker_that_comes_back_is_live_again(self, fixture: StoreFixture) -> None:
        await self._sign(fixture)
        fixture.pass_time(ms=SIGN.live_ms)
        await fixture.run(fixture.store.workers.mark_vanished(fixture.now))
        await self._sign(fixture)
        (worker,) = await self._workers(fixture, live=True)
        assert (worker.stopped_at, worker.last_error) == (None, None)


class SettingsConformance(Conformance):
    """What is changed at run time, per type and for everything."""

    async def _settings(self, fixture: StoreFixture) -> list[TypeSetting]:
        return await fixture.run(fixture.store.workers.settings())

    async def test_a_pause_says_who_and_when(self, fixture: StoreFixture) -> None:
        put = fixture.store.workers.set_type
        await fixture.run(put(MAIL, paused=True, by="ana", now=fixture.now))
        assert await self._settings(fixture) == [TypeSetting(MAIL, True, "ana", fixture.now)]
        await fixture.run(put(MAIL, paused=False, by="bo", now=fixture.now))
        assert await self._settings(fixture) == [TypeSetting(MAIL)]

    async def test_what_is_not_named_stays(self, fixture: StoreFixture) -> None:
        put = fixture.store.workers.set_type
        await fixture.run(put(MAIL, paused=True, by="ana", now=fixture.now))
        paused_at = fixture.now
        fixture.pass_time(seconds=1)
        await fixture.run(put(MAIL, lease_ms=1, timeout_ms=2, concurrency=3, now=fixture.now))
        await fixture.run(put(MAIL, max_attempts=4, now=fixture.now))
        assert await self._settings(fixture) == [
            TypeSetting(MAIL, True, "ana", paused_at, 1, 2, 3, 4)
        ]

    async def test_minus_one_takes_a_value_back_to_the_codes_own(
        self, fixture: StoreFixture
    ) -> None:
        put = fixture.store.workers.set_type
        await fixture.run(put(MAIL, lease_ms=1, max_attempts=-1, now=fixture.now))
        await fixture.run(put(MAIL, lease_ms=-1, now=fixture.now))
        assert await self._settings(fixture) == [TypeSetting(MAIL)]

    async def test_everything_can_be_paused(self, fixture: StoreFixture) -> None:
        schema = fixture.store.schema
        await fixture.run(schema.identify(fixture.new_id()))
        await fixture.run(schema.pause(True, "ana", fixture.now))
        identity = await fixture.run(schema.identity())
        assert identity is not None
        assert (identity.paused, identity.paused_by) == (True, "ana")
        assert identity.paused_at == fixture.now
        await fixture.run(schema.pause(False, "bo", fixture.now))
        identity = await fixture.run(schema.identity())
        assert identity is not None
        assert (identity.paused, identity.paused_by, identity.paused_at) == (False, None, None)

    async def test_a_database_keeps_its_identity_until_it_is_adopted(
        self, fixture: StoreFixture
    ) -> None:
        schema, first, second = fixture.store.schema, fixture.new_id(), fixture.new_id()
        assert await fixture.run(schema.identity()) is None
        await fixture.run(schema.identify(first))
        await fixture.run(schema.identify(second))
        identity = await fixture.run(schema.identity())
        assert identity is not None
        assert (identity.id, identity.recorded_name) == (first, identity.name)
        await fixture.run(schema.adopt(second))
        identity = await fixture.run(schema.identity())
        assert identity is not None
        assert identity.id == second

    async def test_the_clock_moves_forward(self, fixture: StoreFixture) -> None:
        first = await fixture.run(fixture.store.schema.clock())
        second = await fixture.run(fixture.store.schema.clock())
        assert first <= second
        assert second - first < 60 * SECOND


class TotalsConformance(Conformance):
    """Totals are cheap sums that equal the rows."""

    async def test_an_empty_store_counts_nothing(self, fixture: StoreFixture) -> None:
        await fixture.run(counters_equal_rows(fixture))

    async def test_live_counts_stop_at_their_bound(self, fixture: StoreFixture) -> None:
        await fixture.start_all([fixture.job() for _ in range(5)])
        totals, _ = await fixture.run(fixture.store.workers.totals(3, fixture.now))
        assert (totals.due, totals.bounded, totals.live) == (3, True, 5)
        await fixture.start_running("other")
        due = await fixture.run(fixture.store.workers.due([MAIL, "other"], 3, fixture.now))
        assert due == {MAIL: 3, "other": 0}

    async def test_the_oldest_due_job_is_told_though_the_count_stops(
        self, fixture: StoreFixture
    ) -> None:
        oldest = fixture.now
        ages = [4, 2, 0, 1, 3]
        for age in ages:
            await fixture.start(f"type-{age}", at=oldest + age * SECOND, priority=age)
        fixture.pass_time(seconds=10)
        totals, _ = await fixture.run(fixture.store.workers.totals(2, fixture.now))
        assert totals.oldest_due_at == oldest

    async def test_stuck_is_what_expired_leases_still_hold(self, fixture: StoreFixture) -> None:
        await fixture.start_all([fixture.job(), fixture.job()])
        done, _ = await fixture.claim(lease_ms=1_000)
        await fixture.finish_as(done, "complete")
        await fixture.start_running("other")
        fixture.pass_time(seconds=2)
        totals, _ = await fixture.run(fixture.store.workers.totals(10, fixture.now))
        assert (totals.running, totals.stuck) == (2, 1)

    async def test_folding_counts_changes_no_total(self, fixture: StoreFixture) -> None:
        kinds: tuple[FinishKind, ...] = ("complete", "fail", "cancel")
        for kind in kinds:
            await fixture.finish_new(kind)
            fixture.pass_time(seconds=30)
        rows = len(await fixture.rows("tally"))
        fixture.pass_time(seconds=600)
        assert await fixture.run(fixture.store.workers.fold_tally(1_000, fixture.now)) == rows
        assert len(await fixture.rows("tally")) < rows
        await fixture.run(counters_equal_rows(fixture))

    async def test_counts_are_folded_wider_the_older_they_are(self, fixture: StoreFixture) -> None:
        day, begin = 86_400 * SECOND, 72 * 60 * SECOND
        fixture.pass_time(ms=(day - fixture.now % day + begin) // 1_000 + 1)
        for _ in range(48):
            await fixture.start()
            fixture.pass_time(seconds=30)
        fold = fixture.store.workers.fold_tally
        rows = []
        for minutes in (5, 120, 600, 3_000, 11_520):
            fixture.pass_time(seconds=minutes * 60)
            assert await fixture.run(fold(1_000, fixture.now)) > 0
            assert await fixture.run(fold(1_000, fixture.now)) == 0
            rows.append(len(await fixture.rows("tally")))
        # What happens to be at the beginning of a wider step stays beside it.
        assert rows == [24, 8, 6, 1, 1]
        await fixture.run(counters_equal_rows(fixture))

    async def test_folding_takes_a_batch_at_a_time(self, fixture: StoreFixture) -> None:
        for _ in range(6):
            await fixture.start()
        fixture.pass_time(seconds=600)
        fold = fixture.store.workers.fold_tally
        assert [await fixture.run(fold(4, fixture.now)) for _ in range(3)] == [4, 2, 0]
        await fixture.run(counters_equal_rows(fixture))

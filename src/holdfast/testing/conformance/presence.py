"""Presence of workers, settings of types, totals, and the database's own record."""

from __future__ import annotations

import asyncio

import msgspec

from holdfast.core.records import TypeSetting, VanishedWorker, WorkerRecord, WorkerSign
from holdfast.testing.conformance.counters import counters_equal_rows
from holdfast.testing.conformance.stage import MAIL, SECOND, Conformance, Stage

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
)
GRACE_MS = 60_000


class WorkerPresenceConformance(Conformance):
    """Signs of life, goodbyes, and those who vanish without one."""

    async def _sign(self, stage: Stage, sign: WorkerSign = SIGN) -> bool:
        return await stage.run(stage.store.workers.sign(sign, stage.now))

    async def _workers(self, stage: Stage, grace_ms: int | None = None) -> list[WorkerRecord]:
        return await stage.run(stage.store.workers.page(10, grace_ms, stage.now))

    async def test_the_first_sign_registers_a_worker(self, stage: Stage) -> None:
        assert await self._sign(stage) is False
        assert await self._workers(stage) == [
            WorkerRecord(
                id="worker-1",
                name="mailer",
                host="host-1",
                pid=4711,
                version="1.0",
                slots=10,
                types=["mail"],
                started_at=stage.now,
                seen_at=stage.now,
                stopped_at=None,
                draining=False,
                counters={"completed": 0},
                last_error=None,
            )
        ]

    async def test_later_signs_bring_it_up_to_date(self, stage: Stage) -> None:
        await self._sign(stage)
        started = stage.now
        stage.pass_time(seconds=15)
        later = msgspec.structs.replace(
            SIGN, slots=5, types='["push"]', counters='{"completed": 7}', last_error="Boom"
        )
        await self._sign(stage, later)
        (worker,) = await self._workers(stage)
        assert (worker.started_at, worker.seen_at) == (started, stage.now)
        assert (worker.slots, worker.types) == (5, ["push"])
        assert (worker.counters, worker.last_error) == ({"completed": 7}, "Boom")

    async def test_workers_are_listed_the_youngest_first(self, stage: Stage) -> None:
        for number in range(3):
            await self._sign(stage, msgspec.structs.replace(SIGN, id=f"worker-{number}"))
            stage.pass_time(seconds=1)
        workers = await self._workers(stage)
        assert [each.id for each in workers] == ["worker-2", "worker-1", "worker-0"]
        assert len(await stage.run(stage.store.workers.page(2, None, stage.now))) == 2

    async def test_a_worker_that_said_goodbye_is_not_live(self, stage: Stage) -> None:
        await self._sign(stage)
        stage.pass_time(seconds=1)
        goodbye = stage.store.workers.stop("worker-1", '{"completed": 9}', stage.now)
        await stage.run(goodbye)
        (worker,) = await self._workers(stage)
        assert (worker.stopped_at, worker.seen_at) == (stage.now, stage.now)
        assert worker.counters == {"completed": 9}
        assert await self._workers(stage, GRACE_MS) == []

    async def test_a_worker_is_live_within_the_grace(self, stage: Stage) -> None:
        await self._sign(stage)
        stage.pass_time(ms=GRACE_MS - 1)
        assert len(await self._workers(stage, GRACE_MS)) == 1
        stage.pass_time(ms=1)
        assert await self._workers(stage, GRACE_MS) == []

    async def test_a_worker_learns_by_its_sign_that_it_must_drain(self, stage: Stage) -> None:
        await self._sign(stage)
        assert await stage.run(stage.store.workers.drain("worker-1")) is True
        assert await self._sign(stage) is True
        (worker,) = await self._workers(stage)
        assert worker.draining

    async def test_only_a_live_worker_can_be_asked_to_drain(self, stage: Stage) -> None:
        assert await stage.run(stage.store.workers.drain("unknown")) is False
        await self._sign(stage)
        await stage.run(stage.store.workers.stop("worker-1", "{}", stage.now))
        assert await stage.run(stage.store.workers.drain("worker-1")) is False

    async def test_a_vanished_worker_is_reported_to_one_caller(self, stage: Stage) -> None:
        await self._sign(stage)
        seen = stage.now
        stage.pass_time(ms=GRACE_MS - 1)
        vanished = stage.store.workers.vanished
        assert await stage.run(vanished(GRACE_MS, stage.now)) == []
        stage.pass_time(ms=1)
        reports = await asyncio.gather(
            *(stage.run(vanished(GRACE_MS, stage.now)) for _ in range(4))
        )
        assert sorted(reports) == [[], [], [], [VanishedWorker("worker-1", "mailer", seen)]]
        (worker,) = await self._workers(stage)
        assert worker.stopped_at == seen

    async def test_a_worker_that_comes_back_is_live_again(self, stage: Stage) -> None:
        await self._sign(stage)
        stage.pass_time(ms=GRACE_MS)
        await stage.run(stage.store.workers.vanished(GRACE_MS, stage.now))
        await self._sign(stage)
        (worker,) = await self._workers(stage, GRACE_MS)
        assert (worker.stopped_at, worker.last_error) == (None, None)


class SettingsConformance(Conformance):
    """What is changed at run time, per type and for everything."""

    async def _settings(self, stage: Stage) -> list[TypeSetting]:
        return await stage.run(stage.store.workers.settings())

    async def test_a_pause_says_who_and_when(self, stage: Stage) -> None:
        put = stage.store.workers.set_type
        await stage.run(put(MAIL, paused=True, by="ana", now=stage.now))
        assert await self._settings(stage) == [TypeSetting(MAIL, True, "ana", stage.now)]
        await stage.run(put(MAIL, paused=False, by="bo", now=stage.now))
        assert await self._settings(stage) == [TypeSetting(MAIL)]

    async def test_what_is_not_named_stays(self, stage: Stage) -> None:
        put = stage.store.workers.set_type
        await stage.run(put(MAIL, paused=True, by="ana", now=stage.now))
        paused_at = stage.now
        stage.pass_time(seconds=1)
        await stage.run(put(MAIL, lease_ms=1, timeout_ms=2, concurrency=3, now=stage.now))
        await stage.run(put(MAIL, max_attempts=4, now=stage.now))
        assert await self._settings(stage) == [
            TypeSetting(MAIL, True, "ana", paused_at, 1, 2, 3, 4)
        ]

    async def test_minus_one_takes_a_value_back_to_the_codes_own(self, stage: Stage) -> None:
        put = stage.store.workers.set_type
        await stage.run(put(MAIL, lease_ms=1, max_attempts=-1, now=stage.now))
        await stage.run(put(MAIL, lease_ms=-1, now=stage.now))
        assert await self._settings(stage) == [TypeSetting(MAIL)]

    async def test_everything_can_be_paused(self, stage: Stage) -> None:
        schema = stage.store.schema
        await stage.run(schema.identify(stage.new_id()))
        await stage.run(schema.pause(True, "ana", stage.now))
        identity = await stage.run(schema.identity())
        assert identity is not None
        assert (identity.paused, identity.paused_by) == (True, "ana")
        assert identity.paused_at == stage.now
        await stage.run(schema.pause(False, "bo", stage.now))
        identity = await stage.run(schema.identity())
        assert identity is not None
        assert (identity.paused, identity.paused_by, identity.paused_at) == (False, None, None)

    async def test_a_database_keeps_its_identity_until_it_is_adopted(self, stage: Stage) -> None:
        schema, first, second = stage.store.schema, stage.new_id(), stage.new_id()
        assert await stage.run(schema.identity()) is None
        await stage.run(schema.identify(first))
        await stage.run(schema.identify(second))
        identity = await stage.run(schema.identity())
        assert identity is not None
        assert (identity.id, identity.recorded_name) == (first, identity.name)
        await stage.run(schema.adopt(second))
        identity = await stage.run(schema.identity())
        assert identity is not None
        assert identity.id == second

    async def test_the_clock_moves_forward(self, stage: Stage) -> None:
        first = await stage.run(stage.store.schema.clock())
        second = await stage.run(stage.store.schema.clock())
        assert first <= second
        assert second - first < 60 * SECOND


class TotalsConformance(Conformance):
    """Totals are cheap sums that equal the rows."""

    async def test_an_empty_store_counts_nothing(self, stage: Stage) -> None:
        await stage.run(counters_equal_rows(stage))

    async def test_live_counts_stop_at_their_bound(self, stage: Stage) -> None:
        await stage.start_all([stage.job() for _ in range(5)])
        totals, _ = await stage.run(stage.store.workers.totals(3, stage.now))
        assert (totals.due, totals.bounded, totals.live) == (3, True, 5)

    async def test_the_oldest_due_job_is_told_though_the_count_stops(self, stage: Stage) -> None:
        oldest = stage.now
        ages = [4, 2, 0, 1, 3]
        for age in ages:
            await stage.start(f"type-{age}", at=oldest + age * SECOND, priority=age)
        stage.pass_time(seconds=10)
        totals, _ = await stage.run(stage.store.workers.totals(2, stage.now))
        assert totals.oldest_due_at == oldest

    async def test_stuck_is_what_expired_leases_still_hold(self, stage: Stage) -> None:
        await stage.start_all([stage.job(), stage.job()])
        done, _ = await stage.claim(lease_ms=1_000)
        await stage.finish_as(done, "complete")
        await stage.start_running("other")
        stage.pass_time(seconds=2)
        totals, _ = await stage.run(stage.store.workers.totals(10, stage.now))
        assert (totals.running, totals.stuck) == (2, 1)

    async def test_folding_counts_changes_no_total(self, stage: Stage) -> None:
        for kind in ("complete", "fail", "cancel"):
            job = await stage.start_running(kind)
            await stage.finish(stage.ending(job, "complete" if kind == "complete" else "fail"))
            stage.pass_time(seconds=30)
        rows = await self._tally_rows(stage)
        stage.pass_time(seconds=600)
        assert await stage.run(stage.store.workers.fold_tally(1_000, stage.now)) == rows
        assert await self._tally_rows(stage) < rows
        await stage.run(counters_equal_rows(stage))

    async def test_counts_are_folded_wider_the_older_they_are(self, stage: Stage) -> None:
        day, begin = 86_400 * SECOND, 72 * 60 * SECOND
        stage.pass_time(ms=(day - stage.now % day + begin) // 1_000 + 1)
        for _ in range(48):
            await stage.start()
            stage.pass_time(seconds=30)
        fold = stage.store.workers.fold_tally
        rows = []
        for minutes in (5, 120, 600, 3_000):
            stage.pass_time(seconds=minutes * 60)
            assert await stage.run(fold(1_000, stage.now)) > 0
            assert await stage.run(fold(1_000, stage.now)) == 0
            rows.append(await self._tally_rows(stage))
        # What stands at the beginning of a wider step by chance stays beside it.
        assert rows == [24, 8, 3, 1]
        await stage.run(counters_equal_rows(stage))

    async def test_folding_takes_a_batch_at_a_time(self, stage: Stage) -> None:
        for _ in range(6):
            await stage.start()
        stage.pass_time(seconds=600)
        fold = stage.store.workers.fold_tally
        assert [await stage.run(fold(4, stage.now)) for _ in range(3)] == [4, 2, 0]
        await stage.run(counters_equal_rows(stage))

    async def _tally_rows(self, stage: Stage) -> int:
        contents = await stage.harness.contents()
        return sum(len(rows) for table, rows in contents.items() if "tally" in table)

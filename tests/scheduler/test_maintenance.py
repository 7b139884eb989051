"""Upkeep: expired leases, vanished workers and old chains, once for all replicas and within budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

import msgspec
import pytest

from holdfast.commands.debounce import DebouncedStart, start_debounced
from holdfast.commands.retention import Ages
from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.partitions import LimitedAnswer, LimitedClaim, PartitionRule, SignalMark
from holdfast.core.records import (
    Claim,
    Debounce,
    Finish,
    Held,
    LeaseClass,
    NewBlocker,
    NewJob,
    NewKey,
    Probe,
)
from holdfast.core.worker_presence import WorkerSign
from holdfast.notify.base import Hint
from holdfast.notify.local import LocalNotifier
from holdfast.scheduler import maintenance
from holdfast.scheduler.doctor.fleet import check_fleet, read_fleet
from holdfast.scheduler.maintenance import ReaperRunner, RetentionRunner
from holdfast.scheduler.runner import Mode, Runner
from holdfast.scheduler.tick import Tick, TickOptions
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op, run_async
from holdfast.storage.postgres.database import PostgresDatabase
from tests.scheduler.scene import ManualClock, Recorder
from tests.support.links import DisturbedDatabase
from tests.support.until import until

T = TypeVar("T")

DAY = 86_400
AGES = Ages(chains=30, dead_letters=90, runs=30)
FIRST = "00000000-0000-0000-0000-000000000000"
LAST = "ffffffff-ffff-ffff-ffff-ffffffffffff"


def _tick(
    database: Database,
    clock: ManualClock,
    recorder: Recorder,
    *runners: Runner,
    mode: Mode = "tick",
    **options: Any,
) -> Tick:
    return Tick(
        database,
        runners,
        "w-1",
        TickOptions(**options),
        mode=mode,
        clock=clock,
        observer=recorder,
        now=clock.now,
    )


async def _start(database: Database, clock: ManualClock, count: int) -> list[NewJob]:
    jobs = []
    for _ in range(count):
        job_id = new_id()
        jobs.append(NewJob(job_id, job_id, "mail", "{}"))
    await database.run_async(database.store.jobs.insert(jobs, now=clock.now()))
    return jobs


async def _claim(database: Database, clock: ManualClock, worker: str, most: int = 100) -> list[Any]:
    token = new_id()
    probe = Probe("mail", 5, token, most, 0, FIRST)
    claim = Claim(worker, most, (probe,), (LeaseClass(token, 60_000, 25, 1_000, 5_000),))
    return await database.run_async(database.store.jobs.claim(claim, clock.now()))


async def test_the_reaper_takes_back_what_a_dead_worker_held_and_tells_everybody(
    database: Database, clock: ManualClock, recorder: Recorder
) -> None:
    heard: list[Hint] = []
    notifier = LocalNotifier()
    notifier.listen(heard.append)
    await _start(database, clock, 3)
    await _claim(database, clock, "w-dead")
    tick = _tick(database, clock, recorder, ReaperRunner(database.store, 2, 3, notifier))
    assert (await tick.run()).total_processed == 0
    clock.advance(60)
    assert (await tick.run()).total_processed == 3
    assert (await tick.run()).total_processed == 0
    await tick.close()
    notifier.close()
    assert [each["worker"] for each in recorder.named("job_reaped")] == ["w-dead"] * 3
    assert [each["recovered"] for each in recorder.named("reaper_ran")] == [0, 3, 0]
    assert {(each.kind, each.type, each.worker) for each in heard} >= {
        ("look", "mail", ""),
        ("lost", "", "w-dead"),
    }


async def test_the_reaper_takes_no_more_pages_once_its_items_are_spent(
    database: Database, clock: ManualClock, recorder: Recorder
) -> None:
    await _start(database, clock, 3)
    for number in range(3):
        await _claim(database, clock, f"w-dead-{number}", most=1)
    tick = _tick(database, clock, recorder, ReaperRunner(database.store, 1, 3), items=2)
    clock.advance(60)
    assert [(await tick.run()).total_processed for _ in range(3)] == [2, 1, 0]
    await tick.close()


async def test_the_reaper_tells_those_who_wait_that_a_chain_failed(
    database: Database, clock: ManualClock, recorder: Recorder
) -> None:
    heard: list[Hint] = []
    notifier = LocalNotifier()
    notifier.listen(heard.append)
    (job,) = await _start(database, clock, 1)
    behind = new_id()
    waiting = NewJob(behind, behind, "ship", "{}", blockers=1)
    request = StartRequest(waiting, None, (NewBlocker(behind, 0, job.id),))
    await database.run_async(start_chains(database.store, [request], now=clock.now()))
    (claimed,) = await _claim(database, clock, "w-dead")
    await database.run_async(database.store.leases.isolate(claimed.token))
    tick = _tick(database, clock, recorder, ReaperRunner(database.store, 2, 1, notifier))
    clock.advance(60)
    await tick.run()
    await tick.close()
    notifier.close()
    ended = [id for hint in heard if hint.kind == "ended" for id in hint.ids]
    assert sorted(ended) == sorted([job.id, behind])


async def test_a_vanished_worker_is_reported_by_one_of_two_replicas(
    database: Database, clock: ManualClock, recorder: Recorder
) -> None:
    sign = WorkerSign("w-dead", "w", "host", 1, "0.1", 10, "[]", "{}", None)
    await database.run_async(database.store.workers.sign(sign, clock.now()))
    replicas = [
        _tick(database, clock, recorder, ReaperRunner(database.store, 100, 3)) for _ in range(2)
    ]
    for seconds in (59, 1, 60):
        clock.advance(seconds)
        await asyncio.gather(*(each.run() for each in replicas))
    for each in replicas:
        await each.close()
    assert recorder.named("worker_vanished") == [
        {"worker": "w-dead", "by": "w-1", "silent_ms": 60_000}
    ]


async def test_types_that_nobody_handles_are_told_once_until_somebody_does(
    database: Database, clock: ManualClock, recorder: Recorder
) -> None:
    tick = _tick(database, clock, recorder, ReaperRunner(database.store, 100, 3), mode="background")
    await _start(database, clock, 1)
    for _ in range(3):
        await tick.run()
        clock.advance(60)
    assert recorder.named("type_unhandled") == [{"type": "mail", "worker": "w-1"}]
    sign = WorkerSign("w-2", "w", "host", 1, "0.1", 10, '["mail"]', "{}", None)
    await database.run_async(database.store.workers.sign(sign, clock.now()))
    await tick.run()
    await database.run_async(database.store.workers.stop("w-2", "{}", clock.now()))
    clock.advance(60)
    await tick.run()
    await tick.close()
    assert len(recorder.named("type_unhandled")) == 2


async def test_a_type_is_not_called_unhandled_while_its_workers_start(
    database: Database, clock: ManualClock, recorder: Recorder
) -> None:
    reaper = ReaperRunner(database.store, 100, 3)
    tick = _tick(database, clock, recorder, reaper, mode="background")
    await _start(database, clock, 1)
    await tick.run()
    sign = WorkerSign("w-1", "w", "host", 1, "0.1", 10, '["mail"]', "{}", None, live_ms=120_000)
    await database.run_async(database.store.workers.sign(sign, clock.now()))
    clock.advance(60)
    await tick.run()
    await tick.close()
    assert recorder.named("type_unhandled") == []


async def test_no_type_is_called_unhandled_by_a_look_at_some_of_the_workers(
    database: Database, clock: ManualClock, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_MANY", 2)
    reaper = ReaperRunner(database.store, 100, 3, unhandled_after_ms=90_000)
    tick = _tick(database, clock, recorder, reaper, mode="background")
    (job,) = await _start(database, clock, 1)
    for name, types in (("w-2", '["mail"]'), ("w-3", "[]"), ("w-4", "[]")):
        sign = WorkerSign(name, "w", "host", 1, "0.1", 10, types, "{}", None, live_ms=600_000)
        await database.run_async(database.store.workers.sign(sign, clock.now()))
        clock.advance(1)
    for _ in range(3):
        await tick.run()
        clock.advance(60)
    await tick.close()
    assert recorder.named("type_unhandled") == []
    (found,) = await database.run_async(database.store.jobs.get([job.id]))
    assert found.state == "pending"


async def test_jobs_that_nobody_handles_become_dead_letters_if_asked(
    database: Database, clock: ManualClock, recorder: Recorder
) -> None:
    hints: list[Hint] = []
    notifier = LocalNotifier()
    notifier.listen(hints.append)
    reaper = ReaperRunner(database.store, 100, 3, notifier=notifier, unhandled_after_ms=90_000)
    tick = _tick(database, clock, recorder, reaper, mode="background")
    job, other = await _start(database, clock, 2)
    edge = NewBlocker(new_id(), 0, job.id, "run")
    waiting = NewJob(edge.job_id, edge.job_id, "known", "{}", blockers=1)
    start = start_chains(database.store, [StartRequest(waiting, None, (edge,))], now=clock.now())
    await database.run_async(start)

    async def states() -> list[str]:
        ids = sorted([job.id, other.id])
        found = await database.run_async(database.store.jobs.get([*ids, waiting.id]))
        return [each.state for each in found]

    for _ in range(2):
        await tick.run()
        assert await states() == ["pending", "pending", "blocked"]
        clock.advance(60)
    await tick.run()
    await tick.close()
    assert await states() == ["failed", "failed", "pending"]
    found = (await database.run_async(database.store.jobs.get([job.id])))[0]
    assert found.error == "UnhandledType: no live worker handles mail"
    told = recorder.named("job_failed")
    assert [each["error"] for each in told] == ["no live worker handles mail"] * 2
    await until(lambda: {each.kind for each in hints} >= {"due", "ended"})


async def _finished(
    database: Database,
    clock: ManualClock,
    count: int,
    kind: Literal["complete", "fail"] = "complete",
) -> None:
    await _start(database, clock, count)
    finishes = [
        Finish(each.id, each.token, kind, "w", each.chain_id)
        for each in await _claim(database, clock, "w")
    ]
    await database.run_async(database.store.jobs.finish(finishes, now=clock.now()))


async def test_retention_follows_its_backlog_and_rests_when_all_is_seen(
    database: Database, clock: ManualClock, recorder: Recorder
) -> None:
    await _finished(database, clock, 25)
    # Ids carry the time of their making, which is now; the test's clock has to pass that first.
    clock.advance(20 * 365 * DAY)
    tick = _tick(
        database,
        clock,
        recorder,
        RetentionRunner(database.store, AGES, every_ms=60_000),
        mode="background",
        items=10,
    )
    counts = [(await tick.run()).total_processed for _ in range(2)]
    assert counts == [25, 0]
    await _finished(database, clock, 5)
    clock.advance(31 * DAY)
    assert (await tick.run()).total_processed == 5
    await tick.close()


class WorkingClock(ManualClock):
    """A clock that moves 50 ms whenever it is read; short pauses pass at once and are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self.on_pause: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        self.time += 0.05
        return self.time

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        if seconds is None or seconds > 0.2:
            return await super().wait(event, seconds)
        self.pauses.append(round(seconds, 3))
        self.time += seconds
        self.on_pause()
        return event.is_set()


async def _with_old_chains(database: Database, count: int) -> WorkingClock:
    clock = WorkingClock()
    await _finished(database, clock, count)
    clock.advance(20 * 365 * DAY)
    return clock


async def test_retention_pauses_as_long_as_it_works_and_goes_on_in_the_next_tick_at_once(
    database: Database, recorder: Recorder
) -> None:
    clock = await _with_old_chains(database, 100)
    runner = RetentionRunner(database.store, AGES)
    tick = _tick(database, clock, recorder, runner, mode="background", items=5)
    counts: list[int] = []
    while sum(counts) < 100:
        before = clock.time
        counts.append((await tick.run()).total_processed)
        assert clock.time - before < 2, "a tick is not held up for long"
        assert sum(counts) == 100 or tick.next_in_ms == 0
    await tick.close()
    assert len(counts) > 1
    assert min(counts[:-1]) > 5
    # A batch reads the clock when it begins and when it ends.
    assert set(clock.pauses) == {0.05}


async def test_retention_ends_between_two_batches_when_it_is_stopped(
    database: Database, recorder: Recorder
) -> None:
    clock = await _with_old_chains(database, 100)
    runner = RetentionRunner(database.store, AGES)
    tick = _tick(database, clock, recorder, runner, mode="background", items=5)
    clock.on_pause = tick.stop
    assert (await tick.run()).total_processed == 5
    await tick.close()


async def test_one_process_of_a_fleet_removes_at_a_time(postgres_url: str) -> None:
    """What one holds another does not walk over; it rests, and the first one goes on."""
    first, second = PostgresDatabase(postgres_url), PostgresDatabase(postgres_url)
    store = first.store
    job_id = new_id()
    await first.run_async(store.jobs.insert([NewJob(job_id, job_id, "mail", "{}")]))
    page = store.retention.page
    async with first.transaction_async() as tx:
        assert await run_async(page(FIRST, LAST, 10), tx) == [job_id]
        assert await second.run_async(page(FIRST, LAST, 10)) == []
    assert await second.run_async(page(FIRST, LAST, 10)) == [job_id]
    for each in (first, second):
        await each.close_async()


async def test_dead_letters_go_in_their_own_time_even_where_completed_chains_stay(
    database: Database, clock: ManualClock, recorder: Recorder
) -> None:
    await _finished(database, clock, 3)
    await _finished(database, clock, 2, "fail")
    # Ids carry the time of their making, which is now; the test's clock has to pass that first.
    clock.advance(50 * 365 * DAY)
    runner = RetentionRunner(database.store, Ages(0, 7, 30))
    tick = _tick(database, clock, recorder, runner)
    assert (await tick.run()).total_processed == 2
    assert (await tick.run()).total_processed == 0
    await tick.close()


async def test_zero_days_keep_chains_for_ever(
    database: Database, clock: ManualClock, recorder: Recorder
) -> None:
    await _finished(database, clock, 3)
    clock.advance(50 * 365 * DAY)
    runner = RetentionRunner(database.store, Ages(0, 90, 30))
    tick = _tick(database, clock, recorder, runner)
    assert (await tick.run()).total_processed == 0
    await tick.close()


def _sign(worker: str) -> WorkerSign:
    return WorkerSign(worker, "worker", "host", 1, "1", 10, '["mail"]', "{}", None)


@pytest.mark.parametrize("comes_back", [True, False])
async def test_after_an_outage_workers_have_an_interval_to_come_back(
    database: Database, clock: ManualClock, recorder: Recorder, comes_back: bool
) -> None:
    await database.run_async(database.store.workers.sign(_sign("w-2"), clock.now()))
    await _start(database, clock, 1)
    (job,) = await _claim(database, clock, "w-2")
    # For two minutes the database was away for all of them: the lease has ended, and nobody died.
    clock.advance(120)
    reaper = ReaperRunner(database.store, 100, 3, interval_s=10)
    tick = _tick(database, clock, recorder, reaper)
    running = asyncio.create_task(tick.run())
    assert await clock.asleep(within=10) == 10
    if comes_back:
        await database.run_async(database.store.leases.renew([job.token], clock.now()))
    clock.advance(10)
    assert (await running).total_processed == (0 if comes_back else 1)
    (record,) = await database.run_async(database.store.jobs.get([job.id]))
    assert (record.state, record.crashes) == (("running", 0) if comes_back else ("pending", 1))
    # From then on it knows the database, and waits no more.
    assert (await tick.run()).total_processed == 0
    await tick.close()


async def test_a_worker_that_beat_all_the_time_shows_that_there_was_no_outage(
    database: Database, clock: ManualClock, recorder: Recorder
) -> None:
    for worker in ("w-2", "w-3"):
        await database.run_async(database.store.workers.sign(_sign(worker), clock.now()))
    await _start(database, clock, 1)
    await _claim(database, clock, "w-2")
    for _ in range(4):
        clock.advance(30)
        await database.run_async(database.store.workers.sign(_sign("w-3"), clock.now()))
    tick = _tick(database, clock, recorder, ReaperRunner(database.store, 100, 3))
    assert (await tick.run()).total_processed == 1
    await tick.close()


@pytest.mark.parametrize("is_known", [True, False], ids=["one that is back", "one that is new"])
async def test_a_tick_waits_for_the_others_when_one_worker_is_back_after_an_outage(
    database: Database, clock: ManualClock, recorder: Recorder, is_known: bool
) -> None:
    for worker in ("w-2", *(["w-3"] if is_known else [])):
        await database.run_async(database.store.workers.sign(_sign(worker), clock.now()))
    await _start(database, clock, 1)
    (job,) = await _claim(database, clock, "w-2")
    clock.advance(120)
    await database.run_async(database.store.workers.sign(_sign("w-3"), clock.now()))
    clock.advance(5)
    reaper = ReaperRunner(database.store, 100, 3, interval_s=10)
    tick = _tick(database, clock, recorder, reaper)
    running = asyncio.create_task(tick.run())
    assert await clock.asleep(within=10) == 10
    await database.run_async(database.store.leases.renew([job.token], clock.now()))
    clock.advance(10)
    assert (await running).total_processed == 0
    await tick.close()


async def test_workers_that_an_earlier_tick_marked_as_vanished_may_still_come_back(
    database: Database, clock: ManualClock, recorder: Recorder
) -> None:
    await database.run_async(database.store.workers.sign(_sign("w-2"), clock.now()))
    await _start(database, clock, 1)
    await _claim(database, clock, "w-2")
    clock.advance(3_600)
    await database.run_async(database.store.workers.mark_vanished(clock.now()))
    reaper = ReaperRunner(database.store, 100, 3, interval_s=10)
    tick = _tick(database, clock, recorder, reaper)
    running = asyncio.create_task(tick.run())
    assert await clock.asleep(within=10) == 10
    clock.advance(10)
    assert (await running).total_processed == 1
    await tick.close()


HOUR_US = 3_600_000_000


async def test_what_expires_by_a_jump_after_the_look_of_a_tick_is_not_taken_back(
    database: Database, clock: ManualClock, recorder: Recorder
) -> None:
    await _start(database, clock, 1)
    (job,) = await _claim(database, clock, "w-2")
    ahead = [0]

    class JumpAfterTheLook:
        async def around(self, purpose: str, call: Callable[[], Awaitable[T]]) -> T:
            found = await call()
            if reaper.has_looked:
                ahead[0] = HOUR_US
            return found

    class LookingReaper(ReaperRunner):
        @property
        def has_looked(self) -> bool:
            return self._guard is not None and self._guard.looked_at is not None

    reaper = LookingReaper(database.store, 100, 3)
    jumping: Any = DisturbedDatabase(database, JumpAfterTheLook())
    tick = Tick(
        jumping, [reaper], "w-1", clock=clock, observer=recorder, now=lambda: clock.now() + ahead[0]
    )
    assert (await tick.run()).total_processed == 0
    assert ahead == [HOUR_US]
    (record,) = await database.run_async(database.store.jobs.get([job.id]))
    assert (record.state, record.crashes) == ("running", 0)
    await tick.close()


@pytest.mark.parametrize("is_new", [True, False], ids=["a new process", "one that saw it"])
async def test_after_the_clock_was_set_back_nothing_waits_for_the_time_it_had_shown(
    database: Database, clock: ManualClock, recorder: Recorder, is_new: bool
) -> None:
    store, ahead = database.store, [HOUR_US]

    def now() -> int:
        return clock.now() + ahead[0]

    tick = Tick(
        database, [ReaperRunner(store, 100, 3)], "w-1", clock=clock, observer=recorder, now=now
    )
    if not is_new:
        await tick.run()
    ids = [new_id() for _ in range(8)]
    plain, retried, planned, held, released, aborted, snoozed, soon = ids
    jobs = [NewJob(id, id, f"mail.{place}", "{}") for place, id in enumerate(ids)]
    at = clock.now() + HOUR_US + 600_000_000
    jobs[2] = msgspec.structs.replace(jobs[2], at=at)
    jobs[7] = msgspec.structs.replace(jobs[7], at=clock.now() + 600_000_000)
    await database.run_async(store.jobs.insert(jobs, now=now()))
    returns: dict[int, Any] = {
        1: {"kind": "retry", "delay_ms": 30_000, "error": "no"},
        4: {"kind": "release"},
        5: {"kind": "snooze", "delay_ms": 0},
        6: {"kind": "snooze", "delay_ms": 120_000},
    }
    for place in (1, 3, 4, 5, 6):
        token = new_id()
        lease = LeaseClass(token, 60_000, 25, 1_000, 5_000)
        claim = Claim("w-2", 1, (Probe(f"mail.{place}", 5, token, 1, 0, FIRST),), (lease,))
        (job,) = await database.run_async(store.jobs.claim(claim, now()))
        if place in returns:
            finish = Finish(
                id=job.id, token=token, worker="w-2", chain_id=job.chain_id, **returns[place]
            )
            await database.run_async(store.jobs.finish([finish], now=now()))
            clock.advance(1)
    ahead[0] = 0
    await tick.run()
    await tick.close()
    found = {each.id: each for each in await database.run_async(store.jobs.get(ids))}
    assert found[plain].available_at == clock.now()
    assert found[retried].available_at == clock.now() + 30_000_000
    assert found[planned].available_at == at
    assert found[held].lease_expires_at == clock.now() + 60_000_000
    assert found[held].state == "running"
    assert found[released].available_at == found[aborted].available_at == clock.now()
    assert found[soon].available_at == clock.now() + 600_000_000 - 4_000_000, "it was planned"
    assert found[snoozed].available_at == clock.now() + 120_000_000
    again = Tick(database, [ReaperRunner(store, 100, 3)], "w-3", clock=clock, now=now)
    assert (await again.run()).runner_results["reaper"].updated == 0, "nothing moves twice"
    await again.close()


async def test_after_the_clock_was_set_back_no_line_waits_for_the_time_it_had_shown(
    database: Database, clock: ManualClock, recorder: Recorder
) -> None:
    store, ahead = database.store, [HOUR_US]

    def now() -> int:
        return clock.now() + ahead[0]

    def claim(type: str, ordered: bool = False) -> Op[LimitedAnswer]:
        lease = LeaseClass(new_id(), 60_000, 25, 1_000, 5_000)
        rule = PartitionRule(type, 1 if ordered else None)
        marks = (SignalMark(5),)
        return store.jobs.claim_limited(
            LimitedClaim("w-2", type, 1, lease, rule, ordered=ordered, marks=marks), now()
        )

    ids = [new_id() for _ in range(6)]
    plain, planned, retried, first, second, other = ids
    at = now() + 600_000_000
    jobs = [
        NewJob(plain, plain, "mail", "{}", gate="mail#a"),
        NewJob(planned, planned, "mail", "{}", gate="mail#a", at=at),
        NewJob(retried, retried, "push", "{}", gate="push#a"),
        NewJob(first, first, "order", "{}", gate="order#7", ordered=True),
        NewJob(second, second, "order", "{}", gate="order#7", ordered=True),
        NewJob(other, other, "rested", "{}", gate="rested#a"),
    ]
    for job in jobs:
        await database.run_async(store.jobs.insert([job], now=now()))
        clock.advance(1)
    for type, delay_ms in (("push", 30_000), ("order", 30_000)):
        (claimed,) = (await database.run_async(claim(type, type == "order"))).jobs
        finish = Finish(
            claimed.id, claimed.token, "retry", "w-2", claimed.chain_id, now(), delay_ms=delay_ms
        )
        await database.run_async(store.jobs.finish([finish], now=now()))
    await database.run_async(store.limits.rest("rested#a", 20_000, "429", now=now()))
    ahead[0] = 0
    tick = Tick(
        database, [ReaperRunner(store, 100, 3)], "w-1", clock=clock, observer=recorder, now=now
    )
    await tick.run()
    await tick.close()
    found = {each.id: each for each in await database.run_async(store.jobs.get(ids))}
    assert found[plain].available_at == clock.now()
    assert found[planned].available_at == at
    assert found[retried].available_at == clock.now() + 30_000_000
    assert [each.id for each in (await database.run_async(claim("mail"))).jobs] == [plain]
    for type in ("push", "order", "rested"):
        assert (await database.run_async(claim(type, type == "order"))).jobs == [], type
    clock.advance(30)
    for type, expected in (("push", retried), ("order", first), ("rested", other)):
        answer = await database.run_async(claim(type, type == "order"))
        assert [each.id for each in answer.jobs] == [expected]


async def test_after_the_clock_was_set_back_a_debounced_job_waits_for_its_quiet_only(
    database: Database, clock: ManualClock, recorder: Recorder
) -> None:
    store, ahead = database.store, [HOUR_US]

    def now() -> int:
        return clock.now() + ahead[0]

    id = new_id()
    job = NewJob(id, id, "index", "1", at=now() + 30_000_000, key="doc:7")
    key = NewKey("index", "doc:7", id)
    start = DebouncedStart(job, key, Debounce(30_000, None))
    await database.run_async(start_debounced(store, [start], now=now()))
    ahead[0] = 0
    tick = Tick(
        database, [ReaperRunner(store, 100, 3)], "w-1", clock=clock, observer=recorder, now=now
    )
    await tick.run()
    await tick.close()
    for expected in (True, False):
        token = new_id()
        lease = LeaseClass(token, 60_000, 25, 1_000, 5_000)
        claim = Claim("w-2", 1, (Probe("index", 5, token, 1, 0, FIRST),), (lease,))
        (held,) = await database.run_async(store.jobs.claim(claim, now()))
        (settled,) = await database.run_async(
            store.debounce.settle([Held(held.id, held.token)], now())
        )
        assert settled.is_put_off is expected
        await database.run_async(store.leases.release([token], now=now()))
        clock.advance(31)


async def test_the_doctor_names_a_clock_that_was_set_back(
    database: Database, clock: ManualClock
) -> None:
    ahead = clock.now() + HOUR_US
    await database.run_async(database.store.workers.sign(_sign("w-2"), ahead))
    for now, verdict in ((ahead, "ok"), (clock.now(), "warning")):
        fleet = await database.run_async(read_fleet(database.store, now))
        (finding,) = [each for each in check_fleet(fleet, 10_000) if each.check == "clock"]
        assert finding.verdict == verdict
    assert "1 h ahead" in finding.measured

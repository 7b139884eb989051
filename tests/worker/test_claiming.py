"""What a worker claims: by priority, within its limits, behind its marks, and nothing that is paused."""

import asyncio
from typing import Any

import pytest

from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.errors import CopiedDatabase
from holdfast.core.lease import DEFAULT
from holdfast.core.records import NewJob
from holdfast.core.retry import Retry
from holdfast.notify.base import Hint
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import run_async
from holdfast.worker.attempt import START_WITHIN_S
from holdfast.worker.job import Job
from tests.support.manual_clock import ManualClock
from tests.support.until import until
from tests.worker.workshop import Workshop


class Crowd:
    """A handler that counts how many of it run at once, and waits for a word."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.go = asyncio.Event()

    async def __call__(self, job: Job[Any]) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await self.go.wait()
        self.now -= 1


@pytest.mark.parametrize("told", ["by a hint", "by nobody"])
async def test_a_job_whose_transaction_commits_late_is_found_before_the_mark(
    postgres_workshop: Workshop, told: str
) -> None:
    workshop = postgres_workshop
    workshop.handle_quick()
    hinted = told == "by a hint"
    worker = workshop.begin(
        ManualClock() if hinted else None, notifier=workshop.notifier if hinted else None
    )
    late = new_id()
    async with workshop.database.transaction_async() as slow:
        job = NewJob(id=late, chain_id=late, type="quick", input="null")
        await run_async(start_chains(workshop.store, [StartRequest(job)]), slow)
        later = await workshop.start("quick", count=3)
        workshop.have_due()
        await workshop.events.seen("job_completed", count=3)
    workshop.have_due()
    await workshop.events.seen("job_completed", job_id=late)
    await worker.stop()
    assert await workshop.states(later) == ["completed"] * 3


async def test_priorities_are_strict(workshop: Workshop) -> None:
    workshop.handle_quick()
    expected = {
        priority: await workshop.start("quick", count=4, priority=priority)
        for priority in (7, 5, 0, 9, 2)
    }
    await workshop.until_idle(slots=1)
    started = [each.fields["job_id"] for each in workshop.events.of("job_started")]
    assert started == [job_id for _, ids in sorted(expected.items()) for job_id in ids]


@pytest.mark.parametrize("priorities", [[5] * 12, [0, 1, 2, 3] * 3])
async def test_a_type_runs_no_more_at_once_than_it_may(
    workshop: Workshop, priorities: list[int]
) -> None:
    crowd = Crowd()
    workshop.handle("heavy", crowd, concurrency=2)
    workshop.handle_quick()
    ids = [await workshop.start_one("heavy", priority=each) for each in priorities]
    quick = await workshop.start("quick", count=20)
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_completed", count=20)
    assert crowd.now == 2
    crowd.go.set()
    await workshop.events.seen("job_completed", count=20 + len(ids))
    await worker.stop()
    assert crowd.most == 2
    assert await workshop.states([*ids, *quick]) == ["completed"] * (len(ids) + 20)


async def test_a_limit_set_at_run_time_stands_before_the_codes(workshop: Workshop) -> None:
    crowd = Crowd()
    workshop.handle("heavy", crowd, concurrency=1)
    await workshop.start("heavy", count=6)
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started")
    await workshop.run(workshop.store.workers.set_type("heavy", concurrency=3))
    await workshop.beat(worker)
    workshop.have_due()
    await workshop.events.seen("job_started", count=3)
    crowd.go.set()
    await workshop.events.seen("job_completed", count=6)
    await worker.stop()
    assert crowd.most == 3


async def test_attempts_limited_at_run_time_stand_before_the_codes(workshop: Workshop) -> None:
    async def fail(job: Job[Any]) -> None:
        raise OSError

    workshop.handle("fail", fail, retry=Retry(base="100ms", max_attempts=25))
    await workshop.run(workshop.store.workers.set_type("fail", max_attempts=1))
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.beat(worker)
    job_id = await workshop.start_one("fail")
    workshop.have_due()
    await workshop.events.seen("job_failed", job_id=job_id)
    await worker.stop()


async def test_a_process_holds_no_more_than_it_will_soon_start(workshop: Workshop) -> None:
    crowd = Crowd()
    workshop.handle("work", crowd)
    workshop.handle_quick()
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, slots=4, batch=20)
    # Nothing was finished yet: only free slots are filled, however much is due.
    ids = await workshop.start("work", count=100)
    workshop.have_due()
    await workshop.events.seen("job_started", count=4)
    await workshop.beat(worker)
    assert len(workshop.ledger.leases()) == 4
    # As many as were finished a moment ago are fetched ahead.
    crowd.go.set()
    await workshop.events.seen("job_completed", count=4)
    crowd.go.clear()
    await workshop.events.seen("job_completed", count=len(workshop.events.of("job_started")) - 4)
    await workshop.beat(worker)
    assert len(workshop.ledger.leases()) <= 4 + len(workshop.events.of("job_completed"))
    crowd.go.set()
    await workshop.events.seen("job_completed", count=100)
    await worker.stop()
    assert await workshop.states(ids) == ["completed"] * 100


async def test_what_is_claimed_ahead_and_not_begun_goes_to_a_worker_with_a_free_slot(
    workshop: Workshop,
) -> None:
    go = asyncio.Event()
    holder_id = ""

    async def work(job: Job[Any]) -> None:
        if job.worker == holder_id:
            await go.wait()

    workshop.handle("work", work)
    workshop.handle_quick()
    holder = workshop.begin(ManualClock(), notifier=workshop.notifier, slots=1)
    holder_id = holder.id
    ids = await workshop.prefetched("work", 6)
    other = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.seen_in_time(holder, "job_released", step_s=START_WITHIN_S / 2, job_id=ids[-1])
    for job_id in ids[1:]:
        await workshop.events.seen("job_completed", job_id=job_id, worker=other.id, attempt=1)
    # A type that was slow is not claimed ahead again.
    assert [each.state for each in await workshop.run(workshop.store.jobs.get(ids[:1]))] == [
        "running"
    ]
    go.set()
    await holder.stop()
    await other.stop()
    assert [(await workshop.job(each)).attempt for each in ids] == [1] * 6


async def test_slow_jobs_are_claimed_only_into_free_slots(workshop: Workshop) -> None:
    ends = asyncio.Semaphore(0)

    async def slow(job: Job[Any]) -> None:
        await ends.acquire()

    workshop.handle("slow", slow)
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, slots=4)
    await workshop.start("slow", count=20)
    workshop.have_due()
    for ended in (0, 4, 8):
        await workshop.events.seen("job_started", count=ended + 4)
        await workshop.beat(worker)
        assert len(workshop.ledger.leases()) == 4, "as many as there are slots"
        worker.advance(1)
        for _ in range(4):
            ends.release()
        await workshop.events.seen("job_completed", count=ended + 4)
    for _ in range(20):
        ends.release()
    await worker.stop()


@pytest.mark.parametrize("scope", ["type", "everything"])
async def test_what_is_paused_is_not_claimed_and_found_again_when_resumed(
    workshop: Workshop, scope: str
) -> None:
    workshop.handle_quick()
    workshop.handle("other", Crowd())
    store = workshop.store

    async def pause(paused: bool) -> None:
        if scope == "type":
            await workshop.run(store.workers.set_type("quick", paused=paused, by="ana"))
        else:
            await workshop.run(store.schema.pause(paused, "ana"))

    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    first = await workshop.start_one("quick")
    workshop.have_due()
    await workshop.events.seen("job_completed", job_id=first)
    await pause(True)
    await workshop.beat(worker)
    second = await workshop.start_one("quick")
    other = await workshop.start_one("other")
    workshop.have_due()
    if scope == "type":
        await workshop.events.seen("job_started", job_id=other)
    await workshop.beat(worker)
    assert (await workshop.job(second)).state == "pending"
    await pause(False)
    await workshop.beat(worker)
    await workshop.events.seen("job_completed", job_id=second)


async def test_more_begin_as_soon_as_more_may_run_at_once(workshop: Workshop) -> None:
    crowd = Crowd()
    workshop.handle("slow", crowd, concurrency=1)
    workshop.handle("other", crowd)
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.start_one("slow")
    await workshop.start_one("slow")
    workshop.have_due()
    await workshop.events.seen("job_started", type="slow")
    # All that may run does: nothing but other settings can make the worker claim again.
    other = await workshop.start_one("other")
    workshop.have_due()
    await workshop.events.seen("job_started", job_id=other)
    await workshop.beat(worker)
    await workshop.run(workshop.store.workers.set_type("slow", concurrency=2, by="ana"))
    await workshop.beat(worker)
    await workshop.events.seen("job_started", type="slow", count=2)
    crowd.go.set()


async def test_a_worker_that_begins_takes_nothing_that_was_paused_before(
    workshop: Workshop,
) -> None:
    workshop.handle_quick()
    await workshop.run(workshop.store.workers.set_type("quick", paused=True, by="ana"))
    job_id = await workshop.start_one("quick")
    await workshop.until_idle()
    assert (await workshop.job(job_id)).state == "pending"


async def test_a_type_without_a_handler_here_is_left_alone(workshop: Workshop) -> None:
    workshop.handle_quick()
    stranger = await workshop.start_one("somebody.elses")
    mine = await workshop.start_one("quick")
    await workshop.until_idle()
    assert await workshop.states([stranger, mine]) == ["pending", "completed"]
    assert (await workshop.job(stranger)).attempt == 0


async def test_jobs_whose_worker_died_run_one_at_a_time(workshop: Workshop) -> None:
    crowd = Crowd()
    workshop.handle("work", crowd)
    workshop.handle_quick()
    ids = await workshop.start("work", count=4)
    dead = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", count=4)
    assert sorted(await workshop.reap_as_if_later()) == sorted(ids)
    crowd.go.set()
    await workshop.events.seen("write_refused", count=4)
    await dead.stop()
    crowd.go.clear()
    crowd.most = 0
    await workshop.run(workshop.store.jobs.trigger(ids))
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", worker=worker.id)
    quick = await workshop.start("quick", count=5)
    workshop.have_due()
    await workshop.events.seen("job_completed", count=5)
    assert crowd.now == 1
    crowd.go.set()
    await workshop.events.seen("job_completed", count=9)
    await worker.stop()
    assert crowd.most == 1
    assert await workshop.states([*ids, *quick]) == ["completed"] * 9


async def test_a_copied_database_is_not_worked_off_until_it_is_adopted(workshop: Workshop) -> None:
    workshop.handle_quick()
    job_id = await workshop.start_one("quick")
    workshop.ledger.pretend_copied()
    with pytest.raises(CopiedDatabase, match=r"HF045.*production.*holdfast adopt"):
        await workshop.worker().run()
    assert (await workshop.job(job_id)).state == "pending"
    await workshop.run(workshop.store.schema.adopt(new_id()))
    await workshop.until_idle()
    assert (await workshop.job(job_id)).state == "completed"


BEATS = 3
"""A lease's time passes in so many steps, each no shorter than the pause between two heartbeats."""


async def _suspects(workshop: Workshop, type: str, count: int = 1) -> list[str]:
    """Start jobs whose workers died twice already, due in an hour."""
    ids = await workshop.start(type, count=count)
    for _ in range(2):
        await workshop.run(workshop.store.jobs.trigger(ids))
        claimed: list[str] = []
        while len(claimed) < count:
            claimed += await workshop.claim_for_nobody(type)
        assert sorted(await workshop.reap_as_if_later()) == sorted(ids)
    return ids


async def test_a_suspect_begins_when_all_others_have_ended_and_nothing_begins_beside_it(
    workshop: Workshop,
) -> None:
    crowd, alone = Crowd(), Crowd()
    workshop.handle("work", crowd)
    workshop.handle("suspect", alone)
    suspects = await _suspects(workshop, "suspect", count=2)
    others = await workshop.start("work", count=3)
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", count=3)
    await workshop.run(workshop.store.jobs.trigger(suspects))
    workshop.notifier.send([Hint("look", "suspect")])
    await until(lambda: len(workshop.ledger.leases()) == 4)
    later = await workshop.start("work", count=2)
    workshop.have_due()
    await workshop.beat(worker)
    # Two beats and a look later it still waits for those who were there first, and so do those who came later.
    await workshop.beat(worker)
    assert (crowd.now, alone.now) == (3, 0)
    crowd.go.set()
    await workshop.events.seen("job_started", type="suspect")
    workshop.have_due()
    await workshop.beat(worker)
    assert (crowd.now, alone.now) == (0, 1)
    crowd.go.clear()
    alone.go.set()
    # The others have their turn before the next suspect.
    await workshop.events.seen("job_started", count=5, type="work")
    assert len(workshop.events.of("job_started", type="suspect")) == 1
    crowd.go.set()
    await workshop.events.seen("job_completed", count=7)
    await worker.stop()
    assert alone.most == 1
    assert await workshop.states([*others, *suspects, *later]) == ["completed"] * 7


async def test_a_suspect_that_cannot_be_alone_goes_back_and_the_others_go_on(
    workshop: Workshop,
) -> None:
    crowd = Crowd()
    workshop.handle("work", crowd)
    workshop.handle_quick()
    workshop.handle("suspect", Crowd())
    (suspect,) = await _suspects(workshop, "suspect")
    await workshop.start("work")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", type="work")
    await workshop.run(workshop.store.jobs.trigger([suspect]))
    workshop.notifier.send([Hint("look", "suspect")])
    await until(lambda: len(workshop.ledger.leases()) == 2)
    await worker.asleep(DEFAULT.duration_ms / 1000)
    quick = await workshop.start("quick", count=3)
    # Beat by beat, so that nothing held is taken for lost.
    for _ in range(BEATS):
        await worker.advance_to_a_beat(DEFAULT.duration_ms / BEATS / 1000)
    await workshop.events.seen("job_released", job_id=suspect)
    await workshop.events.seen("job_completed", count=3)
    record = await workshop.job(suspect)
    assert (record.state, record.attempt, record.crashes) == ("pending", 2, 2)
    assert await workshop.states(quick) == ["completed"] * 3
    crowd.go.set()
    await workshop.events.seen("job_completed", count=4)
    await worker.stop()


async def test_a_suspect_that_waits_is_given_back_by_a_drain(workshop: Workshop) -> None:
    crowd = Crowd()
    workshop.handle("work", crowd)
    workshop.handle("suspect", Crowd())
    (suspect,) = await _suspects(workshop, "suspect")
    await workshop.start("work")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", type="work")
    await workshop.run(workshop.store.jobs.trigger([suspect]))
    workshop.notifier.send([Hint("look", "suspect")])
    await until(lambda: len(workshop.ledger.leases()) == 2)
    worker.worker.stop()
    await workshop.events.seen("job_released", job_id=suspect)
    crowd.go.set()
    report = await worker.ended()
    assert (report.abandoned, report.released) == (0, 1)
    assert (await workshop.job(suspect)).crashes == 2

"""Undoing: backwards, at least once, and after a crash where it was."""

import asyncio
from typing import Any

import pytest

from holdfast.commands.chains import cancel_chain
from holdfast.core.errors import Busy, Permanent
from holdfast.core.retry import Retry
from holdfast.worker.job import Job, SyncJob
from tests.steps.functions import completed, ended, records, start
from tests.support.until import until
from tests.worker.workshop import Workshop

TWICE = Retry(base="1ms", cap="1ms", max_attempts=2)


class Bookings:
    """Steps that can be undone, and what became of them, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.broken: set[str] = set()
        self.go = asyncio.Event()
        self.waits_for: str | None = None
        self.write = ""

    async def book(self, name: str) -> str:
        self.log.append(f"+{name}")
        return name

    async def free(self, name: str) -> None:
        if self.waits_for == name:
            self.log.append(f"?{name}")
            await self.go.wait()
        if name in self.broken:
            self.log.append(f"!{name}")
            raise ValueError(f"cannot free {name}")
        self.log.append(f"-{name}")

    async def book_row(self, tx: Any, name: str) -> str:
        await tx.execute(self.write, [f"+{name}"])
        return name

    async def free_row(self, tx: Any, name: str) -> None:
        await tx.execute(self.write, [f"-{name}"])
        if name in self.broken:
            raise ValueError(f"cannot free {name}")

    async def trip(self, job: Job[Any]) -> None:
        """Book three things, then fail for good."""
        for each in ("flight", "hotel", "car"):
            await job.step(each, self.book, each, undo=self.free)
        raise Permanent("the weather")

    async def rows(self, job: Job[Any]) -> None:
        """Book two rows, then fail for good."""
        for each in ("seat", "meal"):
            await job.step(each, self.book_row, each, atomic=True, undo=self.free_row)
        raise Permanent("the weather")


BACK = ["+flight", "+hotel", "+car", "-car", "-hotel", "-flight"]


async def test_steps_are_undone_backwards_before_the_job_fails(workshop: Workshop) -> None:
    bookings = Bookings()
    workshop.handle("trip", bookings.trip)
    async with workshop.working():
        record = await ended(workshop, await start(workshop, "trip"))
    assert record.state == "failed"
    assert "the weather" in str(record.error)
    assert bookings.log == BACK


async def test_the_order_is_that_of_completion(workshop: Workshop) -> None:
    bookings = Bookings()
    first = asyncio.Event()

    async def slow(name: str) -> str:
        await first.wait()
        return await bookings.book(name)

    async def quick(name: str) -> str:
        return await bookings.book(name)

    async def trip(job: Job[Any]) -> None:
        async def then() -> None:
            await job.step("quick", quick, "quick", undo=bookings.free)
            first.set()

        await asyncio.gather(job.step("slow", slow, "slow", undo=bookings.free), then())
        raise Permanent("the weather")

    workshop.handle("trip", trip)
    async with workshop.working():
        await ended(workshop, await start(workshop, "trip"))
    assert bookings.log == ["+quick", "+slow", "-slow", "-quick"]


async def test_atomic_undos_commit_their_rows_with_their_records(workshop: Workshop) -> None:
    bookings = Bookings()
    bookings.write = workshop.ledger.write_effect
    workshop.handle("rows", bookings.rows, retry=TWICE)
    async with workshop.working():
        await ended(workshop, await start(workshop, "rows"))
        assert workshop.ledger.effects() == ["+seat", "+meal", "-meal", "-seat"]
        bookings.broken.add("seat")
        record = await ended(workshop, await start(workshop, "rows"))
    assert workshop.ledger.effects()[4:] == ["+seat", "+meal", "-meal"]
    assert "1 of 2 undone" in str(record.error)


async def test_an_undo_that_fails_is_tried_again_and_then_a_dead_letter_says_so(
    workshop: Workshop,
) -> None:
    bookings = Bookings()
    bookings.broken.add("hotel")
    workshop.handle("trip", bookings.trip, retry=TWICE)
    async with workshop.working():
        record = await ended(workshop, await start(workshop, "trip"))
    assert bookings.log == ["+flight", "+hotel", "+car", "-car", "!hotel", "!hotel"]
    assert record.state == "failed"
    assert "the weather" in str(record.error)
    assert "1 of 3 undone; undoing step hotel failed: ValueError" in str(record.error)


async def test_undoing_goes_on_after_a_crash_and_does_nothing_else(workshop: Workshop) -> None:
    bookings = Bookings()
    bookings.waits_for = "hotel"
    late: list[str] = []
    is_first = [True]

    async def trip(job: Job[Any]) -> None:
        for each in ("flight", "hotel", "car"):
            await job.step(each, bookings.book, each, undo=bookings.free)
        if is_first:
            raise Permanent("the weather")
        # The code does not fail any more, but it has failed.
        await job.step("boat", bookings.book, "boat")
        late.append("went on")

    workshop.handle("trip", trip)
    worker = workshop.begin()
    job_id = await start(workshop, "trip")
    await until(lambda: "?hotel" in bookings.log)
    is_first.clear()
    bookings.waits_for = None
    # It dies in the middle of an undo.
    await worker.stop(2)
    workshop.ledger.expire()
    async with workshop.working():
        record = await ended(workshop, job_id)
    assert "the weather" in str(record.error)
    assert bookings.log == [*BACK[:4], "?hotel", "-hotel", "-flight"]
    assert late == []
    assert "undo:flight" in await records(workshop, job_id)


async def test_a_sync_function_is_undone_too_after_its_code_has_changed(workshop: Workshop) -> None:
    log: list[str] = []
    is_first = [True]

    def book(name: str) -> str:
        log.append(f"+{name}")
        return name

    def free(name: str) -> None:
        if is_first:
            is_first.clear()
            raise ValueError("not now")
        log.append(f"-{name}")

    def trip(job: SyncJob[Any]) -> None:
        job.step("flight", book, "flight", undo=free)
        if is_first:
            raise Permanent("the weather")
        job.step("boat", book, "boat")

    workshop.handle("trip", trip, retry=TWICE)
    async with workshop.working():
        record = await ended(workshop, await start(workshop, "trip"))
    assert log == ["+flight", "-flight"]
    assert "the weather" in str(record.error)


async def test_what_is_cancelled_while_it_is_undone_costs_no_slot(workshop: Workshop) -> None:
    bookings = Bookings()
    bookings.waits_for = "car"

    async def quick(job: Job[Any]) -> str:
        return "ran"

    workshop.handle("trip", bookings.trip)
    workshop.handle("quick", quick)
    async with workshop.working(slots=1, notifier=workshop.notifier):
        job_id = await start(workshop, "trip")
        await until(lambda: "?car" in bookings.log)
        await workshop.run(cancel_chain(workshop.store, job_id))
        bookings.go.set()
        assert await completed(workshop, await start(workshop, "quick")) == '"ran"'
    assert (await workshop.job(job_id)).state == "cancelled"
    assert "undo:car" not in await records(workshop, job_id)


@pytest.mark.parametrize("error", [Busy("1ms"), SystemExit(2)])
async def test_an_undo_may_raise_whatever_a_handler_may(
    workshop: Workshop, error: BaseException
) -> None:
    bookings = Bookings()
    raised = [error]

    async def free(name: str) -> None:
        if raised:
            raise raised.pop()
        await bookings.free(name)

    async def trip(job: Job[Any]) -> None:
        await job.step("flight", bookings.book, "flight", undo=free)
        raise Permanent("the weather")

    async def quick(job: Job[Any]) -> str:
        return "ran"

    workshop.handle("trip", trip, retry=TWICE)
    workshop.handle("quick", quick)
    async with workshop.working(slots=1):
        record = await ended(workshop, await start(workshop, "trip"))
        assert await completed(workshop, await start(workshop, "quick")) == '"ran"'
    assert bookings.log == ["+flight", "-flight"]
    assert "the weather" in str(record.error)


async def test_a_step_beside_the_one_that_failed_is_recorded_and_undone(workshop: Workshop) -> None:
    bookings = Bookings()
    failed = asyncio.Event()

    async def slow(name: str) -> str:
        await failed.wait()
        await asyncio.sleep(0.02)
        return await bookings.book(name)

    async def fail(name: str) -> None:
        failed.set()
        raise ValueError(name)

    async def trip(job: Job[Any]) -> None:
        await asyncio.gather(
            job.step("slow", slow, "slow", undo=bookings.free),
            job.step("fails", fail, "fails", retry=Retry(max_attempts=1)),
        )

    workshop.handle("trip", trip)
    async with workshop.working():
        record = await ended(workshop, await start(workshop, "trip"))
    assert bookings.log == ["+slow", "-slow"]
    assert "StepFailed" in str(record.error)

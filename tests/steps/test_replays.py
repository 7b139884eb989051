"""What was recorded is never done again: identity, replays, and code that does not fit its records."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from holdfast.core.errors import StepFailed
from holdfast.core.retry import Retry
from holdfast.worker.job import Job, SyncJob
from tests.steps.functions import (
    AT_ONCE,
    Calls,
    completed,
    ended,
    parked,
    records,
    send,
    start,
    stored,
)
from tests.support.until import until
from tests.worker.workshop import LATER, Workshop


@dataclass
class Paid:
    amount: Decimal
    on: date


async def pay(amount: str) -> Paid:
    return Paid(Decimal(amount), date(2026, 11, 17))


async def test_a_recorded_step_does_not_run_in_the_next_worker(workshop: Workshop) -> None:
    calls = Calls()
    seen: list[Any] = []

    async def order(job: Job[str]) -> str:
        paid = await job.step("pay", pay, "7.50")
        seen.append(paid)
        seen.append(await job.step("echo", calls.echo, "a"))
        await job.wait_for("go")
        await job.step("echo", calls.echo, "b")
        return str(paid.amount)

    workshop.handle("order", order)
    job_id = await start(workshop, "order")
    async with workshop.working():
        await parked(workshop, job_id)
    await send(workshop, "go")
    async with workshop.working(notifier=workshop.notifier):
        assert await completed(workshop, job_id) == '"7.50"'
    assert calls.of == {"a": 1, "b": 1}
    paid = Paid(Decimal("7.50"), date(2026, 11, 17))
    assert seen == [paid, "a", paid, "a"]


async def test_a_recorded_step_of_a_sync_handler_does_not_run_again(workshop: Workshop) -> None:
    calls = Calls()

    def order(job: SyncJob[str]) -> int:
        first = job.step("echo", calls.echo_sync, 1)
        job.wait_for("go")
        second = job.step("echo", calls.echo_sync, 2)
        return int(first + second)

    workshop.handle("order", order)
    job_id = await start(workshop, "order")
    async with workshop.working():
        await parked(workshop, job_id)
    await send(workshop, "go")
    async with workshop.working(notifier=workshop.notifier):
        assert await completed(workshop, job_id) == "3"
    assert calls.of == {"1": 1, "2": 1}


async def test_every_replay_raises_the_same_failure(workshop: Workshop) -> None:
    calls = Calls()
    seen: list[tuple[str, str, str, str]] = []

    async def order(job: Job[str]) -> str:
        try:
            await job.step("pay", calls.fail, "no money", retry=Retry(max_attempts=1))
        except StepFailed as error:
            seen.append((error.step, error.kind, error.text, str(error)))
        await job.wait_for("go")
        return "went on"

    workshop.handle("order", order)
    job_id = await start(workshop, "order")
    async with workshop.working():
        await parked(workshop, job_id)
    await send(workshop, "go")
    async with workshop.working(notifier=workshop.notifier):
        assert await completed(workshop, job_id) == '"went on"'
    assert calls.of == {"no money": 1}
    first, second = seen
    assert first == second
    assert first[:3] == ("pay", "ValueError", "no money")


async def test_a_failed_step_makes_a_dead_letter_at_once_and_runs_again_after_a_redrive(
    workshop: Workshop,
) -> None:
    broken = [True]

    async def pay(amount: int) -> int:
        if broken:
            raise ValueError("no money")
        return amount

    calls = Calls()

    async def order(job: Job[int]) -> int:
        await job.step("echo", calls.echo, "before")
        return await job.step("pay", pay, 5, retry=Retry(max_attempts=1))

    workshop.handle("order", order, retry=AT_ONCE)
    job_id = await start(workshop, "order")
    async with workshop.working() as worker:
        record = await ended(workshop, job_id)
        assert record.state == "failed"
        assert "no money" in str(record.error)
        broken.clear()
        await workshop.run(workshop.store.jobs.redrive([job_id]))
        assert await completed(workshop, job_id) == "5"
        assert worker.id
    assert calls.of == {"before": 1}


async def test_keys_tell_steps_of_one_name_apart_in_any_order(workshop: Workshop) -> None:
    calls = Calls()
    order_of: list[list[str]] = [["a", "b", "c"], ["c", "a", "b"]]

    async def mails(job: Job[None]) -> list[str]:
        names = order_of.pop(0)
        found = await asyncio.gather(
            *(job.step("mail", calls.echo, each, key=each) for each in names)
        )
        await job.wait_for("go")
        return sorted(found)

    workshop.handle("mails", mails)
    job_id = await start(workshop, "mails")
    async with workshop.working(notifier=workshop.notifier):
        await parked(workshop, job_id)
        await send(workshop, "go")
        assert await completed(workshop, job_id) == '["a","b","c"]'
    assert calls.of == {"a": 1, "b": 1, "c": 1}


async def test_uses_of_a_name_without_keys_are_counted(workshop: Workshop) -> None:
    calls = Calls()

    async def loop(job: Job[None]) -> list[int]:
        found = [await job.step("part", calls.echo, each) for each in range(3)]
        await job.wait_for("go")
        return found

    workshop.handle("loop", loop)
    job_id = await start(workshop, "loop")
    async with workshop.working(notifier=workshop.notifier):
        await parked(workshop, job_id)
        await send(workshop, "go")
        assert await completed(workshop, job_id) == "[0,1,2]"
    assert calls.of == {"0": 1, "1": 1, "2": 1}
    assert {"part", "part#2", "part#3"} <= set(await records(workshop, job_id))


async def test_two_at_the_same_time_under_one_identity_are_refused(workshop: Workshop) -> None:
    calls = Calls()

    async def twins(job: Job[None]) -> list[str]:
        found = await asyncio.gather(
            job.step("mail", calls.echo, "a"),
            job.step("mail", calls.echo, "b"),
            job.step("post", calls.echo, "c", key="same"),
            job.step("post", calls.echo, "d", key="same"),
            return_exceptions=True,
        )
        return [str(getattr(each, "code", each)) for each in found]

    workshop.handle("twins", twins)
    job_id = await start(workshop, "twins")
    async with workshop.working():
        assert await completed(workshop, job_id) == '["a","HF155","c","HF155"]'
    assert calls.of == {"a": 1, "c": 1}


@pytest.mark.parametrize("kind", ["sleep", "wait"])
async def test_two_waits_at_the_same_time_under_one_identity_are_refused(
    workshop: Workshop, kind: str
) -> None:
    async def twins(job: Job[None]) -> None:
        wait = partial(job.sleep, "1h") if kind == "sleep" else partial(job.wait_for, "go")
        await asyncio.gather(wait(), wait(key="a"), wait(key="b"))
        raise AssertionError("it is parked")

    async def conflict(job: Job[None]) -> None:
        wait = partial(job.sleep, "1h") if kind == "sleep" else partial(job.wait_for, "go")
        await asyncio.gather(wait(), wait())

    workshop.handle("twins", twins)
    workshop.handle("conflict", conflict)
    async with workshop.working():
        await parked(workshop, await start(workshop, "twins"))
        record = await ended(workshop, await start(workshop, "conflict"))
        assert "StepConflict" in str(record.error)


async def test_a_step_may_have_any_name_that_we_use_ourselves(workshop: Workshop) -> None:
    calls = Calls()

    async def named(job: Job[None]) -> list[str]:
        found = [
            await job.step(name, calls.echo, name)
            for name in ("failure", "sleep", "undo", "wait", "run", "cursor", "failure.retry")
        ]
        await job.sleep("1ms")
        await job.wait_for("go")
        return found

    workshop.handle("named", named)
    job_id = await start(workshop, "named")
    async with workshop.working(notifier=workshop.notifier):
        await parked(workshop, job_id)
        await send(workshop, "go")
        await completed(workshop, job_id)
    assert set(calls.of.values()) == {1}


async def test_a_keyed_and_a_counted_step_of_one_name_are_retried_apart(workshop: Workshop) -> None:
    tries: list[str] = []

    async def flaky(which: str) -> str:
        tries.append(which)
        if tries.count(which) == 1:
            raise ValueError(which)
        return which

    async def order(job: Job[None]) -> list[str]:
        retry = Retry(base="1ms", cap="1ms", max_attempts=2)
        return [
            await job.step("pay", flaky, "counted", retry=retry),
            await job.step("pay", flaky, "keyed", key="1", retry=retry),
        ]

    workshop.handle("order", order)
    job_id = await start(workshop, "order")
    async with workshop.working():
        assert await completed(workshop, job_id) == '["counted","keyed"]'
    assert tries == ["counted", "counted", "keyed", "keyed"]


def other_arguments(job: Job[Any], calls: Calls) -> Any:
    return job.step("pay", calls.echo, 2)


def other_kind(job: Job[Any], calls: Calls) -> Any:
    return job.cursor("pay", 1)


def other_type(job: Job[Any], calls: Calls) -> Any:
    async def pay(amount: int) -> Paid:
        raise AssertionError("it was recorded")

    return job.step("pay", pay, 1)


async def swallowed(job: Job[Any], calls: Calls) -> Any:
    try:
        await job.step("pay", calls.echo, 2)
    except Exception:
        return await job.step("refund", calls.echo, "refunded")


@pytest.mark.parametrize("other", [other_arguments, other_kind, other_type, swallowed])
async def test_code_that_does_not_fit_stops_visibly_and_goes_on_once_it_fits(
    workshop: Workshop, other: Callable[[Job[Any], Calls], Any]
) -> None:
    calls = Calls()

    async def order(job: Job[Any]) -> str:
        paid = await job.step("pay", calls.echo, 1)
        await job.wait_for("go")
        return f"paid {paid}"

    async def changed(job: Job[Any]) -> Any:
        return await other(job, calls)

    workshop.handle("order", order)
    old = dict(workshop.types)
    job_id = await start(workshop, "order")
    async with workshop.working():
        await parked(workshop, job_id)
    await send(workshop, "go")
    workshop.handle("order", changed, retry=LATER)
    async with workshop.working(notifier=workshop.notifier):
        (told,) = await workshop.events.seen("job_unreadable", job_id=job_id)
        await until(lambda: workshop.ledger.leases() == [])
    record = await workshop.job(job_id)
    assert (record.state, record.attempt) == ("pending", 0)
    assert "pay" in str(told.fields)
    async with workshop.working(notifier=workshop.notifier, types=old):
        assert await completed(workshop, job_id) == '"paid 1"'
    assert calls.of == {"1": 1}


async def test_old_and_new_code_in_turn_do_each_step_once(workshop: Workshop) -> None:
    calls = Calls()

    async def old(job: Job[Any]) -> str:
        for each in range(4):
            await job.step("part", calls.echo, f"part {each}", key=each)
            await job.wait_for("go", key=each)
        return "old"

    async def new(job: Job[Any]) -> str:
        for each in range(4):
            await job.step("extra", calls.echo, f"extra {each}", key=each)
            await job.step("part", calls.echo, f"part {each}", key=each)
            await job.wait_for("go", key=each)
        return "new"

    versions = []
    for code in (old, new):
        workshop.handle("order", code)
        versions.append(dict(workshop.types))
    job_id = await start(workshop, "order")
    for each in range(4):
        async with workshop.working(notifier=workshop.notifier, types=versions[each % 2]):
            await parked(workshop, job_id, each + 1)
        await send(workshop, "go", each)
    async with workshop.working(notifier=workshop.notifier, types=versions[0]):
        assert await completed(workshop, job_id) == '"old"'
    done = [f"{kind} {each}" for kind in ("part", "extra") for each in range(4)]
    assert calls.of == dict.fromkeys(done, 1)
    assert (await workshop.job(job_id)).crashes == 0


async def test_progress_counts_an_attempt_as_the_first_and_no_progress_does_not(
    workshop: Workshop,
) -> None:
    calls = Calls()
    attempts: list[int] = []

    async def order(job: Job[None]) -> None:
        attempts.append(job.attempt)
        if len(attempts) <= 4:
            await job.step("part", calls.echo, len(attempts), key=len(attempts))
        raise ValueError("between steps")

    workshop.handle("order", order, retry=Retry(base="1ms", cap="1ms", max_attempts=3))
    job_id = await start(workshop, "order")
    async with workshop.working():
        record = await ended(workshop, job_id)
    assert record.state == "failed"
    # Four attempts made progress, each the first again; then two more.
    assert attempts == [1, 2, 2, 2, 2, 3]


async def test_progress_does_not_reset_the_count_of_killed_workers(workshop: Workshop) -> None:
    calls = Calls()
    go = asyncio.Event()

    async def order(job: Job[None]) -> None:
        await job.step("part", calls.echo, job.fence, key=job.fence)
        await go.wait()

    workshop.handle("order", order)
    job_id = await start(workshop, "order")
    await workshop.claim_for_nobody("order")
    assert await workshop.reap_as_if_later() == [job_id]
    async with workshop.working():
        await until(lambda: len(calls.of) == 1)
        await until(lambda: len(stored(workshop, "step")) == 1)
        record = await workshop.job(job_id)
        assert (record.attempt, record.crashes) == (1, 1)
        go.set()
        assert (await ended(workshop, job_id)).state == "completed"

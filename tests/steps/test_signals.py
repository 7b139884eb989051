"""Signals and sleeps: no wake-up is lost, and of a signal and a timeout one wins once."""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from holdfast.commands.retention import FIRST_ID, Ages, remove_chains
from holdfast.commands.signals import make_signal, send_signal
from holdfast.core.errors import SignalTimeout
from holdfast.core.instants import to_instant
from holdfast.core.upgrades import upgrade_of
from holdfast.storage.operation import run_async
from holdfast.worker.job import Job
from tests.steps.functions import (
    Calls,
    completed,
    ended,
    hint,
    parked,
    records,
    send,
    start,
    starts,
)
from tests.support.manual_clock import ManualClock
from tests.support.until import until
from tests.worker.faults import Faults
from tests.worker.workshop import Workshop

A_YEAR_US = 365 * 86_400 * 1_000_000


async def waiting(job: Job[Any]) -> Any:
    return await job.wait_for("go", key=7)


async def timing(job: Job[Any]) -> Any:
    try:
        return await job.wait_for("go", key=7, timeout=job.input)
    except SignalTimeout as error:
        return f"timeout of {error.signal} {error.key}"


async def test_a_signal_that_came_before_its_wait_is_taken(workshop: Workshop) -> None:
    workshop.handle("waiting", waiting)
    assert await send(workshop, "go", 7, "early")
    async with workshop.working():
        assert await completed(workshop, await start(workshop, "waiting")) == '"early"'


async def test_a_signal_that_comes_after_parking_wakes_with_hints(workshop: Workshop) -> None:
    workshop.handle("waiting", waiting)
    async with workshop.working(notifier=workshop.notifier):
        job_id = await start(workshop, "waiting")
        await parked(workshop, job_id)
        await send(workshop, "go", 8, "another's")
        await send(workshop, "go", 7, "mine")
        assert await completed(workshop, job_id) == '"mine"'


async def test_a_signal_wakes_with_notifications_off(workshop: Workshop) -> None:
    # The worker's clock runs as fast as the database answers, so minutes of it are nothing.
    workshop.handle("waiting", waiting, timeout="1d")
    clock = ManualClock()
    worker = workshop.begin(clock)
    job_id = await workshop.start_one("waiting")
    await workshop.seen_in_time(worker, "job_parked", 0.05, job_id=job_id)
    signal = make_signal("go", 7, "quiet")
    await workshop.run(send_signal(workshop.store, signal))
    await workshop.seen_in_time(worker, "job_completed", 1, job_id=job_id)
    assert (await workshop.job(job_id)).output == '"quiet"'


async def test_a_signal_that_comes_between_the_wait_and_parking_is_not_lost(
    workshop: Workshop,
) -> None:
    async def function(job: Job[Any]) -> Any:
        async def is_recorded() -> bool:
            return "wait:go[7]" in await records(workshop, str(job.id))

        async def meanwhile() -> None:
            # The wait is recorded, the function is not parked yet.
            await until(is_recorded)
            await workshop.run(send_signal(workshop.store, make_signal("go", 7, "between")))

        found, _ = await asyncio.gather(job.wait_for("go", key=7), job.step("meanwhile", meanwhile))
        return found

    workshop.handle("function", function)
    async with workshop.working():
        assert await completed(workshop, await start(workshop, "function")) == '"between"'


async def test_a_signal_that_was_rolled_back_never_existed(workshop: Workshop) -> None:
    workshop.handle("waiting", waiting)
    async with workshop.working(notifier=workshop.notifier):
        job_id = await start(workshop, "waiting")
        await parked(workshop, job_id)
        with suppress(ZeroDivisionError):
            async with workshop.database.transaction_async() as tx:
                op = send_signal(workshop.store, make_signal("go", 7, "never"))
                workshop.notifier.send((await run_async(op, tx)).hints)
                raise ZeroDivisionError
        await send(workshop, "go", 7, "then")
        assert await completed(workshop, job_id) == '"then"'


async def test_one_signal_goes_to_one_wait_and_a_broadcast_to_all(workshop: Workshop) -> None:
    workshop.handle("waiting", waiting)
    async with workshop.working(notifier=workshop.notifier):
        ids = [await start(workshop, "waiting") for _ in range(3)]
        for each in ids:
            await parked(workshop, each)
        await send(workshop, "go", 7, "one")
        await workshop.events.seen("job_completed")
        assert len(workshop.events.of("job_completed")) == 1
        await send(workshop, "go", 7, "all", broadcast=True)
        outputs = sorted([str(await completed(workshop, each)) for each in ids])
        assert outputs == ['"all"', '"all"', '"one"']


async def test_a_function_takes_the_signals_of_one_key_in_turn(workshop: Workshop) -> None:
    async def function(job: Job[Any]) -> list[Any]:
        return [await job.wait_for("go", key=7) for _ in range(3)]

    workshop.handle("function", function)
    for each in (1, 2, 3):
        await send(workshop, "go", 7, each)
    assert not await send(workshop, "go", 7, 4, id="x") or not await send(
        workshop, "go", 7, 5, id="x"
    )
    async with workshop.working():
        assert await completed(workshop, await start(workshop, "function")) == "[1,2,3]"


async def test_of_ten_thousand_signals_of_one_key_each_wait_takes_one(workshop: Workshop) -> None:
    async def function(job: Job[Any]) -> list[Any]:
        return [await job.wait_for("go", key=7) for _ in range(3)]

    workshop.handle("function", function)
    async with workshop.working(notifier=workshop.notifier, slots=20):
        early = [await start(workshop, "function") for _ in range(5)]
        for each in early:
            await parked(workshop, each)

        async def send_many(first: int) -> None:
            signals = [make_signal("go", 7, first + each) for each in range(500)]
            await workshop.run(workshop.store.signals.append(signals))
            hint(workshop, "go")

        senders = asyncio.gather(*(send_many(first) for first in range(0, 10_000, 500)))
        late = await asyncio.gather(*(start(workshop, "function") for _ in range(5)))
        await senders
        ids = [*early, *late]
        workshop.have_due()
        outputs = [json.loads(str(await completed(workshop, each))) for each in ids]
    taken = [each for output in outputs for each in output]
    assert len(set(taken)) == len(taken) == 30
    left = await workshop.run(workshop.store.signals.list(10_001))
    assert Counter(each.taken_by for each in left) == {None: 9_970} | dict.fromkeys(ids, 3)


class Decision(msgspec.Struct):
    ok: bool


async def deciding(job: Job[Any]) -> Any:
    decision = await job.wait_for("decided", key=7, returns=Decision)
    return "yes" if decision.ok else "no"


async def waiting_for_anything(job: Job[Any]) -> Any:
    return await job.wait_for("decided", key=7)


async def test_data_that_does_not_fit_stops_the_function_with_both_sides_named_and_is_kept(
    workshop: Workshop,
) -> None:
    workshop.handle("deciding", deciding)
    async with workshop.working(notifier=workshop.notifier):
        job_id = await start(workshop, "deciding")
        await parked(workshop, job_id)
        await send(workshop, "decided", 7, {"ok": "a secret"})
        (told,) = await workshop.events.seen("job_unreadable", job_id=job_id)
        await until(lambda: workshop.ledger.leases() == [])
    assert told.fields["error"] == (
        "StepUnreadable: signal decided for key 7 brought an object: "
        "the data does not fit Decision at $.ok: Expected `bool`, got `str`"
    )
    record = await workshop.job(job_id)
    assert (record.state, record.attempt) == ("pending", 0)
    workshop.handle("deciding", waiting_for_anything)
    async with workshop.working(notifier=workshop.notifier):
        assert await completed(workshop, job_id) == '{"ok":"a secret"}'


async def test_data_that_does_not_fit_can_be_upgraded(workshop: Workshop) -> None:
    def upgrade(data: Any) -> Any:
        return {"ok": data == "yes"}

    workshop.handle("deciding", deciding)
    workshop.types["deciding"].step_upgrades["wait:decided"] = upgrade_of(upgrade)
    async with workshop.working(notifier=workshop.notifier):
        job_id = await start(workshop, "deciding")
        await parked(workshop, job_id)
        await send(workshop, "decided", 7, "yes")
        assert await completed(workshop, job_id) == '"yes"'


async def test_a_wait_and_the_signal_that_it_is_given_outlive_retention(workshop: Workshop) -> None:
    """The function waits for months, and what has ended meanwhile is removed around it."""

    async def quick(job: Job[Any]) -> None: ...

    async def remove_old() -> tuple[int, int]:
        later = await workshop.run(workshop.store.schema.clock()) + A_YEAR_US
        ages = Ages(chains=30, dead_letters=30, runs=30)
        chains = await workshop.run(remove_chains(workshop.store, ages, FIRST_ID, 100, later))
        signals = await workshop.run(workshop.store.retention.drop_signals(100, later))
        return chains.removed, signals

    workshop.handle("waiting", waiting)
    workshop.handle("quick", quick)
    async with workshop.working():
        job_id = await start(workshop, "waiting")
        await parked(workshop, job_id)
        await completed(workshop, await start(workshop, "quick"))
    await send(workshop, "elsewhere", 7, "nobody waits for it")
    assert await remove_old() == (1, 1)
    assert set(await records(workshop, job_id)) == {"wait:go[7]"}
    await send(workshop, "go", 7, "at last")
    async with workshop.working(notifier=workshop.notifier):
        assert await completed(workshop, job_id) == '"at last"'
    assert await remove_old() == (1, 1)
    assert await records(workshop, job_id) == {}


async def test_a_timeout_is_recorded_and_stays(workshop: Workshop) -> None:
    async def function(job: Job[Any]) -> Any:
        found = await timing(job)
        await job.wait_for("end")
        return found

    workshop.handle("function", function)
    async with workshop.working(notifier=workshop.notifier):
        job_id = await start(workshop, "function", "1ms")
        await until(lambda: starts(workshop, job_id) >= 1)

        async def is_over() -> bool:
            return "wait:end" in await records(workshop, job_id)

        await until(is_over)
        await send(workshop, "go", 7, "too late")
        await send(workshop, "end")
        assert await completed(workshop, job_id) == '"timeout of go 7"'
    found = await records(workshop, job_id)
    assert found["wait:go[7]"].state == "timed_out"


@pytest.mark.parametrize("fault", ["before", "after"])
async def test_a_signal_is_taken_once_though_the_answer_was_lost(
    workshop: Workshop, fault: Any
) -> None:
    faults = Faults()
    workshop.handle("waiting", waiting)
    async with workshop.working(notifier=workshop.notifier, faults=faults):
        job_id = await start(workshop, "waiting")
        await parked(workshop, job_id)
        before = faults.runs("steps")
        faults.set(fault, "steps")
        await send(workshop, "go", 7, "taken")
        await faults.ran("steps", before + 2)
        faults.clear()
        assert await completed(workshop, job_id) == '"taken"'


async def test_signal_and_timeout_at_the_same_moment_win_once(workshop: Workshop) -> None:
    workshop.handle("timing", timing)
    async with workshop.working(notifier=workshop.notifier):
        ids = [await start(workshop, "timing", f"{20 + 5 * each}ms") for each in range(8)]
        for each in range(8):
            await asyncio.sleep(0.005)
            await send(workshop, "go", 7, each)
        outputs = [str(await completed(workshop, each)) for each in ids]
    taken = [each for each in outputs if "timeout" not in each]
    assert len(taken) == len(set(taken))
    states = [(await records(workshop, each))["wait:go[7]"].state for each in ids]
    assert states == ["timed_out" if "timeout" in each else "done" for each in outputs]


async def test_a_sleep_ends_when_the_database_says_so(workshop: Workshop) -> None:
    calls = Calls()

    async def function(job: Job[Any]) -> None:
        await job.step("before", calls.echo, "before")
        await job.sleep("10m")
        await job.step("after", calls.echo, "after")

    workshop.handle("function", function)
    async with workshop.working():
        job_id = await start(workshop, "function")
        await parked(workshop, job_id)
        record = await workshop.job(job_id)
        assert record.state == "pending"
        until_ = (await records(workshop, job_id))["sleep"].until
    # Another worker claims it early, for what reason ever: the end stays where it was.
    assert calls.of == {"before": 1}
    workshop.ledger.postpone([job_id])
    async with workshop.working():
        assert (await records(workshop, job_id))["sleep"].until == until_
    assert calls.of == {"before": 1}


async def test_a_sleep_until_a_time_needs_its_zone(workshop: Workshop) -> None:
    async def function(job: Job[Any]) -> str:
        await job.sleep(datetime.now(UTC) - timedelta(days=1))
        try:
            await job.sleep(datetime(2026, 1, 1))  # noqa: DTZ001
        except Exception as error:
            return type(error).__name__
        return "slept"

    workshop.handle("function", function)
    async with workshop.working():
        record = await ended(workshop, await start(workshop, "function"))
        assert record.output == '"InvalidOption"'


async def test_a_sleep_until_a_time_is_told_from_one_that_lasts(workshop: Workshop) -> None:
    """A clock that is set back moves the end of what lasts, and not a time that was named."""
    night = datetime.now(UTC) + timedelta(days=1)

    async def function(job: Job[Any]) -> None:
        await asyncio.gather(job.sleep(night, key="until"), job.sleep("1d", key="for"))

    workshop.handle("function", function)
    async with workshop.working():
        job_id = await start(workshop, "function")
        await parked(workshop, job_id)
        found = await records(workshop, job_id)
    named = {name: each.arguments for name, each in found.items()}
    assert named == {"sleep[until]": to_instant(night), "sleep[for]": None}


async def test_sleeps_side_by_side_end_each_at_its_time(workshop: Workshop) -> None:
    async def function(job: Job[Any]) -> str:
        await asyncio.gather(*(job.sleep(f"{each}ms", key=each) for each in (1, 30, 60)))
        return "slept"

    workshop.handle("function", function)
    async with workshop.working():
        assert await completed(workshop, await start(workshop, "function")) == '"slept"'

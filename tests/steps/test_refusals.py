"""What durable functions refuse, their limits, and how their steps are tried again."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import current_step
from holdfast.core.errors import Busy, Permanent, StepsRefused
from holdfast.core.outcome import Snooze
from holdfast.core.retry import Retry
from holdfast.steps import step_history
from holdfast.worker.job import Job, SyncJob
from tests.steps.functions import AT_ONCE, Calls, completed, ended, records, start, starts
from tests.support.until import until
from tests.worker.workshop import Workshop

calls = Calls()


async def refused(call: Any) -> str:
    try:
        await call
    except Exception as error:
        return str(getattr(error, "code", None) or type(error).__name__)
    return "accepted"


BAD: dict[str, Callable[[Job[Any]], Any]] = {
    "key of a float": lambda job: job.step("a", calls.echo, 1, key=7.0),
    "key of bytes": lambda job: job.sleep(0, key=b"7"),
    "sync function": lambda job: job.step("a", calls.echo_sync, 1),
    "no function": lambda job: job.step("a", 5),  # type: ignore[call-overload]
    "sync undo": lambda job: job.step("a", calls.echo, 1, undo=calls.echo_sync),
    "retry": lambda job: job.step("a", calls.echo, 1, retry=3),  # type: ignore[call-overload]
    "atomic": lambda job: job.step("a", calls.echo, 1, atomic="yes"),  # type: ignore[call-overload]
    "undo": lambda job: job.step("a", calls.echo, 1, undo="free"),  # type: ignore[call-overload]
    "timeout": lambda job: job.step("a", calls.echo, 1, timeout="soon"),
    "key": lambda job: job.step("a", calls.echo, 1, key=[1]),
    "empty key": lambda job: job.step("a", calls.echo, 1, key=""),
    "long key": lambda job: job.step("a", calls.echo, 1, key="x" * 201),
    "key with a NUL": lambda job: job.step("a", calls.echo, 1, key="a\0b"),
    "key with a lone surrogate": lambda job: job.step("a", calls.echo, 1, key="a\ud800"),
    "name": lambda job: job.step("a b", calls.echo, 1),
    "long name": lambda job: job.step("x" * 201, calls.echo, 1),
    "no name": lambda job: job.step("", calls.echo, 1),
    "sleep": lambda job: job.sleep("later"),
    "signal": lambda job: job.wait_for("a b"),
    "signal's key": lambda job: job.wait_for("a", key=object()),
    "signal's key with a lone surrogate": lambda job: job.wait_for("a", key="\ud800"),
    "signal's timeout": lambda job: job.wait_for("a", timeout="x"),
    "run": lambda job: job.run(object()),  # type: ignore[call-overload]
}


async def test_bad_input_is_refused_before_anything_is_recorded(workshop: Workshop) -> None:
    async def function(job: Job[Any]) -> dict[str, str]:
        return {name: await refused(call(job)) for name, call in BAD.items()}

    calls.of.clear()
    workshop.handle("function", function)
    async with workshop.working():
        job_id = await start(workshop, "function")
        output = str(await completed(workshop, job_id))
    assert "accepted" not in output, output
    assert output.count("HF") == len(BAD), output
    assert calls.of == {}
    assert await records(workshop, job_id) == {}


async def test_handlers_that_are_run_whole_have_no_steps(workshop: Workshop) -> None:
    seen: dict[str, str] = {}

    async def atomic(job: Job[Any]) -> None:
        seen["atomic"] = await refused(_step(job))

    async def batch(jobs: list[Job[Any]]) -> None:
        seen["batch"] = await refused(_step(jobs[0]))

    async def fails(job: Job[Any]) -> None:
        raise Permanent("for good")

    async def on_failed(job: Job[Any]) -> None:
        seen["on_failed"] = await refused(_step(job))

    async def staged(job: Job[Any]) -> None:
        await job.step("before", calls.echo, 1)
        async with job.prepare():
            seen["prepare"] = await refused(_step(job))
        async with job.complete():
            seen["complete"] = await refused(_step(job))

    async def _step(job: Job[Any]) -> None:
        await job.step("one", calls.echo, 1)

    workshop.handle("atomic", atomic, atomic=True)
    workshop.handle("batch", batch, batch=5)
    workshop.handle("fails", fails, on_failed=on_failed)
    workshop.handle("staged", staged)
    async with workshop.working():
        for name in list(workshop.types):
            await ended(workshop, await start(workshop, name))
    assert seen == dict.fromkeys(("atomic", "batch", "on_failed", "prepare", "complete"), "HF154")


async def test_a_sync_handler_takes_sync_functions_only(workshop: Workshop) -> None:
    def function(job: SyncJob[Any]) -> list[str]:
        found = []
        for given in ({"function": calls.echo}, {"function": calls.echo_sync, "timeout": "1s"}):
            try:
                job.step("a", arguments=(1,), **given)  # type: ignore[call-overload]
            except TypeError:
                options = dict(given)
                called = options.pop("function")
                try:
                    job.step("a", called, 1, **options)  # type: ignore[call-overload]
                except Exception as error:
                    found.append(str(getattr(error, "code", error)))
        return found

    workshop.handle("function", function)
    async with workshop.working():
        output = await completed(workshop, await start(workshop, "function"))
    assert str(output).count("HF") == 2


async def test_outside_of_a_step_there_is_no_current_one() -> None:
    with pytest.raises(StepsRefused):
        current_step()


async def test_a_step_knows_its_id_fence_and_try(workshop: Workshop) -> None:
    seen: list[tuple[str, bool, int]] = []

    async def function(job: Job[Any]) -> None:
        async def flaky() -> None:
            info = current_step()
            seen.append((info.id, info.fence == job.fence, info.attempt))
            if len(seen) < 3:
                raise ValueError("again")

        await job.step("pay", flaky, retry=AT_ONCE)
        with pytest.raises(StepsRefused):
            current_step()

    workshop.handle("function", function)
    async with workshop.working():
        job_id = await start(workshop, "function")
        await completed(workshop, job_id)
    assert seen == [(f"{job_id}/pay", True, each) for each in (1, 2, 3)]


async def test_a_function_has_no_more_records_than_it_may(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_history, "MAX_STEPS", 5)
    mine = Calls()

    async def function(job: Job[Any]) -> None:
        for each in range(10):
            await job.step("part", mine.echo, each)

    workshop.handle("function", function)
    async with workshop.working():
        record = await ended(workshop, await start(workshop, "function"))
    assert "TooManySteps" in str(record.error)
    assert sum(mine.of.values()) == 5


async def test_a_function_has_no_more_bytes_of_records_than_it_may(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_history, "MAX_RECORDED_BYTES", 100)
    mine = Calls()

    async def function(job: Job[Any]) -> None:
        for _ in range(10):
            await job.step("part", mine.echo, "x" * 60)

    workshop.handle("function", function)
    async with workshop.working():
        record = await ended(workshop, await start(workshop, "function"))
    assert "TooManySteps" in str(record.error)
    assert sum(mine.of.values()) == 2


async def test_a_result_that_is_too_large_fails_the_attempt(workshop: Workshop) -> None:
    async def large() -> str:
        return "x" * 1_100_000

    async def function(job: Job[Any]) -> str:
        return await refused(job.step("large", large))

    workshop.handle("function", function)
    async with workshop.working():
        job_id = await start(workshop, "function")
        assert "HF" in str(await completed(workshop, job_id))
    assert await records(workshop, job_id) == {}


class Final(Exception):
    retryable = False


class Asks(Exception):
    retry_after_ms = 3_600_000


class Odd(Exception):
    @property
    def retryable(self) -> bool:
        raise ZeroDivisionError

    retry_after_ms = 10**30


async def test_a_step_is_tried_again_as_its_error_says(workshop: Workshop) -> None:
    tried: list[str] = []

    async def function(job: Job[Any]) -> str:
        async def fail() -> None:
            tried.append(job.input)
            raise {"final": Final, "asks": Asks, "odd": Odd, "plain": ValueError}[job.input](
                "it failed"
            )

        retry = Retry(base="1ms", cap="1ms", max_attempts=2)
        return await refused(job.step("fail", fail, retry=retry))

    workshop.handle("function", function)
    async with workshop.working():
        for each, times in (("final", 1), ("odd", 2), ("plain", 2)):
            output = await completed(workshop, await start(workshop, "function", each))
            assert output == '"HF150"'
            assert tried.count(each) == times
        job_id = await start(workshop, "function", "asks")

        async def sleeps() -> bool:
            return "fail.retry[#1]" in await records(workshop, job_id)

        await until(sleeps)
    now = await workshop.run(workshop.store.schema.clock())
    sleep = (await records(workshop, job_id))["fail.retry[#1]"]
    assert 3_500_000_000 < int(sleep.until or 0) - now < 3_700_000_000
    assert "it failed" in str(sleep.error)


async def test_a_step_that_takes_too_long_has_failed(workshop: Workshop) -> None:
    async def function(job: Job[Any]) -> str:
        async def hang() -> None:
            await asyncio.Event().wait()

        try:
            await job.step("hang", hang, timeout="20ms", retry=Retry(max_attempts=1))
        except Exception as error:
            return str(getattr(error, "kind", error))
        return "ended"

    workshop.handle("function", function)
    async with workshop.working():
        assert await completed(workshop, await start(workshop, "function")) == '"TimeoutError"'


@pytest.mark.parametrize("error", [Busy("1ms"), Snooze("1ms")])
async def test_busy_and_snooze_leave_a_step_as_they_leave_a_handler(
    workshop: Workshop, error: Exception
) -> None:
    raised = [error]

    async def function(job: Job[Any]) -> str:
        async def pay() -> str:
            if raised:
                raise raised.pop()
            return "paid"

        return await job.step("pay", pay)

    workshop.handle("function", function)
    async with workshop.working():
        job_id = await start(workshop, "function")
        assert await completed(workshop, job_id) == '"paid"'
    assert set(await records(workshop, job_id)) == {"pay"}
    assert starts(workshop, job_id) == 2


async def test_middlewares_see_each_attempt_of_a_function(workshop: Workshop) -> None:
    seen: list[str] = []

    async def around(job: Job[Any], next: Callable[[], Any]) -> Any:
        seen.append("in")
        try:
            return await next()
        except Exception:
            return "swallowed"
        finally:
            seen.append("out")

    async def function(job: Job[Any]) -> str:
        await job.sleep("1ms", key="a")
        await job.sleep("50ms", key="b")
        return "slept"

    workshop.handle("function", function)
    async with workshop.working(middlewares=(around,)):
        job_id = await start(workshop, "function")
        assert await completed(workshop, job_id) == '"slept"'
    assert seen == ["in", "out"] * starts(workshop, job_id)
    assert starts(workshop, job_id) >= 2

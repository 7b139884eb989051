"""`types check` replays parked functions up to the first thing that they would do."""

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast, Job, SyncJob
from holdfast.client.start_targets import open_targets
from holdfast.commands.unreadable import ParkedFunction
from holdfast.core.errors import InvalidOption
from holdfast.core.records import JobRecord
from holdfast.core.steps import StepRecord
from holdfast.steps.dry_run import replay_dry
from holdfast.steps.step_names import hash_arguments

ID = "01a1ead3-bb87-707c-9f3a-dfd94b4f4542"


def record(name: str, output: str, *arguments: Any) -> StepRecord:
    """What a step left."""
    said = (name, "", 1, 1, "step", "done", output, None, hash_arguments(arguments), False, 1)
    return StepRecord(ID, *said, None, None, None, None, None)  # type: ignore[arg-type]


async def replay(app: Holdfast, *records: StepRecord) -> tuple[str | None, list[str]]:
    """Why the code of the function does not fit what was recorded, and what it did not ask for."""
    said = ("pending", 5, "7", None, None, 0, None, None, 1, None, 0, 1)
    ended = (None, None, None, None, None, False, None, None)
    job = JobRecord(ID, ID, 0, "order", *said, *ended)  # type: ignore[arg-type]
    parked = ParkedFunction(job, records, ())
    return await replay_dry(open_targets(app.registry), app.registry.get("order"), parked)


async def misfit(app: Holdfast, *records: StepRecord) -> str | None:
    """Why the code of the function does not fit what was recorded."""
    return (await replay(app, *records))[0]


async def unasked(app: Holdfast, *records: StepRecord) -> list[str]:
    """What was recorded and is not asked for by code that fits."""
    problem, found = await replay(app, *records)
    assert problem is None
    return found


def waiting(signal: str) -> StepRecord:
    """A wait for a signal that has not come."""
    said = (f"wait:{signal}", "", 1, 2, "wait", "open", None, None, None, False, 1)
    return StepRecord(ID, *said, None, None, None, signal, None)  # type: ignore[arg-type]


@pytest.fixture
def app() -> Holdfast:
    return Holdfast("sqlite:///holdfast.db")


async def double(number: int) -> int:
    raise AssertionError("a dry run runs no step")


async def test_code_fits_what_it_recorded_and_stops_at_the_first_new_step(app: Holdfast) -> None:
    seen: list[object] = []

    @app.job("order")
    async def order(job: Job[int]) -> None:
        seen.append(await job.step("double", double, job.input))
        await job.step("again", double, 1)
        seen.append("went on")

    assert await misfit(app, record("double", "14", 7)) is None
    assert seen == [14]


async def test_other_arguments_do_not_fit(app: Holdfast) -> None:
    @app.job("order")
    async def order(job: Job[int]) -> None:
        await job.step("double", double, job.input + 1)

    said = str(await misfit(app, record("double", "14", 7)))
    passed = "was recorded with other arguments than (8,), which the code passes now"
    assert f"{passed}; of the recorded ones there is only a hash" in said


async def test_a_result_that_the_code_cannot_read_does_not_fit_even_if_the_error_is_swallowed(
    app: Holdfast,
) -> None:
    async def named(number: int) -> str:
        return str(number)

    @app.job("order")
    async def order(job: Job[int]) -> None:
        try:
            await job.step("double", named, job.input)
        except Exception:
            return

    found = await misfit(app, record("double", "14", 7))
    assert found is not None
    assert found.startswith("the result of double:")


async def test_an_upgrade_of_the_step_makes_its_result_readable(app: Holdfast) -> None:
    seen = []

    async def named(number: int) -> str:
        return str(number)

    @app.job("order")
    async def order(job: Job[int]) -> None:
        seen.append(await job.step("double", named, job.input))

    @app.upgrade(order, step="double")
    def to_text(result: int) -> str:
        return f"was {result}"

    assert await misfit(app, record("double", "14", 7)) is None
    assert seen == ["was 14"]


async def test_another_kind_under_the_same_name_does_not_fit(app: Holdfast) -> None:
    @app.job("order")
    async def order(job: Job[int]) -> None:
        await job.cursor("double", 0)

    found = await misfit(app, record("double", "14", 7))
    assert found == "double was recorded as a step, and is a cursor in this code"


async def test_a_sync_handler_is_replayed_too(app: Holdfast) -> None:
    def plain(number: int) -> int:
        raise AssertionError("a dry run runs no step")

    @app.job("order")
    def order(job: SyncJob[int]) -> None:
        job.step("double", plain, job.input)
        job.sleep("1h")
        raise AssertionError("a dry run goes no further")

    assert await misfit(app, record("double", "14", 7)) is None
    assert "other arguments" in str(await misfit(app, record("double", "14", 8)))


async def test_a_renamed_step_and_a_renamed_wait_are_named(app: Holdfast) -> None:
    async def refund(number: int) -> None: ...

    @app.job("order")
    async def order(job: Job[int]) -> None:
        await job.step("twice", double, job.input, undo=refund)
        await job.wait_for("approved")

    known = msgspec.structs.replace(record("double", "14", 7), undo=True)
    assert await unasked(app, known, waiting("approved")) == ["double", "wait:approved"]
    assert await unasked(app, record("twice", "14", 7), waiting("approval")) == ["wait:approval"]
    assert await unasked(app, record("twice", "14", 7), waiting("approved")) == []


async def test_what_a_sync_function_recorded_is_named_too(app: Holdfast) -> None:
    def plain(number: int) -> int:
        raise AssertionError("a dry run runs no step")

    @app.job("order")
    def order(job: SyncJob[int]) -> None:
        job.step("twice", plain, job.input)

    assert await unasked(app, record("double", "14", 7)) == ["double"]


async def test_branches_that_run_together_have_all_been_asked_for(app: Holdfast) -> None:
    @app.job("order")
    async def order(job: Job[int]) -> None:
        async def count() -> None:
            await asyncio.sleep(0.05)
            await job.step("double", double, job.input)
            await job.step("again", double, 1)

        await asyncio.gather(job.wait_for("approved"), count())

    assert await unasked(app, record("double", "14", 7), waiting("approved")) == []


async def test_code_that_fails_between_its_steps_is_not_said_to_have_forgotten_the_others(
    app: Holdfast,
) -> None:
    @app.job("order")
    async def order(job: Job[int]) -> None:
        raise RuntimeError("no network here")

    assert await unasked(app, record("double", "14", 7)) == []


def test_an_upgrade_is_of_an_input_or_of_a_step(app: Holdfast) -> None:
    with pytest.raises(InvalidOption):
        app.upgrade("order")
    with pytest.raises(InvalidOption):
        app.upgrade("order", from_=1, step="double")

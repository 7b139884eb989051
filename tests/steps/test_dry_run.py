"""`types check` replays parked functions up to the first thing that they would do."""

from typing import Any

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


async def misfit(app: Holdfast, *records: StepRecord) -> str | None:
    """Why the code of the function does not fit what was recorded."""
    said = ("pending", 5, "7", None, None, 0, None, None, 1, None, 0, 1)
    ended = (None, None, None, None, None, False, None, None)
    job = JobRecord(ID, ID, 0, "order", *said, *ended)  # type: ignore[arg-type]
    parked = ParkedFunction(job, records, ())
    return await replay_dry(open_targets(app.registry), app.registry.get("order"), parked)


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


def test_an_upgrade_is_of_an_input_or_of_a_step(app: Holdfast) -> None:
    with pytest.raises(InvalidOption):
        app.upgrade("order")
    with pytest.raises(InvalidOption):
        app.upgrade("order", from_=1, step="double")

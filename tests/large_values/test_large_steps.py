"""Large results of steps, and of chains that a durable function calls, are in files and survive a replay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Holdfast, Job
from holdfast.core.sealing import is_large
from holdfast_files import Files, add_large_values
from holdfast_testing.kit import Kit
from tests.large_values.conftest import letter, start, stored_files


class Scene:
    """Functions whose steps return much, and what they called."""

    def __init__(self, app: Holdfast) -> None:
        self.calls: list[str] = []

        @app.job("child")
        async def child(job: Job[dict[str, str]]) -> dict[str, str]:
            return job.input

        @app.job("durable")
        async def durable(job: Job[int]) -> int:
            async def load() -> dict[str, str]:
                self.calls.append("load")
                return letter(job.input)

            async def load_atomic(tx: Any) -> dict[str, str]:
                self.calls.append("atomic")
                return letter(job.input, "b")

            first = await job.step("load", load)
            second = await job.step("atomic", load_atomic, atomic=True)
            await job.sleep("1h")
            third = await job.run("child", letter(job.input, "c"))
            return sum(len(each["text"]) for each in (first, second, third))

        @app.job("durable.sync")
        def durable_sync(job: Any) -> int:
            def load() -> dict[str, str]:
                self.calls.append("sync")
                return letter(job.input)

            first = job.step("load", load)
            job.sleep("1h")
            return len(first["text"])


@pytest.fixture
def app(url: str, directory_files: Files) -> Iterator[Holdfast]:
    app = Holdfast(url)
    add_large_values(app, directory_files, over="4KB")
    yield app
    app.close()


def test_large_results_of_steps_and_calls_are_in_files_and_replayed(
    app: Holdfast, url: str, directory_files: Files
) -> None:
    scene, kit = Scene(app), Kit(app, url)
    chain = start(kit, "durable", 2 * 1024**2)
    kit.run_until_idle()
    database = app.database
    records = database.read(database.store.steps.of_jobs([str(chain.id)]))
    assert [is_large(each.output or "") for each in records if each.kind == "step"] == [True, True]
    assert len(stored_files(directory_files)) == 2
    kit.advance("2h")
    kit.run_until_idle()
    assert app.chains.wait(chain, timeout="5s").output == 3 * 2 * 1024**2
    assert scene.calls == ["load", "atomic"]
    shown = {each.name: each for each in app.jobs.steps(chain.id)}
    assert shown["load"].output == letter(2 * 1024**2)


def test_large_results_of_steps_in_threads_are_replayed(app: Holdfast, url: str) -> None:
    scene, kit = Scene(app), Kit(app, url)
    chain = start(kit, "durable.sync", 9_000)
    kit.run_until_idle()
    kit.advance("2h")
    kit.run_until_idle()
    assert app.chains.wait(chain, timeout="5s").output == 9_000
    assert scene.calls == ["sync"]


def test_a_function_whose_file_is_missing_waits_until_it_is_back(
    app: Holdfast, url: str, directory_files: Files
) -> None:
    scene, kit = Scene(app), Kit(app, url)
    chain = start(kit, "durable.sync", 9_000)
    kit.run_until_idle()
    (key,) = stored_files(directory_files)
    content = directory_files.get(key)
    directory_files.delete(key)
    kit.advance("2h")
    kit.run_until_idle()
    assert app.chains.get(chain).state == "pending"
    directory_files.put(key, content)
    kit.advance("2h")
    kit.run_until_idle()
    assert app.chains.wait(chain, timeout="5s").output == 9_000
    assert scene.calls == ["sync"]

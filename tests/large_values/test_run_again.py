"""A job that is run again refers to the large input of the first one, which is not read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner

from holdfast import Holdfast, Job, Limit, Seal
from holdfast.admin.access import Role
from holdfast.cli.main import cli
from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast_files import Files, add_large_values
from holdfast_testing.kit import Kit
from tests.large_values.conftest import SEAL_KEY, MakeKit, letter, start, stored, stored_files
from tests.large_values.test_value_surfaces import app_name as app_name
from tests.large_values.test_value_upkeep import delete, look_twice, value_files
from tests.web.conftest import Api

LARGE = letter(300_000)


class Again:
    """A job with a large input that has ended, and the API and pages of its application."""

    def __init__(self, kit: Kit, files: Files, api: Api) -> None:
        self.kit = kit
        self.files = files
        self.api = api
        self.first = ""
        self.reads: list[str] = []

    async def run(self, target: str = "measure") -> str:
        """Run the first job."""
        async with self.kit.app.transaction() as tx:
            chain = await self.kit.app.start(tx, target, LARGE)
        await self.kit.run_until_idle_async()
        self.first = str(chain.id)
        self.reads.clear()
        return self.first

    async def call(self, method: str, path: str, **options: Any) -> Any:
        return await self.api.call(Role.DEVELOPER, method, path, **options)

    async def input(self, id: str) -> str:
        """The input of a job as its row has it."""
        store = self.kit.app.database.store
        (record,) = await self.kit.app.database.read_async(store.jobs.get([id]))
        return record.input


@pytest_asyncio.fixture
async def again(
    url: str, directory_files: Files, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Again]:
    app = Holdfast(url, seal=Seal({"k1": SEAL_KEY}))
    add_large_values(app, directory_files, over="4KB")

    @app.job("measure")
    async def measure(job: Job[dict[str, str]]) -> int:
        return len(job.input["text"])

    @app.job("measure.sealed", sealed=True)
    async def measure_sealed(job: Job[dict[str, str]]) -> int:
        return len(job.input["text"])

    @app.job("measure.limited", limits=[Limit(1, by=lambda value: value["text"][:3])])
    async def measure_limited(job: Job[dict[str, str]]) -> int:
        return len(job.input["text"])

    async def count(value: dict[str, str]) -> int:
        return len(value["text"])

    @app.job("function")
    async def function(job: Job[dict[str, str]]) -> int:
        return await job.step("count", count, job.input)

    kit = Kit(app, url)
    served = create(app, settings=read_settings({}))
    made = Again(kit, directory_files, Api(served, app))
    get = Files.get

    def noting(files: Files, key: str, **options: Any) -> bytes:
        made.reads.append(key)
        return get(files, key, **options)

    monkeypatch.setattr(Files, "get", noting)
    yield made
    await served.state.site.close()
    await app.aclose()


async def test_the_page_starts_a_job_with_the_same_file(again: Again) -> None:
    first = await again.run()
    form = (await again.call("GET", f"/start?like={first}")).text
    assert "300\u202fkB, as the earlier job has it" in form
    assert "too large" not in form
    sent = await again.call(
        "POST",
        "/start",
        data={"type": "measure", "like": first, "as": "json", "priority": "2"},
        headers={"Origin": "http://test"},
    )
    assert sent.status_code == 303, sent.text
    second = sent.headers["location"].partition("?")[0].rpartition("/")[2]
    assert again.reads == []
    assert await again.input(second) == await again.input(first)
    await again.kit.run_until_idle_async()
    shown = (await again.call("GET", f"/api/v1/jobs/{second}")).json()["job"]
    assert (shown["state"], shown["output"], shown["priority"]) == ("completed", 300_000, 2)
    assert len(stored_files(again.files)) == 1


async def test_the_api_refers_to_it_unless_something_changes(again: Again) -> None:
    first = await again.run()
    for body, is_same in (
        ({"like": first}, True),
        ({"like": first, "type": "measure"}, True),
        ({"like": first, "type": "function"}, False),
        ({"like": first, "sealed": True}, False),
    ):
        again.reads.clear()
        made = await again.call("POST", "/api/v1/chains", json=body)
        assert made.status_code == 201, made.text
        assert (again.reads == []) is is_same, body
        found = await again.input(made.json()["id"])
        assert (found == await again.input(first)) is (is_same or "sealed" not in body), body
    await again.kit.run_until_idle_async()
    jobs = (await again.call("GET", "/api/v1/jobs")).json()["items"]
    assert {each["state"] for each in jobs} == {"completed"}


async def test_a_function_is_run_again_from_a_step_with_the_same_file(again: Again) -> None:
    first = await again.run("function")
    made = await again.call("POST", f"/api/v1/chains/{first}/rerun", json={"from": "count"})
    assert made.status_code == 201, made.text
    assert again.reads == []
    assert await again.input(made.json()["id"]) == await again.input(first)
    await again.kit.run_until_idle_async()
    shown = (await again.call("GET", f"/api/v1/jobs/{made.json()['id']}")).json()["job"]
    assert shown["output"] == 300_000


@pytest.mark.parametrize("target", ["measure.sealed", "measure.limited"])
async def test_what_is_sealed_or_has_a_key_of_its_input_is_read(again: Again, target: str) -> None:
    first = await again.run(target)
    made = await again.call("POST", "/api/v1/chains", json={"like": first})
    assert made.status_code == 201, made.text
    assert len(again.reads) == 1
    await again.kit.run_until_idle_async()
    shown = (await again.call("GET", f"/api/v1/jobs/{made.json()['id']}")).json()["job"]
    assert shown["output"] == 300_000


def test_the_file_stays_until_neither_row_names_it(
    make_kit: MakeKit, any_files: Files, app_name: str
) -> None:
    kit = make_kit(any_files)
    first = start(kit, "measure", LARGE)
    kit.run_until_idle()
    kit.advance("3d")
    again = CliRunner().invoke(
        cli, ["jobs", "start", "--like", str(first.id), "-o", "id", "--app", app_name]
    )
    assert again.exit_code == 0, again.output
    second = again.stdout.strip()
    assert stored(kit, second)[0] == stored(kit, first.id)[0]
    delete(kit, first)
    look_twice(kit)
    look_twice(kit)
    assert len(value_files(any_files)) == 1
    kit.run_until_idle()
    assert kit.app.chains.wait(second, timeout="5s").output == 300_000
    delete(kit, second)
    look_twice(kit)
    assert value_files(any_files) == []


def test_a_process_without_the_files_can_start_it_again(kit: Kit, url: str) -> None:
    first = start(kit, "measure", LARGE)
    kit.run_until_idle()
    again = CliRunner().invoke(
        cli, ["jobs", "start", "--like", str(first.id), "-o", "id", "--url", url]
    )
    assert again.exit_code == 0, again.output
    kit.run_until_idle()
    assert kit.app.chains.wait(again.stdout.strip(), timeout="5s").output == 300_000

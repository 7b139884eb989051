"""What people see of limits that count costs: on the command line, over HTTP, on a job's page and in `why`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import Holdfast, Job, Limit, Rate
from holdfast.admin.access import Role
from holdfast.cli.main import cli
from holdfast.core.declared_limits import declared_by
from holdfast.core.events import Event
from holdfast.scheduler.runner import Budget, RunnerContext
from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast.worker.clock import SystemClock
from holdfast_costs.cost_runner import CostRunner, make_runner
from tests.cli.scene import Scene
from tests.support.limited_scene import LimitedScene, flow
from tests.web.conftest import Api

ASK = flow(
    "llm.ask",
    rates=[Rate(90_000, "1m", by="model", cost="tokens"), Rate(500, "1m")],
    limits=[Limit(100_000, name="memory", cost="tokens")],
)


class Told:
    """A job that runs and one that waits, as people ask about them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Holdfast(url)
        self.app.migrate()
        limited = LimitedScene(Scene(self.app.database))
        limited.declare(ASK)
        limited.start(ASK, "gpt-4", cost=78_000)
        limited.claim(ASK)
        (self.waiting,) = limited.start(ASK, "gpt-4", cost=20_000)

    def run(self, *words: str) -> Any:
        """Run a command; return what it printed as JSON."""
        result = CliRunner().invoke(cli, [*words, "--url", self.url, "-o", "json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def forget_worker(self) -> None:
        """Let the worker be gone that declares the limits."""
        dot = "." if self.app.database.store.dialect == "postgresql" else "_"
        with self.app.transaction() as tx:
            tx.execute(f"delete from holdfast{dot}worker")  # noqa: S608  one of two names

    def close(self) -> None:
        self.app.close()


@pytest.fixture(params=["postgres", "sqlite"])
def told(request: pytest.FixtureRequest) -> Iterator[Told]:
    """The same on either database."""
    told = Told(request.getfixturevalue(f"{request.param}_url"))
    yield told
    told.close()


def test_the_command_line_lists_what_is_used_and_left(told: Told) -> None:
    assert told.run("costs", "list", "llm.ask") == [
        {
            "type": "llm.ask",
            "key": "gpt-4",
            "used": 78_000,
            "max": 90_000,
            "per": "1m",
            "left": 12_000,
        },
        {
            "type": "@memory",
            "key": None,
            "used": 78_000,
            "max": 100_000,
            "per": None,
            "left": 22_000,
        },
    ]
    table = CliRunner().invoke(cli, ["costs", "list", "--url", told.url]).stdout
    assert "gpt-4" in table
    refused = CliRunner().invoke(cli, ["costs", "list", "llm.asc", "--url", told.url])
    assert (refused.exit_code, "did you mean llm.ask?" in refused.stderr) == (3, True)


def test_a_waiting_job_says_what_it_needs_and_when(told: Told) -> None:
    shown = CliRunner().invoke(cli, ["jobs", "show", told.waiting, "--url", told.url])
    expected = "Waiting for rate model=gpt-4: 12,000 of 90,000 left, needs 20,000, free in "
    assert expected in shown.stdout, shown.output


async def test_the_api_and_the_page_of_a_job_tell_it(told: Told) -> None:
    served = create(told.app, settings=read_settings({}))
    api = Api(served, told.app)
    answer = await api.call(Role.VIEWER, "GET", "/api/v1/costs?type=llm.ask")
    assert answer.status_code == 200, answer.text
    assert [each["left"] for each in answer.json()["items"]] == [12_000, 22_000]
    unknown = await api.call(Role.VIEWER, "GET", "/api/v1/costs?type=llm.asc")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "HF020")
    page = (await api.call(Role.DEVELOPER, "GET", f"/jobs/{told.waiting}")).text
    assert "<h2>Cost</h2>" in page
    assert "needs 20,000" in page
    await served.state.site.close()


def test_the_list_of_limits_says_nothing_of_a_number_of_jobs_where_costs_are_limited(
    told: Told,
) -> None:
    found = {(each["type"], each["key"]): each for each in told.run("limits", "list")}
    assert found["@memory", None]["allowed"] is None
    assert found["@memory", None]["running"] == 1


async def test_a_worker_tells_how_much_is_used_until_nothing_is(told: Told) -> None:
    database, seen = told.app.database, list[tuple[str, float]]()

    class Witness:
        def observe(self, event: Event) -> None:
            seen.append((event.fields["type"], event.fields["ratio"]))

    runner, link = CostRunner(database.store), database.link("outbox")
    budget = Budget(0)
    for _ in range(2):
        context = RunnerContext(
            "run", "w", "tick", link, SystemClock(), budget, budget, observer=Witness()
        )
        await runner.run(context)
        told.forget_worker()
    await link.close()
    assert seen == [("@memory", 0.78), ("llm.ask", 78 / 90), ("@memory", 0.0), ("llm.ask", 0.0)]


def test_only_applications_with_costs_look(told: Told) -> None:
    settings = read_settings({})
    assert make_runner(told.app, settings) is None

    @told.app.job("ask", rates=[Rate(9, "1m", cost="tokens")])
    def ask(job: Job[Any]) -> None:
        """Nothing is asked."""

    assert make_runner(told.app, settings) is not None


def test_the_limits_of_a_type_are_said_in_a_line() -> None:
    words = declared_by(ASK).words
    assert words == "cost 90000/1m per model · 500/1m in total · cost 100,000 for memory"

"""A global pause: nothing is claimed and no cycle runs until it is lifted, and everybody can see who did it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner

from holdfast import Holdfast, Job
from holdfast.cli.main import cli
from holdfast.commands.explain import look_around, why
from holdfast.scheduler.cycle_run import CycleRun
from holdfast.settings import load_settings
from holdfast.worker.options import WorkerOptions


@pytest.fixture(params=["sqlite_url", "postgres_url"], ids=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    url: str = request.getfixturevalue(request.param)
    monkeypatch.setenv("HOLDFAST_URL", url)
    return url


class Office:
    """An application whose job and cycle tell that they ran."""

    def __init__(self) -> None:
        self.app = Holdfast()
        self.ran: list[str] = []

        @self.app.job("mail")
        async def mail(job: Job[Any]) -> None:
            self.ran.append("mail")

        @self.app.cycle("cleanup", every="1h")
        async def cleanup(run: CycleRun) -> None:
            self.ran.append("cleanup")


@pytest_asyncio.fixture
async def office(url: str) -> AsyncIterator[Office]:
    office = Office()
    office.app.migrate()
    yield office
    await office.app.aclose()


async def command(*words: str) -> str:
    """Run a command line, which has a loop of its own."""
    result = await asyncio.to_thread(CliRunner().invoke, cli, list(words), prog_name="holdfast")
    assert result.exit_code == 0, result.output
    return str(result.stdout)


async def said_of(app: Holdfast, id: str) -> str:
    store = app.database.store
    (record,) = await app.database.read_async(store.jobs.get([id]))
    return why(record, await app.database.read_async(look_around(store, record)))


async def test_while_everything_is_paused_nothing_runs(office: Office) -> None:
    app = office.app
    with app.transaction() as tx:
        chain = app.start(tx, "mail")
    await command("types", "pause", "--all", "--reason", "a copy for staging")
    tick = app.assembly(load_settings()).tick()
    summary = await tick.run()
    assert {each: summary.runner_results[each].note for each in ("outbox", "cleanup")} == {
        "outbox": "paused",
        "cleanup": "paused",
    }
    await app.make_worker(WorkerOptions(stop_when_idle=True)).run()
    assert office.ran == []
    assert (await said_of(app, str(chain.id))).startswith("Everything is paused by ")
    assert "a copy for staging" in await command("audit", "list", "-o", "json")
    await command("types", "resume", "--all")
    await tick.run()
    assert "mail" in office.ran
    await tick.close()

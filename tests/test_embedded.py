"""A worker inside a web application: off by default, on by environment, gone when the application is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Holdfast, Job
from holdfast.core.errors import WrongDatabase
from holdfast.settings import load_settings
from tests.support.until import until


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest) -> Iterator[Holdfast]:
    app = Holdfast(request.getfixturevalue(f"{request.param}_url"))
    app.migrate()
    yield app
    app.close()


async def test_it_is_off_unless_switched_on(app: Holdfast) -> None:
    async with app.worker(load_settings(environ={})) as worker:
        assert not worker.is_running
    await app.aclose()


@pytest.mark.parametrize(("given", "lines"), [({}, 1), ({"OUTBOX_WORKER_ENABLED": "false"}, 0)])
async def test_one_that_nobody_switched_off_says_once_that_it_is_off(
    app: Holdfast, given: dict[str, str], lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    # Whatever level an earlier test has left the root logger at.
    caplog.set_level(logging.INFO, "holdfast")
    async with app.worker(load_settings(environ=given)):
        said = [each for each in caplog.messages if "OUTBOX_WORKER_ENABLED" in each]
    assert len(said) == lines
    await app.aclose()


async def test_it_works_jobs_off_while_the_application_runs(app: Holdfast) -> None:
    ran = asyncio.Event()

    @app.job("report")
    async def report(job: Job[Any]) -> None:
        ran.set()

    settings = load_settings(environ={"OUTBOX_WORKER_ENABLED": "true"})
    async with app.worker(settings) as worker:
        async with app.transaction() as tx:
            chain = await app.start(tx, report)
        async with asyncio.timeout(30):
            await ran.wait()
            assert worker.is_running
            await app.aio.chains.wait(chain.id)
    await app.aclose()


@pytest.mark.parametrize("enabled", [True, False])
async def test_an_argument_switches_it_whatever_the_environment_says(
    app: Holdfast, enabled: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OUTBOX_WORKER_ENABLED", str(not enabled).lower())
    async with app.worker(enabled=enabled) as worker:
        assert worker.is_running == enabled
    monkeypatch.delenv("OUTBOX_WORKER_ENABLED")
    async with app.worker(enabled=enabled) as worker:
        assert worker.is_running == enabled
    async with app.worker(load_settings(environ={}), enabled=enabled) as worker:
        assert worker.is_running == enabled
    assert [each for each in caplog.messages if "OUTBOX_WORKER_ENABLED" in each] == []
    await app.aclose()


async def test_cycles_run_beside_the_jobs(app: Holdfast) -> None:
    ran = asyncio.Event()

    @app.cycle("pulse", every="1s")
    async def pulse(tick: Any) -> None:
        ran.set()

    settings = load_settings(
        environ={"OUTBOX_WORKER_ENABLED": "true", "WORKER_IDLE_BACKOFF_MIN_MS": "100"}
    )
    async with app.worker(settings):
        async with asyncio.timeout(30):
            await ran.wait()
    await app.aclose()


async def test_what_ends_it_early_is_logged_at_once_and_raised_at_the_end(
    absent_sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Holdfast(absent_sqlite_url)
    worker = app.worker(load_settings(environ={"OUTBOX_WORKER_ENABLED": "true"}))
    await worker.__aenter__()
    await until(lambda: not worker.is_running and caplog.text)
    assert "has stopped; this process runs no more jobs: [HF040]" in caplog.text
    with pytest.raises(WrongDatabase):
        await worker.__aexit__()
    await app.aclose()

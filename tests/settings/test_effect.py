"""What `holdfast config show` says is what happens: settings reach the application, its database and its jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import AttemptInfo, Holdfast, Job, JobInfo, Retry
from holdfast.core.errors import ChainFailed, ConfigError
from holdfast.settings import load_settings


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of its own, with nothing in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOLDFAST_URL", "HOLDFAST_SCHEMA", "HOLDFAST_NOTIFIER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def app(here: Path) -> Iterator[Holdfast]:
    """An application whose job and whose subscriber always fail."""
    app = Holdfast(f"sqlite:///{here}/jobs.db")

    @app.job("charge")
    def charge(job: Job[Any]) -> None:
        raise ValueError("no")

    @app.on("order.placed", name="mail")
    def mail(job: Job[Any]) -> None:
        raise ValueError("no")

    app.migrate()
    with app.transaction() as tx:
        app.start(tx, charge)
        app.publish(tx, "order.placed")
    yield app
    app.close()


async def ticked(app: Holdfast) -> dict[str, JobInfo]:
    """Run a tick as the environment says, with all retries brought forward; return the jobs by type."""
    async with app.transaction() as tx:
        for each in await app.aio.chains.list("state:pending"):
            await app.chains.trigger(tx, each.id)
    tick = app.assembly(load_settings()).tick()
    await tick.run()
    await tick.close()
    found = {each.type: each for each in await app.aio.jobs.list()}
    await app.aclose()
    return found


def delay_s(job: JobInfo, attempt: AttemptInfo) -> float:
    """How long a failed attempt waits for the next."""
    assert job.available_at is not None
    return (job.available_at - attempt.ended_at).total_seconds()


async def test_attempts_are_those_of_the_settings(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("HOLDFAST_MAX_ATTEMPTS", "2")
    jobs = await ticked(app)
    assert (jobs["order.placed/mail"].state, jobs["charge"].state) == ("failed", "pending")
    jobs = await ticked(app)
    assert (jobs["charge"].state, jobs["charge"].attempt) == ("failed", 2)


async def test_unset_they_are_three_for_events_and_more_for_jobs(app: Holdfast) -> None:
    for _ in range(3):
        jobs = await ticked(app)
    assert (jobs["order.placed/mail"].state, jobs["order.placed/mail"].attempt) == ("failed", 3)
    assert (jobs["charge"].state, jobs["charge"].attempt) == ("pending", 3)


async def test_pauses_between_attempts_are_those_of_the_settings(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_RETRY_BASE_MS", "600000")
    monkeypatch.setenv("OUTBOX_RETRY_MAX_MS", "600000")
    monkeypatch.setenv("OUTBOX_RETRY_JITTER_MS", "0")
    monkeypatch.setenv("HOLDFAST_RETRY_BASE_MS", "900000")
    monkeypatch.setenv("HOLDFAST_RETRY_MAX_MS", "900000")
    jobs = await ticked(app)
    for type, pause_s in (("order.placed/mail", 600), ("charge", 900)):
        (attempt,) = app.jobs.attempts(jobs[type].id)
        assert delay_s(jobs[type], attempt) == pytest.approx(pause_s, abs=1)


async def test_the_embedded_worker_has_settings_of_its_own(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_WORKER_ENABLED", "true")
    monkeypatch.setenv("OUTBOX_WORKER_MAX_ATTEMPTS", "1")
    (mail,) = await app.aio.chains.list("type:order.placed/mail")
    async with app.worker():
        with pytest.raises(ChainFailed):
            await app.aio.chains.wait(mail.id, "60s")
    await app.aclose()


async def test_what_the_decorator_says_stands(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_MAX_ATTEMPTS", "5")
    app = Holdfast(f"sqlite:///{here}/jobs.db")

    @app.on("order.placed", name="mail", retry=Retry(max_attempts=1))
    def mail(job: Job[Any]) -> None:
        raise ValueError("no")

    app.migrate()
    with app.transaction() as tx:
        app.publish(tx, "order.placed")
    assert (await ticked(app))["order.placed/mail"].state == "failed"


def test_the_file_says_which_database_and_how(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "holdfast.toml").write_text('url = "sqlite:///of_file.db"\nsynchronous = "NORMAL"\n')
    app = Holdfast()
    app.migrate()
    with app.transaction() as tx:
        assert tx.execute("pragma synchronous").fetchone() == (1,)
    app.close()
    assert (here / "of_file.db").exists()
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///of_env.db")
    Holdfast().migrate()
    assert (here / "of_env.db").exists()
    Holdfast("sqlite:///of_argument.db").migrate()
    assert (here / "of_argument.db").exists()


def test_an_unusable_setting_is_refused_when_the_application_is_made(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CONNECTIONS", "many")
    with pytest.raises(ConfigError, match="HOLDFAST_CONNECTIONS"):
        Holdfast()

"""The application object: lazy, configured by arguments and environment, and closed without traces."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import Holdfast, Job, Lease, Retry
from holdfast.core.cycle import schedule_text
from holdfast.core.errors import (
    ConfigError,
    DuplicateJobType,
    HandlerInvalid,
    InvalidIdentifier,
    InvalidName,
    InvalidOption,
    UnusableUrl,
)
from holdfast.core.retry import JOB_RETRY
from holdfast.notify.local import NullNotifier


@dataclass
class Order:
    id: int


class Undo(Exception):
    """Leaves a block whose work is not wanted."""


@pytest.fixture
def app() -> Holdfast:
    return Holdfast("sqlite:///:memory:")


def test_making_one_touches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    Holdfast()
    Holdfast("postgresql://nobody@127.0.0.1:1/nothing")
    assert list(tmp_path.iterdir()) == []


def test_a_cron_that_names_no_zone_is_in_the_zone_of_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORKER_TIME_ZONE", "America/Santiago")
    app = Holdfast("sqlite:///:memory:")
    app.cycle("cleanup", cron="17 3 * * *")(print)
    app.cycle("report", cron="17 3 * * *", tz="Asia/Tokyo")(print)
    app.cycle("ping", every="2m")(print)
    zones = [schedule_text(each.schedule)[1] for each in app.cycle_specs.values()]
    assert zones == ["America/Santiago", "Asia/Tokyo", "UTC"]


def test_without_a_url_it_is_a_file_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    app = Holdfast()
    app.migrate()
    app.close()
    assert (tmp_path / "holdfast.db").exists()


def test_the_environment_names_database_schema_and_notifier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path / 'jobs.db'}")
    monkeypatch.setenv("HOLDFAST_SCHEMA", "work")
    monkeypatch.setenv("HOLDFAST_NOTIFIER", "none")
    app = Holdfast()
    assert app.database.url == f"sqlite:///{tmp_path / 'jobs.db'}"
    assert app.schema == "work"
    assert isinstance(app.notifier, NullNotifier)
    app.close()
    assert Holdfast(schema="other").schema == "other"


def test_what_cannot_be_used_is_refused_at_once() -> None:
    with pytest.raises(UnusableUrl):
        Holdfast("mysql://host/shop")
    with pytest.raises(InvalidIdentifier):
        Holdfast(schema='bad"name')
    with pytest.raises(ConfigError, match="HOLDFAST_NOTIFIER is invalid"):
        _ = Holdfast(notifier="carrier-pigeon://").notifier


def test_a_password_is_not_shown() -> None:
    app = Holdfast("postgresql://ana:secret@127.0.0.1:1/shop")
    assert "secret" not in app.database.url
    app.close()


def test_decorators_return_the_function_and_register_its_types(app: Holdfast) -> None:
    async def charge(job: Job[Order]) -> str:
        return "paid"

    registered = app.job("order.charge", retry=Retry(max_attempts=5), lease="30s")(charge)
    assert registered is charge
    job_type = app.registry.get(charge)
    assert (job_type.name, job_type.input.name, job_type.output.name) == (
        "order.charge",
        "Order",
        "str",
    )
    assert job_type.lease == Lease("30s")
    assert job_type.executor == "loop"


def test_events_and_jobs_differ_in_their_retries(app: Holdfast) -> None:
    @app.job("order.charge")
    def charge(job: Job[Order]) -> None: ...

    @app.on("order.placed")
    def mail_receipt(job: Job[Order]) -> None: ...

    @app.on("order.placed", name="stock", retry=JOB_RETRY)
    def reserve(job: Job[Order]) -> None: ...

    assert app.registry.get(charge).retry is None
    receipt = app.registry.get(mail_receipt)
    assert (receipt.name, receipt.event) == ("order.placed/mail_receipt", "order.placed")
    assert receipt.retry is None
    assert app.registry.get("order.placed/stock").retry is JOB_RETRY


def test_batch_handlers_take_lists(app: Holdfast) -> None:
    @app.job("push.send", batch=500)
    async def send(jobs: list[Job[Order]]) -> None: ...

    assert app.registry.get(send).batch == 500
    assert app.registry.get(send).input.name == "Order"


@pytest.mark.parametrize("middleware", [None, lambda job: None, lambda: None, 5])
def test_what_cannot_wrap_an_attempt_is_no_middleware(app: Holdfast, middleware: Any) -> None:
    with pytest.raises(HandlerInvalid):
        app.middleware(middleware)


@pytest.mark.parametrize("observer", [None, print, object()])
def test_what_cannot_hear_is_no_observer(app: Holdfast, observer: Any) -> None:
    with pytest.raises(InvalidOption):
        app.observe(observer)


def test_registrations_that_cannot_work_are_refused(app: Holdfast) -> None:
    @app.job("order.charge")
    def charge(job: Job[Order]) -> None: ...

    with pytest.raises(DuplicateJobType):
        app.job("order.charge")(charge)
    with pytest.raises(DuplicateJobType):
        app.declare("order.charge")
    with pytest.raises(InvalidOption):
        app.declare("order.refund", sealed=cast(bool, "no"))
    with pytest.raises(InvalidName):
        app.job("order charge")
    with pytest.raises(InvalidName):
        app.on("order.placed")(lambda job: None)
    with pytest.raises(HandlerInvalid):
        app.job("order.ship")(lambda: None)
    with pytest.raises(HandlerInvalid):
        app.job("order.ship")(print)


async def test_a_transaction_serves_with_and_async_with(app: Holdfast) -> None:
    app.migrate()
    app.declare("order.charge")
    with app.transaction() as tx:
        app.start(tx, "order.charge")
    async with app.transaction() as async_tx:
        await app.start(async_tx, "order.charge")
    with suppress(Undo), app.transaction() as tx:
        app.start(tx, "order.charge")
        raise Undo
    with suppress(Undo):
        async with app.transaction() as async_tx:
            await app.start(async_tx, "order.charge")
            raise Undo
    assert len(app.jobs.list()) == 2
    await app.aclose()


def threads_of_ours(before: list[threading.Thread]) -> list[str]:
    return [
        each.name
        for each in threading.enumerate()
        if "holdfast" in each.name and each not in before
    ]


async def test_closing_leaves_no_thread_and_a_closed_one_opens_again(tmp_path: Path) -> None:
    before = threading.enumerate()
    app = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}", open_types=True)
    app.migrate()
    with app.transaction() as tx:
        app.start(tx, "anything")
    async with app.transaction() as async_tx:
        await app.start(async_tx, "anything")
    assert threads_of_ours(before) != []
    await app.aclose()
    assert threads_of_ours(before) == []
    assert len(app.jobs.list()) == 2
    app.close()
    assert threads_of_ours(before) == []


def test_migrating_twice_changes_nothing_the_second_time(app: Holdfast) -> None:
    assert [each.version for each in app.migrate()] != []
    assert app.migrate() == []
    app.close()


@pytest.mark.parametrize("address", ["absent_sqlite_url", "postgres_url"])
async def test_an_async_application_migrates_without_blocking_its_loop(
    address: str, request: pytest.FixtureRequest
) -> None:
    app = Holdfast(request.getfixturevalue(address))
    migrating = asyncio.create_task(app.aio.migrate())
    await asyncio.sleep(0)
    assert not migrating.done()  # it has begun, and the loop goes on
    await migrating
    assert [each.version for each in migrating.result()] != [] or address == "postgres_url"
    assert await app.aio.migrate() == []
    assert len(await app.aio.jobs.list()) == 0
    await app.aclose()


def test_what_binds_the_previous_database_again_binds_its_clock_too(
    app: Holdfast, sqlite_url: str, tmp_path: Path
) -> None:
    first = app.bind(sqlite_url, lambda: 1_000_000)
    second = app.bind(f"sqlite:///{tmp_path / 'other.db'}")
    second()
    app.declare("report")
    with app.transaction() as tx:
        chain = app.start(tx, "report")
    assert app.chains.get(chain.id).created_at == datetime.fromtimestamp(1, UTC)
    first()
    app.close()

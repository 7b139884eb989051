"""What a function's `finally` starts, publishes and signals while it parks does nothing: it has not ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from holdfast import Holdfast, Job, Permanent, Retry, SyncJob
from holdfast_testing.kit import Kit

COMMANDS = ("start", "publish", "signal")
FUNCTIONS = ("finally", "swallowed", "finally_sync")
ONCE_MORE = Retry(base="30s", cap="30s", max_attempts=2)


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def kit(request: pytest.FixtureRequest) -> Iterator[Kit]:
    """An application with functions that tidy up behind themselves, on either store."""
    url = str(request.getfixturevalue(request.param))
    app = Holdfast(url)
    declare(app)
    app.migrate()
    with app.transaction() as tx:
        tx.execute("create table tidied (command varchar(20))")
    kit = Kit(app, url)
    yield kit
    kit.close()
    app.close()


def send(app: Holdfast, tx: Any, command: str) -> Any:
    match command:
        case "start":
            return app.start(tx, "other", 1)
        case "publish":
            return app.publish(tx, "order.left", 1)
        case _:
            return app.signal(tx, "left", key=1)


def declare(app: Holdfast) -> None:
    @app.on("order.left", name="note")
    async def note(job: Job[int]) -> None: ...

    @app.job("other")
    async def other(job: Job[int]) -> None: ...

    insert = INSERT[app.database.store.dialect]

    async def tidy(command: str) -> None:
        async with app.transaction() as tx:
            await tx.execute(insert, [command])
            await send(app, tx, command)

    @app.job("finally")
    async def tidies(job: Job[str]) -> str:
        try:
            return str(await job.wait_for("go"))
        finally:
            await tidy(job.input)

    @app.job("swallowed")
    async def swallows(job: Job[str]) -> str:
        async def branch() -> str:
            try:
                return str(await job.wait_for("go"))
            except BaseException:
                with suppress(BaseException):
                    await tidy(job.input)
                return "swallowed"

        answer = await asyncio.create_task(branch())
        await tidy(job.input)
        return answer

    @app.job("finally_sync")
    def tidies_sync(job: SyncJob[str]) -> str:
        try:
            return str(job.wait_for("go"))
        finally:
            with app.transaction() as tx:
                tx.execute(insert, [job.input])
                send(app, tx, job.input)


INSERT = {"postgresql": "insert into tidied values (%s)", "sqlite": "insert into tidied values (?)"}


def sent(app: Holdfast) -> tuple[list[str], list[str]]:
    """What functions have written behind themselves, and what came of it."""
    found = [each.type for each in app.jobs.list() if each.type not in FUNCTIONS]
    found += [each.name for each in app.database.read(app.database.store.signals.list(10))]
    with app.transaction() as tx:
        rows = tx.execute("select command from tidied").fetchall()
    return [str(row[0]) for row in rows], [each for each in found if each != "go"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_that_parks_starts_publishes_and_signals_nothing(
    kit: Kit, function: str, command: str
) -> None:
    app = kit.app
    with app.transaction() as tx:
        chain = app.start(tx, function, command)
    kit.run_until_idle()
    assert app.chains.get(chain.id).state == "blocked"
    assert sent(app) == ([], [])
    kit.signal("go", data="came")
    kit.run_until_idle()
    assert app.chains.get(chain.id).output == "came"
    written, came = sent(app)
    assert (written, len(came)) == ([command], 1)


async def book(name: str) -> str:
    return name


def book_sync(name: str) -> str:
    return name


def declare_trips(app: Holdfast, tries: list[str]) -> None:
    """Functions whose undo starts a job at its second try, when their code does not fail any more."""

    def undo_sync(name: str) -> None:
        tries.append(name)
        if len(tries) == 1:
            raise ValueError("not now")
        with app.transaction() as tx:
            app.start(tx, "other", 1)

    async def undo(name: str) -> None:
        undo_sync(name)

    def fail_once() -> None:
        if not tries:
            raise Permanent("the weather")

    @app.job("trip", retry=ONCE_MORE)
    async def trip(job: Job[None]) -> None:
        await job.step("flight", book, "flight", undo=undo)
        fail_once()
        await job.step("boat", book, "boat")

    @app.job("trip_left_behind", retry=ONCE_MORE)
    async def trip_left_behind(job: Job[None]) -> None:
        await job.step("flight", book, "flight", undo=undo)
        fail_once()
        try:
            await job.step("boat", book, "boat")
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    @app.job("trip_sync", retry=ONCE_MORE)
    def trip_sync(job: SyncJob[None]) -> None:
        job.step("flight", book_sync, "flight", undo=undo_sync)
        fail_once()
        job.step("boat", book_sync, "boat")


@pytest.mark.parametrize("function", ["trip", "trip_left_behind", "trip_sync"])
def test_what_undoes_a_step_starts_jobs_though_its_function_was_parked(
    kit: Kit, function: str
) -> None:
    app, tries = kit.app, list[str]()
    declare_trips(app, tries)
    with app.transaction() as tx:
        chain = app.start(tx, function, None)
    kit.run_until_idle()
    assert tries == ["flight"]
    kit.advance("1m")
    kit.run_until_idle()
    assert app.chains.get(chain.id).state == "failed"
    assert tries == ["flight", "flight"]
    assert [each.type for each in app.jobs.list() if each.type == "other"] == ["other"]

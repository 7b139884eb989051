"""A database that goes away while a handler emits, and tests that are joined into one transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, NullPool, create_engine

from holdfast import Holdfast, Job
from holdfast_chaos.proxy import FaultyProxy
from holdfast_output import add_output, emission_writer
from holdfast_testing.kit import Kit
from tests.output.scene import OutputScene

ITEMS = 200


def test_what_is_emitted_while_the_database_is_away_is_written_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned = threading.Event()
    monkeypatch.setattr(emission_writer.log, "warning", lambda *_: warned.set())
    with FaultyProxy(postgres_url) as proxy:
        scene = OutputScene(proxy.url)
        half, go_on = threading.Event(), threading.Event()

        @scene.job("chat", timeout="5m")
        def chat(job: Job[Any]) -> None:
            for number in range(ITEMS):
                job.emit(number)
                if number == ITEMS // 2:
                    half.set()
                    assert go_on.wait(60)

        chain = scene.start("chat")
        with scene.working():
            assert half.wait(60)
            direct = Holdfast(postgres_url)
            reader = add_output(direct)
            proxy.cut()
            go_on.set()
            assert warned.wait(60)
            proxy.reset()
            found = [each.data for each in reader.follow(chain, timeout="60s")]
            assert found == list(range(ITEMS))
            assert direct.chains.get(chain).state == "completed"
            assert direct.jobs.list()[0].attempt == 1
        direct.close()
        scene.close()


@pytest.fixture(params=["sqlite", "postgres"])
def joined(request: pytest.FixtureRequest) -> Iterator[tuple[Holdfast, Connection]]:
    """An application, and a connection whose transaction is rolled back."""
    url = str(request.getfixturevalue(f"{request.param}_url"))
    app = Holdfast(url)
    app.migrate()
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    with engine.connect() as connection:
        transaction = connection.begin()
        yield app, connection
        transaction.rollback()
    app.close()


@pytest.mark.parametrize("form", ["sync", "async"])
def test_handlers_emit_in_tests_that_are_joined_into_a_transaction(
    joined: tuple[Holdfast, Connection], form: str
) -> None:
    app, connection = joined
    output = add_output(app)

    @app.job("chat")
    async def chat(job: Job[Any]) -> None:
        job.emit("async")

    @app.job("chat.sync")
    def chat_sync(job: Job[Any]) -> None:
        job.emit("sync")

    kit = Kit.joined(app, connection)
    with app.transaction() as tx:
        chains = [app.start(tx, "chat"), app.start(tx, "chat.sync")]
    if form == "sync":
        kit.run_until_idle()
    else:
        asyncio.run(kit.run_until_idle_async())
    assert [[item.data for item in output.read(each)] for each in chains] == [["async"], ["sync"]]
    kit.close()

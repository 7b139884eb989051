"""Whoever waits says so, is woken by the hint that the chain has ended, and does not depend on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.app import application
from holdfast.client import waiting
from holdfast.commands.chains import end_chain
from holdfast.core.duration import Duration
from holdfast.core.errors import (
    ChainCancelled,
    ChainNotFound,
    MissingExtra,
    WaitTimeout,
    WrongDatabase,
)
from holdfast.notify.base import Hint, Notifier
from holdfast.notify.local import LocalNotifier
from holdfast_chaos.proxy import FaultyProxy
from tests.support.until import until

SOMEBODY_WAITS = (
    "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
)


class Relay(LocalNotifier):
    """A notifier that tells when somebody said that they wait."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited: list[tuple[str, ...]] = []
        self.was_said = threading.Event()
        self.listen(self._hear)

    def _hear(self, hint: Hint) -> None:
        if hint.kind == "awaited":
            self.awaited.append(hint.ids)
            self.was_said.set()


@pytest.fixture
def relay() -> Relay:
    return Relay()


@pytest.fixture
def app(url: str, relay: Relay) -> Iterator[Holdfast]:
    app = Holdfast(url, notifier=relay, open_types=True)
    app.migrate()
    yield app
    app.close()


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look once; after that only a hint leads to another look."""
    monkeypatch.setattr(waiting, "MIN_PAUSE_S", 600.0)
    monkeypatch.setattr(waiting, "MAX_PAUSE_S", 600.0)


@pytest.mark.usefixtures("no_polls")
async def test_the_hint_that_a_chain_has_ended_wakes_whoever_waits(
    app: Holdfast, relay: Relay
) -> None:
    with app.transaction() as tx:
        chain, other = app.start(tx, "report"), app.start(tx, "report")
    waits = asyncio.create_task(app.aio.chains.wait(chain.id, "60s"))
    assert await asyncio.to_thread(relay.was_said.wait, 60)
    assert relay.awaited == [(str(chain.id),)]
    with app.transaction() as tx:
        app.chains.complete(tx, other.id)
    with app.transaction() as tx:
        app.chains.complete(tx, chain.id, "done")
    assert (await waits).output == "done"


async def test_without_any_hint_the_next_look_finds_the_end(app: Holdfast) -> None:
    with app.transaction() as tx:
        chain = app.start(tx, "report")
    waits = asyncio.create_task(app.aio.chains.wait(chain.id, "60s"))
    store = app.database.store
    await app.database.run_async(end_chain(store, str(chain.id), "completed", output='"done"'))
    assert (await waits).output == "done"
    await app.aclose()


@pytest.mark.parametrize("timeout", [0, "1ms"])
async def test_no_time_to_wait_is_still_time_to_look(app: Holdfast, timeout: Duration) -> None:
    with app.transaction() as tx:
        ended, failed, running = (app.start(tx, "report") for _ in range(3))
        app.chains.complete(tx, ended.id, "done")
        app.chains.cancel(tx, failed.id)
    assert app.chains.wait(ended.id, timeout).output == "done"
    assert (await app.aio.chains.wait(ended.id, timeout)).output == "done"
    for id, expected in (
        (failed.id, ChainCancelled),
        (running.id, WaitTimeout),
        (app.new_id(), ChainNotFound),
    ):
        with pytest.raises(expected):
            app.chains.wait(id, timeout)
        with pytest.raises(expected):
            await app.aio.chains.wait(id, timeout)
    await app.aclose()


@pytest.mark.parametrize("timeout", [0, "60s"])
def test_the_id_of_a_later_job_is_refused_with_the_id_of_its_chain(
    app: Holdfast, timeout: Duration
) -> None:
    with app.transaction() as tx:
        chain = app.start(tx, "report")
        app.chains.continue_with(tx, chain.id, "report")
    later = app.chains.jobs(chain.id)[1]
    with pytest.raises(ChainNotFound) as refused:
        app.chains.wait(later.id, timeout)
    assert str(chain.id) in str(refused.value.help)


@pytest.mark.parametrize("timeout", [0, "60s", None])
async def test_a_wait_in_a_database_without_tables_ends_with_what_to_do(
    tmp_path: Path, timeout: Duration | None
) -> None:
    empty = Holdfast(f"sqlite:///{tmp_path}/empty.db", open_types=True)
    with pytest.raises(WrongDatabase):
        empty.chains.wait(empty.new_id(), timeout)
    with pytest.raises(WrongDatabase):
        await empty.aio.chains.wait(empty.new_id(), timeout)
    await empty.aclose()


def refuse_notifier(*_: object, **__: object) -> Notifier:
    """A notifier whose package is not installed."""
    raise MissingExtra("redis is not installed")


def test_with_a_notifier_that_cannot_be_made_the_next_look_finds_the_end(
    url: str, app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "open_notifier", refuse_notifier)
    mistaken = Holdfast(url, notifier="redis://127.0.0.1:1", open_types=True)
    with app.transaction() as tx:
        chain = app.start(tx, "report")
        app.chains.complete(tx, chain.id, "done")
    assert mistaken.chains.wait(chain.id, "60s").output == "done"
    mistaken.close()


async def test_a_connection_lost_in_the_middle_of_a_look_ends_nobodys_wait(
    postgres_url: str, relay: Relay
) -> None:
    with FaultyProxy(postgres_url) as proxy, psycopg.connect(postgres_url) as other:
        app = Holdfast(proxy.url, notifier=relay, open_types=True)
        with app.transaction() as tx:
            chain = app.start(tx, "report")
        other.execute("lock table holdfast.job")
        waits = asyncio.create_task(app.aio.chains.wait(chain.id, "20s"))
        with psycopg.connect(postgres_url, autocommit=True) as watching:
            await until(lambda: watching.execute(SOMEBODY_WAITS).fetchone() is not None)
        proxy.cut()
        proxy.pass_all()
        other.rollback()
        app.database.run(end_chain(app.database.store, str(chain.id), "completed"))
        assert (await waits).state == "completed"
        await app.aclose()

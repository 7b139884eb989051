"""Hints leave the process after the commit, or with it, and never without it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from queue import SimpleQueue

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from holdfast import Holdfast
from holdfast.app import application
from holdfast.core.errors import MissingExtra
from holdfast.notify.base import Hint, Notifier, SendCounts
from holdfast.notify.encoding import channel_name, decode
from holdfast.notify.sender import CoalescingSender
from tests.client.conftest import KINDS, Heard
from tests.client.connection_types.alchemy import driver_url, sync_engine
from tests.client.connection_types.drivers import file_of
from tests.client.connection_types.held import Held, Kind, Undo
from tests.support.until import PATIENCE_S

END = "[]"

postgresql = pytest.mark.parametrize("dialect", ["postgresql"])
RAW = [each for each in KINDS if not each.tells_of_commit and each.dialect == "postgresql"]
TELLING = [each for each in KINDS if each.tells_of_commit]


class Ear:
    """Listens on the database's own channel, as a worker does."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._channel = channel_name("holdfast")
        connection.execute(f'listen "{self._channel}"'.encode())

    def heard(self) -> list[Hint]:
        """Return every hint sent up to now."""
        self._connection.execute("select pg_notify(%s, %s)", [self._channel, END])
        hints: list[Hint] = []
        for notification in self._connection.notifies():
            if notification.payload == END:
                break
            hints += decode(notification.payload)
        return hints


@contextmanager
def listening(url: str) -> Iterator[Ear]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield Ear(connection)


@pytest.mark.parametrize(
    ("kind", "dialect"), [pytest.param(each, each.dialect, id=each.name) for each in TELLING]
)
async def test_where_the_library_tells_of_the_commit_the_hint_comes_after_it(
    app: Holdfast, held: Held, heard: Heard
) -> None:
    await held.start(app, "one")
    await held.start(app, "one")
    await held.start(app, "two", at=None)
    assert heard.hints == []
    await held.commit()
    assert set(heard.hints) == {Hint("due", "one"), Hint("due", "two")}


@pytest.mark.parametrize(
    ("kind", "dialect"), [pytest.param(each, each.dialect, id=each.name) for each in RAW]
)
async def test_elsewhere_the_hint_is_part_of_the_transaction(url: str, kind: Kind) -> None:
    app = Holdfast(url, open_types=True)
    async with kind.open(url, app) as held:
        with listening(url) as ear:
            await held.start(app, "undone")
            assert ear.heard() == []
            await held.rollback()
            assert ear.heard() == []
    async with kind.open(url, app) as held:
        with listening(url) as ear:
            await held.start(app, "one")
            await held.savepoint()
            await held.start(app, "undone")
            await held.undo_savepoint()
            await held.start(app, "two")
            assert ear.heard() == []
            await held.commit()
            assert ear.heard() == [Hint("due", "one"), Hint("due", "two")]
    await app.aclose()


@postgresql
async def test_many_starts_of_one_type_are_one_hint(url: str) -> None:
    app = Holdfast(url, open_types=True)
    with psycopg.connect(url) as connection, listening(url) as ear:
        app.start_many(connection, "many", range(1000))
        connection.commit()
        assert ear.heard() == [Hint("due", "many")]


@postgresql
async def test_hints_can_be_turned_off(url: str, heard: Heard) -> None:
    app = Holdfast(url, notifier=heard, hints=False, open_types=True)
    with psycopg.connect(url) as connection, listening(url) as ear:
        app.start(connection, "quiet")
        connection.commit()
        with app.transaction() as tx:
            app.start(tx, "quiet")
        assert ear.heard() == []
    app.close()
    assert heard.hints == []


@postgresql
async def test_a_raw_connection_does_not_notify_where_nobody_listens(
    url: str, app: Holdfast
) -> None:
    with psycopg.connect(url) as connection, listening(url) as ear:
        app.start(connection, "elsewhere")
        connection.commit()
        assert ear.heard() == []


@contextmanager
def own_app(url: str) -> Iterator[Holdfast]:
    """An application with the database's own notifier."""
    with closing(Holdfast(url, open_types=True)) as app:
        yield app


HINT_SENDERS = """
select count(*) from pg_stat_activity where application_name = 'holdfast hint sender' and datname = current_database()
"""


def hint_senders(url: str) -> int:
    """How many sessions of the server are there only to send hints."""
    with psycopg.connect(url) as connection:
        ((count,),) = connection.execute(HINT_SENDERS).fetchall()
    return int(count)


@postgresql
def test_the_commit_of_a_lone_start_takes_its_hint_along(url: str) -> None:
    with listening(url) as ear, own_app(url) as app:
        with app.transaction() as tx:
            app.start(tx, "lone")
            app.start(tx, "lone")
            assert ear.heard() == []
        assert ear.heard() == [Hint("due", "lone")]
        assert hint_senders(url) == 0
        assert app.notifier.counts == SendCounts(batches=1)


@postgresql
async def test_the_commit_of_a_lone_start_takes_its_hint_along_on_a_loop_too(url: str) -> None:
    with listening(url) as ear, own_app(url) as app:
        async with app.transaction() as tx:
            await app.start(tx, "lone")
            assert ear.heard() == []
        assert ear.heard() == [Hint("due", "lone")]
        assert hint_senders(url) == 0
        await app.aclose()


@postgresql
def test_what_is_undone_takes_no_hint_along(url: str) -> None:
    with listening(url) as ear, own_app(url) as app:
        with suppress(ZeroDivisionError), app.transaction() as tx:
            app.start(tx, "undone")
            raise ZeroDivisionError
        with app.transaction() as tx:
            tx.execute("savepoint before")
            app.start(tx, "undone")
            tx.execute("rollback to before")
        assert ear.heard() == []


def start_twice(app: Holdfast) -> None:
    """Start a job in a transaction that only fails when it commits."""
    with app.transaction() as tx:
        tx.execute("create table twice (id int unique deferrable initially deferred)")
        tx.execute("insert into twice values (1), (1)")
        app.start(tx, "undone")


@postgresql
def test_a_commit_that_fails_takes_no_hint_along(url: str) -> None:
    with listening(url) as ear, own_app(url) as app:
        with pytest.raises(psycopg.errors.UniqueViolation):
            start_twice(app)
        assert ear.heard() == []
        with app.transaction() as tx:
            assert not app.jobs.list(tx=tx)


@postgresql
def test_what_a_commit_that_fails_was_to_take_along_is_sent_without_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint of a job of another transaction, which has committed, must not be lost with this one."""
    monkeypatch.setattr(CoalescingSender, "take_turn", lambda sender: [Hint("due", "other")])
    with listening(url) as ear:
        with own_app(url) as app, pytest.raises(psycopg.errors.UniqueViolation):
            start_twice(app)
        assert ear.heard() == [Hint("due", "other")]


@postgresql
def test_hints_of_starts_that_follow_at_once_are_sent_together(url: str) -> None:
    app = Holdfast(url, open_types=True)
    with listening(url) as ear:
        for name in ("first", "second", "third"):
            with app.transaction() as tx:
                app.start(tx, name)
        app.close()
        assert set(ear.heard()) == {Hint("due", each) for each in ("first", "second", "third")}


@postgresql
async def test_the_database_s_own_notifier_hears_both_ways(url: str) -> None:
    app = Holdfast(url, open_types=True)
    arrived: SimpleQueue[Hint] = SimpleQueue()
    listener = app.notifier.listen(arrived.put)
    assert listener.wait_until_alive(30)
    with psycopg.connect(url) as connection:
        app.start(connection, "raw")
    with app.transaction() as tx:
        app.start(tx, "own")
    wanted = {Hint("due", "raw"), Hint("due", "own")}
    while wanted:
        wanted.discard(arrived.get(timeout=PATIENCE_S))
    app.close()


async def test_blocked_and_deduplicated_starts_are_nothing_to_look_for(
    app: Holdfast, heard: Heard
) -> None:
    with app.transaction() as tx:
        first = app.start(tx, "first", key="k")
    heard.hints.clear()
    with app.transaction() as tx:
        app.start(tx, "first", key="k")
        app.start(tx, "blocked", blockers=[first])
    assert heard.hints == []


async def test_an_event_s_handlers_are_told_apart(app: Holdfast, heard: Heard) -> None:
    @app.on("placed")
    def mail(job: object) -> None: ...

    @app.on("placed")
    def stock(job: object) -> None: ...

    app.migrate()
    with app.transaction() as tx:
        app.publish(tx, "placed")
        app.publish(tx, "alone")
    assert sorted(heard.types) == ["alone", "placed/mail", "placed/stock"]


async def test_sessions_in_savepoints_in_savepoints_tell_what_was_kept(
    url: str, dialect: str, app: Holdfast, heard: Heard
) -> None:
    driver = "psycopg" if dialect == "postgresql" else "pysqlite"
    async with sync_engine(url, driver) as engine:
        with Session(engine) as session, session.begin():
            with session.begin_nested():
                app.start(session, "kept")
                with suppress(Undo), session.begin_nested():
                    app.start(session, "undone")
                    raise Undo
            with suppress(Undo), session.begin_nested():
                with session.begin_nested():
                    app.start(session, "undone")
                raise Undo
            assert heard.hints == []
    assert heard.types == ["kept"]
    assert [each.type for each in app.jobs.list()] == ["kept"]


async def test_a_session_that_is_closed_without_a_commit_sends_nothing(
    url: str, dialect: str, app: Holdfast, heard: Heard
) -> None:
    driver = "psycopg" if dialect == "postgresql" else "pysqlite"
    async with sync_engine(url, driver) as engine:
        session = Session(engine)
        app.start(session, "undone")
        session.close()
        app.start(session, "kept")
        session.commit()
        session.close()
    assert heard.types == ["kept"]


@postgresql
async def test_a_session_in_somebody_s_transaction_does_not_tell_before_it(
    url: str, app: Holdfast, heard: Heard
) -> None:
    engine = create_engine(driver_url(url, "psycopg"))
    with engine.connect() as connection:
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            app.start(session, "inside")
            session.commit()
        assert heard.hints == []
        connection.rollback()
    engine.dispose()
    assert heard.hints == []


@pytest.mark.parametrize("dialect", ["sqlite"])
async def test_on_a_raw_sqlite_connection_nothing_is_sent(
    url: str, app: Holdfast, heard: Heard
) -> None:
    with closing(sqlite3.connect(file_of(url))) as connection:
        app.start(connection, "found")
        connection.commit()
    assert heard.hints == []


def test_hints_of_many_transactions_are_sent_once_at_the_end_of_a_batch(
    app: Holdfast, heard: Heard
) -> None:
    with app.batch_hints():
        for number in range(5):
            with app.transaction() as tx:
                app.start(tx, "report", number)
        assert heard.hints == []
    assert heard.types == ["report"]


def refuse_notifier(*_: object, **__: object) -> Notifier:
    """A notifier whose package is not installed."""
    raise MissingExtra("redis is not installed")


def test_a_notifier_that_cannot_be_made_is_told_once_and_undoes_nothing(
    url: str, app: Holdfast, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "open_notifier", refuse_notifier)
    mistaken = Holdfast(url, notifier="redis://127.0.0.1:1", open_types=True)
    for _ in range(2):
        with mistaken.transaction() as tx:
            mistaken.start(tx, "report")
    mistaken.close()
    assert len(app.jobs.list()) == 2
    assert [each.levelname for each in caplog.records].count("ERROR") == 1
    assert "workers will find jobs by polling" in caplog.text


def test_events_that_waited_for_the_subscriptions_of_a_migration_are_told_of(
    url: str, app: Holdfast
) -> None:
    with app.transaction() as tx:
        (waiting,) = app.publish(tx, "order.placed", 7)
    heard = Heard()
    late = Holdfast(url, notifier=heard)

    @late.on("order.placed")
    def mail(job: object) -> None: ...

    late.migrate()
    late.close()
    assert heard.hints == [Hint("due", "order.placed/mail"), Hint("ended", ids=(str(waiting.id),))]

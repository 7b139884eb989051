"""In transactions of Holdfast's own a savepoint takes its hints, events and spans with it, however it is made."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from psycopg import Rollback, sql

from holdfast import Holdfast, Job
from holdfast.core.events import Event
from holdfast.testing.kit import Kit
from tests.client.conftest import Heard
from tests.client.kinds.held import Undo

postgresql = pytest.mark.parametrize("dialect", ["postgresql"])
sqlite = pytest.mark.parametrize("dialect", ["sqlite"])


class Witness:
    """An observer that keeps what it is told."""

    def __init__(self, app: Holdfast) -> None:
        self.events: list[Event] = []
        app.observe(self)

    def observe(self, event: Event) -> None:
        self.events.append(event)

    def told(self, name: str) -> list[str]:
        return [each.fields["type"] for each in self.events if each.name == name]


def give_up() -> None:
    """Leave a block as psycopg's own word for it does: without an exception outside."""
    raise Rollback


def assert_only(app: Holdfast, heard: Heard, witness: Witness, *types: str) -> None:
    assert sorted(each.type for each in app.jobs.list()) == sorted(types)
    assert sorted(heard.types) == sorted(types)
    assert witness.told("job_created") == list(types)


def test_nested_savepoints_in_words(app: Holdfast, heard: Heard) -> None:
    witness = Witness(app)
    with app.transaction() as tx:
        app.start(tx, "first")
        tx.execute("savepoint outer_part")
        app.start(tx, "undone")
        tx.execute("savepoint inner_part")
        app.start(tx, "undone-too")
        tx.execute("release savepoint inner_part")
        tx.execute("rollback to outer_part")
        app.start(tx, "second")
        assert (heard.hints, witness.events) == ([], [])
    assert_only(app, heard, witness, "first", "second")


async def test_nested_savepoints_in_the_other_colour(app: Holdfast, heard: Heard) -> None:
    witness = Witness(app)
    async with app.transaction() as tx:
        await app.start(tx, "first")
        await tx.execute("savepoint outer_part")
        await tx.execute("savepoint inner_part")
        await app.start(tx, "undone")
        await tx.execute("rollback to inner_part")
        await app.start(tx, "second")
        await tx.execute("release outer_part")
    assert_only(app, heard, witness, "first", "second")


def test_savepoints_on_the_driver_s_own_connection(app: Holdfast, heard: Heard) -> None:
    witness = Witness(app)
    with app.transaction() as tx:
        app.start(tx, "kept")
        tx.connection.execute("savepoint part")
        app.start(tx, "undone")
        tx.connection.cursor().execute("rollback to part")
    assert_only(app, heard, witness, "kept")


@postgresql
def test_psycopg_s_nested_transactions(app: Holdfast, heard: Heard) -> None:
    witness = Witness(app)
    with app.transaction() as tx:
        with tx.connection.transaction():
            app.start(tx, "kept")
            with suppress(Undo), tx.connection.transaction():
                app.start(tx, "undone")
                raise Undo
        with tx.connection.transaction():
            app.start(tx, "rolled-back")
            give_up()
        with tx.connection.transaction(force_rollback=True):
            app.start(tx, "tried")
        tx.connection.execute(sql.SQL("savepoint {}").format(sql.Identifier("Part")))
        app.start(tx, "undone")
        tx.connection.execute(b'rollback to "Part"')
    assert_only(app, heard, witness, "kept")


@postgresql
async def test_psycopg_s_nested_transactions_in_the_other_colour(
    app: Holdfast, heard: Heard
) -> None:
    witness = Witness(app)
    async with app.transaction() as tx:
        async with tx.connection.transaction():
            await app.start(tx, "kept")
        with suppress(Undo):
            async with tx.connection.transaction():
                await app.start(tx, "undone")
                raise Undo
        async with tx.connection.transaction(force_rollback=True):
            await app.start(tx, "tried")
    assert_only(app, heard, witness, "kept")


def test_the_next_transaction_on_a_connection_begins_with_nothing(
    app: Holdfast, heard: Heard
) -> None:
    witness = Witness(app)
    with suppress(Undo), app.transaction() as tx:
        tx.execute("savepoint part")
        app.start(tx, "undone")
        raise Undo
    with app.transaction() as tx:
        app.start(tx, "kept")
    assert_only(app, heard, witness, "kept")


@pytest.mark.parametrize("mode", ["atomic", "staged", "async-atomic", "async-staged"])
def test_in_a_handler_s_completing_transaction(
    app: Holdfast, heard: Heard, mode: str, url: str
) -> None:
    def sync_parts(tx: Any) -> None:
        app.start(tx, "kept")
        tx.execute("savepoint part")
        app.start(tx, "undone")
        tx.execute("rollback to part")

    async def async_parts(tx: Any) -> None:
        await app.start(tx, "kept")
        await tx.execute("savepoint part")
        await app.start(tx, "undone")
        await tx.execute("rollback to part")

    @app.job("atomic", atomic=True)
    def atomic(job: Job[Any]) -> None:
        sync_parts(job.tx)

    @app.job("async-atomic", atomic=True)
    async def async_atomic(job: Job[Any]) -> None:
        await async_parts(job.tx)

    @app.job("staged")
    def staged(job: Job[Any]) -> None:
        with job.complete() as done:
            sync_parts(done.tx)

    @app.job("async-staged")
    async def async_staged(job: Job[Any]) -> None:
        async with job.complete() as done:
            await async_parts(done.tx)

    handlers = {"atomic": atomic, "async-atomic": async_atomic}
    handlers |= {"staged": staged, "async-staged": async_staged}
    witness = Witness(app)
    kit = Kit(app, url)
    with app.transaction() as tx:
        app.start(tx, handlers[mode])
    heard.hints.clear()
    witness.events.clear()
    kit.run_until_idle()
    assert [each.type for each in heard.hints if each.kind == "due"] == ["kept"]
    assert witness.told("job_created") == ["kept"]
